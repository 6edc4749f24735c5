/* The ledger of a device that is not there, and its queues of events.  See fake_verbs.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/rdma/fake_verbs_impl.h"

struct fake fake;
pthread_mutex_t fake_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* --- ledger -------------------------------------------------------------------------------------- */

void fake_fault(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	if (fake.fault[0] == '\0') {
		(void)vsnprintf(fake.fault, sizeof(fake.fault), format, args);
	}
	va_end(args);
}

void fake_made(enum fake_kind kind)
{
	fake.live[kind]++;
	fake.made[kind]++;
}

void fake_gone(enum fake_kind kind)
{
	static const char letters[FAKE_KINDS + 1] = "XPMHCSQAEI";
	size_t n = strlen(fake.order);
	fake.live[kind]--;
	if (n + 1 < sizeof(fake.order)) {
		fake.order[n] = letters[kind];
		fake.order[n + 1] = '\0';
	}
}

unsigned int fake_live(enum fake_kind kind)
{
	FAKE_LOCK;
	unsigned int n = fake.live[kind];
	FAKE_UNLOCK;
	return n;
}

void *fake_make(size_t bytes, enum fake_kind kind)
{
	void *object = calloc(1, bytes);
	if (object != NULL) {
		fake_made(kind);
	}
	return object;
}

void fake_none_left(unsigned int children, const char *what)
{
	if (children != 0) {
		fake_fault("%s destroyed with %u of its own left", what, children);
	}
}

/* --- queues of events ----------------------------------------------------------------------------- */

bool fake_queue_open(struct fake_queue *queue)
{
	queue->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return queue->fd >= 0;
}

void fake_queue_close(struct fake_queue *queue)
{
	while (queue->count > 0) {
		free(queue->items[--queue->count]);
	}
	(void)close(queue->fd);
}

void fake_queue_put(struct fake_queue *queue, void *item)
{
	uint64_t one = 1;
	if (queue->count == sizeof(queue->items) / sizeof(queue->items[0]) ||
	    write(queue->fd, &one, sizeof(one)) != sizeof(one)) {
		fake_fault("too many events");
		free(item);
		return;
	}
	queue->items[queue->count++] = item;
}

void *fake_queue_take_at(struct fake_queue *queue, unsigned int i)
{
	uint64_t one;
	void *item = queue->items[i];
	if (read(queue->fd, &one, sizeof(one)) != sizeof(one)) {
		fake_fault("a queue of events and its descriptor disagree");
	}
	memmove(queue->items + i, queue->items + i + 1,
		(--queue->count - i) * sizeof(queue->items[0]));
	return item;
}

void *fake_queue_take(struct fake_queue *queue)
{
	if ((fcntl(queue->fd, F_GETFL) & O_NONBLOCK) == 0) {
		fake_fault("events are taken from a descriptor that would block");
	}
	if (queue->count == 0) {
		errno = EAGAIN;
		return NULL;
	}
	return fake_queue_take_at(queue, 0);
}

void fake_queue_drop(struct fake_queue *queue, bool (*is)(const void *item, const void *of),
		     const void *of)
{
	for (unsigned int i = 0; i < queue->count;) {
		if (is(queue->items[i], of)) {
			free(fake_queue_take_at(queue, i));
		} else {
			i++;
		}
	}
}
