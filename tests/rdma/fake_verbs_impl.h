/* The inside of fake_verbs.h: objects, and what its files share. */
#ifndef TW_TESTS_FAKE_VERBS_IMPL_H
#define TW_TESTS_FAKE_VERBS_IMPL_H

#include "tests/rdma/fake_verbs.h"

#define FAKE_RING 2048u /* entries of each queue */

struct fake_queue { /* of events: readable as long as there are some */
	int fd;
	void *items[256];
	unsigned int count;
};

struct fake_device {
	struct ibv_device device; /* first */
	struct fake_device *next;
	struct ibv_context *cm; /* librdmacm's */
	bool dead;
};
struct fake_context {
	struct verbs_context verbs; /* verbs.context is handed out */
	struct fake_queue events;
	struct fake_context *next;
	unsigned int children;
	bool of_cm;
};
struct fake_ah {
	struct ibv_ah ah;
	struct ibv_ah_attr attr;
};
struct fake_pd {
	struct ibv_pd pd;
	unsigned int children;
};
struct fake_mr {
	struct ibv_mr mr;
	struct fake_mr *next;
};
struct fake_channel {
	struct ibv_comp_channel channel;
	struct fake_queue events;
	unsigned int children;
};
struct fake_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	struct ibv_wc ring[FAKE_RING];
	uint64_t ticks[FAKE_RING];
	uint32_t first, last; /* free-running */
	unsigned int children, events, acked;
	uint64_t flags; /* extended: what was asked for */
	bool armed, polling;
};
struct fake_recv {
	uint64_t wr_id;
	struct ibv_sge sge[2];
	int count;
};
struct fake_ring {
	struct fake_recv recvs[FAKE_RING];
	uint32_t first, last, room;
};
struct fake_srq {
	struct ibv_srq srq;
	struct fake_ring ring;
};
struct fake_qp {
	struct ibv_qp qp;
	struct fake_qp *next;
	struct fake_ring ring;
	struct {
		uint64_t wr_id;
	} stalled[FAKE_RING];
	uint32_t stalled_count;
	uint32_t max_send, max_inline;
	uint8_t group[16];
	bool attached;
	unsigned int events; /* taken and not acknowledged */
};
struct fake_event {
	struct ibv_async_event event;
};

/* fake_ledger.c */
bool fake_queue_open(struct fake_queue *queue);
void fake_queue_close(struct fake_queue *queue);
void fake_queue_put(struct fake_queue *queue, void *item);
/* NULL and EAGAIN: there is none. */
void *fake_queue_take(struct fake_queue *queue);
void *fake_queue_take_at(struct fake_queue *queue, unsigned int i);
void fake_queue_drop(struct fake_queue *queue, bool (*is)(const void *item, const void *of),
		     const void *of);
void fake_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fake_made(enum fake_kind kind);
void fake_gone(enum fake_kind kind);
void *fake_make(size_t bytes, enum fake_kind kind);
void fake_none_left(unsigned int children, const char *what);
/* fake_verbs.c */
struct ibv_context *fake_cm_context(void); /* librdmacm's own of the device; NULL: there is none */
void fake_gid(union ibv_gid *gid);
extern struct fake_qp *fake_qps;
extern uint32_t fake_numbers;
struct fake_context *fake_self(struct ibv_context *context);
bool fake_dead(const struct ibv_context *context);
bool fake_is_of_queue(const void *item, const void *of);
void fake_check_sge(const struct ibv_pd *pd, const struct ibv_sge *sge);
/* fake_queues.c */
const struct ibv_qp *fake_find_qp(uint32_t qp_num);
void fake_queue_ops(struct verbs_context *verbs);
/* fake_cm.c */
void fake_cm_removed(const struct ibv_context *context);

#endif
