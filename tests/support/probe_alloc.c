/* Counts calls of the allocator, for tests that say "does not allocate".  Link with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free.
 *
 * It lies in a file of its own: in the test's file the compiler may see that nothing is done with the
 * memory and remove the call together with the check.
 * Threads   the count is this thread's, so that background threads do not disturb it. */
#include "tests/support/probe_alloc.h"

#include <stddef.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *memory);

static _Thread_local uint64_t calls;

uint64_t probe_alloc_calls(void)
{
	return calls;
}

void *__wrap_malloc(size_t bytes)
{
	calls++;
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	calls++;
	return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	calls++;
	return __real_realloc(old, bytes);
}

void __wrap_free(void *memory)
{
	calls++;
	__real_free(memory);
}
