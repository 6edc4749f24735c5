LIB_DIRS += config
