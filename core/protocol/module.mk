# sources of core/protocol
LIB_DIRS += core/protocol
