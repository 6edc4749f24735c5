# sources of core/fabric
LIB_DIRS += core/fabric
