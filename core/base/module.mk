# sources of core/base
LIB_DIRS += core/base
