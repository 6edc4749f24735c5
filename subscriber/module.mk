LIB_DIRS += subscriber
