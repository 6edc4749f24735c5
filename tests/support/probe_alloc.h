/* Calls of malloc, calloc, realloc and free that this thread has made; see probe_alloc.c. */
#ifndef TW_TESTS_PROBE_ALLOC_H
#define TW_TESTS_PROBE_ALLOC_H

#include <stdint.h>

uint64_t probe_alloc_calls(void);

#endif
