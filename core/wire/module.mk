# sources of core/wire
LIB_DIRS += core/wire
