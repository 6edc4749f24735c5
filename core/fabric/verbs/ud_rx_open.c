/* Opening, building, taking apart and closing the receiver of the `verbs` transport, and its devices'
 * clocks; see ud_rx.c.
 *
 * Threads   the cold one; open and close while it does not run. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/udp/udp.h"
#include "fabric/verbs/ud_rx.h"

#define DEPTH_MIN      64u
#define DRAIN_NS       200000000u /* for flushed work requests to come back */
#define CLOCK_PAUSE_NS 20000000   /* a reading is off by 1 us: then 50 ppm */

struct tw_ud *tw_ud_of_rx(struct tw_rx *rx)
{
	return &tw_ud_rx_self(rx)->ud;
}

static int watch(struct ud_rx *rx, int fd, struct tw_error *err)
{
	struct epoll_event event = { .events = EPOLLIN };
	if (epoll_ctl(rx->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		return tw_fail_sys(err, TW_ESYS, "verbs receiver: epoll_ctl");
	}
	return TW_OK;
}

/* The channel lives and dies with the line's context, so with its flows: opened with the first. */
static int open_channel(struct ud_rx *rx, unsigned int l, struct tw_error *err)
{
	rx->channels[l] = ibv_create_comp_channel(rx->ud.lines[l].device.context);
	if (rx->channels[l] == NULL) {
		return tw_fail_sys(err, TW_ESYS, "%s: ibv_create_comp_channel",
				   rx->ud.lines[l].device.facts.device);
	}
	const int fd = rx->channels[l]->fd;
	const int flags = fcntl(fd, F_GETFL);
	int rc = flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0
			 ? watch(rx, fd, err)
			 : tw_fail_sys(err, TW_ESYS, "verbs receiver: fcntl O_NONBLOCK");
	if (rc != TW_OK) {
		(void)ibv_destroy_comp_channel(rx->channels[l]);
		rx->channels[l] = NULL;
	}
	return rc;
}

/* --- building and taking apart ------------------------------------------------------------------- */

/* Takes back what is posted: everything comes back flushed, or the device is gone.  The time is looked at
 * before the queue: a thread that stood still meanwhile looks once more. */
static uint32_t drain(struct rx_flow *f)
{
	struct ibv_wc wc[16]; /* not the hot thread's */
	const uint64_t until_ns = tw_mono_ns() + DRAIN_NS;
	tw_ud_qp_flush(&f->flow);
	while (f->outstanding > 0) {
		const bool late = tw_mono_ns() >= until_ns;
		const int n = ibv_poll_cq(f->cq, 16, wc);
		if (n < 0 || (n == 0 && late)) {
			break;
		}
		f->outstanding -= (uint32_t)n;
	}
	const uint32_t lost = f->outstanding;
	f->outstanding = 0;
	return lost;
}

static uint32_t unbuild(struct tw_ud *ud, struct tw_ud_flow *flow)
{
	struct rx_flow *f = (struct rx_flow *)flow;
	uint32_t lost = 0;
	(void)ud;
	if (flow->qp != NULL) {
		/* it may never have been attached, and then this says so */
		(void)ibv_detach_mcast(flow->qp, &flow->ah.grh.dgid, flow->ah.dlid);
		lost = drain(f);
		(void)ibv_destroy_qp(flow->qp);
		flow->qp = NULL;
	}
	if (f->cq != NULL) {
		(void)ibv_destroy_cq(f->cq);
		f->cq = NULL;
		f->cq_ex = NULL;
	}
	if (f->mr != NULL) {
		(void)ibv_dereg_mr(f->mr);
		f->mr = NULL;
	}
	return lost;
}

static int make_cq(struct ud_rx *rx, struct rx_flow *f, struct tw_error *err)
{
	struct tw_ud_line *line = &rx->ud.lines[f->flow.line];
	const bool stamps = rx->stamps[f->flow.line];
	if (!stamps && !rx->extended) {
		f->cq = ibv_create_cq(line->device.context, (int)f->depth * 2, f,
				      rx->channels[f->flow.line], 0);
		return f->cq != NULL ? TW_OK
				     : tw_ud_fail(&rx->ud, &f->flow, errno, "ibv_create_cq", err);
	}
	struct ibv_cq_init_attr_ex attr = {
		.cqe = f->depth * 2,
		.cq_context = f,
		.channel = rx->channels[f->flow.line],
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
			    (stamps ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0),
	};
	f->cq_ex = ibv_create_cq_ex(line->device.context, &attr);
	if (f->cq_ex == NULL) {
		return tw_ud_fail(&rx->ud, &f->flow, errno, "ibv_create_cq_ex", err);
	}
	f->cq = ibv_cq_ex_to_cq(f->cq_ex);
	return TW_OK;
}

static int make_queues(struct ud_rx *rx, struct rx_flow *f, struct tw_error *err)
{
	struct tw_ud *ud = &rx->ud;
	struct tw_ud_line *line = &ud->lines[f->flow.line];
	int rc = make_cq(rx, f, err);
	if (rc != TW_OK) {
		return rc;
	}
	struct ibv_qp_init_attr attr = { .send_cq = f->cq,
					 .recv_cq = f->cq,
					 .cap = { .max_send_wr = 1,
						  .max_recv_wr = f->depth,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_UD };
	f->flow.qp = ibv_create_qp(line->pd, &attr);
	if (f->flow.qp == NULL) {
		return tw_ud_fail(ud, &f->flow, errno, "ibv_create_qp", err);
	}
	f->mr = ibv_reg_mr(line->pd, f->slots.slab.base, f->slots.slab.size_bytes,
			   IBV_ACCESS_LOCAL_WRITE);
	if (f->mr == NULL) {
		return tw_ud_fail(ud, &f->flow, errno, "ibv_reg_mr (see ulimit -l)", err);
	}
	return TW_OK;
}

static int build(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	struct ud_rx *rx = tw_ud_rx_of(ud);
	struct rx_flow *f = (struct rx_flow *)flow;
	int rc = TW_OK;

	f->got = f->at = f->lent_count = f->spare_count = f->outstanding = f->backlog = 0;
	f->broken = f->armed = false;
	for (uint32_t i = 0; i < f->depth; i++) {
		f->spare[f->spare_count++] = f->depth - 1 - i;
	}
	if (rx->channels[flow->line] == NULL) {
		rc = open_channel(rx, flow->line, err);
	}
	if (rc == TW_OK) {
		rc = make_queues(rx, f, err);
	}
	if (rc == TW_OK) {
		rc = tw_ud_qp_up(ud, flow, err);
	}
	while (rc == TW_OK && f->spare_count > 0) {
		/* before the group is attached: nothing finds the queue empty */
		if (!tw_ud_rx_post(rx, f)) {
			rc = tw_ud_fail(ud, flow, errno, "ibv_post_recv", err);
		}
	}
	if (rc == TW_OK) {
		rc = tw_ud_attach(ud, flow, err);
	}
	if (rc != TW_OK) {
		(void)unbuild(ud, flow);
	}
	return rc;
}

static void line_closing(struct tw_ud *ud, unsigned int l)
{
	struct ud_rx *rx = tw_ud_rx_of(ud);
	if (rx->channels[l] != NULL) {
		(void)ibv_destroy_comp_channel(rx->channels[l]);
		rx->channels[l] = NULL;
	}
}

static const struct tw_ud_flow_ops flow_ops = { .build = build, .unbuild = unbuild };

/* --- the devices' clocks --------------------------------------------------------------------------- */

/* The device's clock beside ours, as close together as a few tries bring them. */
static bool read_clock(struct ibv_context *context, struct tw_clock_reading *best)
{
	uint64_t narrowest_ns = UINT64_MAX;
	for (unsigned int i = 0; i < 5; i++) {
		struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
		const uint64_t before_ns = tw_wall_ns();
		const int cause = ibv_query_rt_values_ex(context, &values);
		const uint64_t width_ns = tw_wall_ns() - before_ns;
		if (cause != 0 || (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) {
			return false;
		}
		if (width_ns < narrowest_ns) {
			narrowest_ns = width_ns;
			best->wall_ns = before_ns + width_ns / 2;
			best->tsc = (uint64_t)values.raw_clock.tv_sec * 1000000000u +
				    (uint64_t)values.raw_clock.tv_nsec;
		}
	}
	return true;
}

static void sample_clocks(struct tw_ud *ud)
{
	struct ud_rx *rx = tw_ud_rx_of(ud);
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		struct tw_clock_reading reading;
		if (rx->stamps[l] && ud->lines[l].device.context != NULL &&
		    read_clock(ud->lines[l].device.context, &reading)) {
			tw_stamp_reading(&rx->clocks[l], reading);
		}
	}
}

/* Whether a line's stamps are the device's; `why` not, where that is worth a word. */
static bool try_clock(struct ud_rx *rx, unsigned int l, char *why, size_t size)
{
	const struct tw_verbs_device *device = &rx->ud.lines[l].device;
	const struct tw_verbs_facts *facts = &device->facts;
	struct tw_clock_reading a, b;
	int64_t ppm = 0;
	if (facts->timestamp_mask == 0) {
		return false;
	}
	if (facts->clock_khz == 0 || !facts->clock_readable || !read_clock(device->context, &a)) {
		(void)snprintf(why, size, "the clock of %.24s cannot be read", facts->device);
		return false;
	}
	const struct timespec pause = { .tv_nsec = CLOCK_PAUSE_NS };
	(void)nanosleep(&pause, NULL);
	if (!read_clock(device->context, &b) ||
	    !tw_stamp_begin(&rx->clocks[l], facts->timestamp_mask, facts->clock_khz, a, b, &ppm)) {
		(void)snprintf(why, size, "the clock of %.24s is not what it states",
			       facts->device);
		return false;
	}
	return true;
}

static void choose_stamps(struct ud_rx *rx)
{
	char why[64] = "";
	unsigned int used = 0, by_nic = 0;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (rx->ud.lines[l].used) {
			used++;
			rx->stamps[l] = try_clock(rx, l, why, sizeof(why));
			by_nic += rx->stamps[l];
		}
	}
	(void)snprintf(rx->stamp_text, sizeof(rx->stamp_text), "%s%s%s",
		       by_nic == 0      ? "poll"
		       : by_nic == used ? "nic"
		       : rx->stamps[0]  ? "nic on line a, poll on line b"
					: "poll on line a, nic on line b",
		       why[0] != '\0' ? ": " : "", why);
	rx->base.stamp = rx->stamp_text;
	rx->ud.sample = by_nic > 0 ? sample_clocks : NULL;
}

/* --- opening and closing ------------------------------------------------------------------------- */

static const char *ud_rx_describe(const struct tw_rx *base, unsigned int line)
{
	return line < TW_FABRIC_MAX_LINES ? tw_ud_rx_self_const(base)->ud.lines[line].text : "";
}

static bool ud_rx_note(struct tw_rx *base, struct tw_error *out)
{
	return tw_ud_note(&tw_ud_rx_self(base)->ud, out);
}

static void ud_rx_close(struct tw_rx *base)
{
	struct ud_rx *rx = tw_ud_rx_self(base);
	tw_ud_fini(&rx->ud);
	for (uint32_t i = 0; i < base->endpoints; i++) {
		tw_slots_fini(&rx->flows[i].slots);
		free(rx->flows[i].spare);
	}
	if (rx->epoll_fd >= 0) {
		close(rx->epoll_fd);
	}
	free(rx);
}

static const struct tw_rx_ops ud_rx_ops = {
	.poll = tw_ud_rx_poll,
	.wait = tw_ud_rx_wait,
	.event_fd = tw_ud_rx_event_fd,
	.arm = tw_ud_rx_arm,
	.describe = ud_rx_describe,
	.note = ud_rx_note,
	.close = ud_rx_close,
};

/* As configured, within what the device takes. */
static uint32_t choose_depth(const struct tw_fabric_conf *conf, const struct tw_verbs_facts *facts)
{
	uint64_t depth = conf->receive_depth != 0 ? conf->receive_depth
						  : conf->rcvbuf_bytes / conf->mtu_bytes;
	const uint64_t cq = facts->max_cqe / 2;
	depth = depth > facts->max_qp_wr ? facts->max_qp_wr : depth;
	depth = depth > cq ? cq : depth;
	return depth < DEPTH_MIN ? DEPTH_MIN : (uint32_t)depth;
}

static int open_endpoint(struct ud_rx *rx, uint32_t i, const struct tw_fabric_conf *conf,
			 const struct tw_rx_endpoint *want, struct tw_error *err)
{
	struct rx_flow *f = &rx->flows[i];
	const struct tw_verbs_facts *facts = &rx->ud.lines[want->line].device.facts;
	f->flow.ops = &flow_ops;
	f->flow.group = want->group;
	f->flow.line = want->line;
	f->flow.receives = true;
	f->counters = want->counters;
	f->depth = f->free_min = choose_depth(conf, facts);
	int rc = tw_slots_init(&f->slots, f->depth, conf->mtu_bytes, err);
	if (rc != TW_OK) {
		return rc;
	}
	f->spare = calloc(f->depth, sizeof(f->spare[0]));
	if (f->spare == NULL) {
		return tw_fail(err, TW_ENOMEM, "verbs receiver: calloc: %u slots", f->depth);
	}
	tw_counter_set(&f->counters, TW_SUB_LINE_receive_depth, f->depth);
	tw_counter_set(&f->counters, TW_SUB_LINE_receive_free_min, f->free_min);
	tw_counter_set(&f->counters, TW_SUB_LINE_receive_buffer_bytes,
		       (uint64_t)f->depth * conf->mtu_bytes);
	return tw_ud_add(&rx->ud, &f->flow, err);
}

static int open_all(struct ud_rx *rx, const struct tw_fabric_conf *conf,
		    const struct tw_rx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	uint32_t groups[TW_FABRIC_MAX_LINES] = { 0 };
	for (uint32_t i = 0; i < n; i++) {
		if (endpoints[i].line >= TW_FABRIC_MAX_LINES) {
			return tw_fail(err, TW_EARG,
				       "receive " TW_IPV4_FMT ": line %u: no such line",
				       TW_IPV4_ARGS(endpoints[i].group), endpoints[i].line);
		}
		groups[endpoints[i].line]++;
	}
	int rc = tw_ud_init(&rx->ud, "receive", conf, groups, err);
	if (rc != TW_OK) {
		return rc;
	}
	rx->ud.line_closing = line_closing;
	choose_stamps(rx);
	rx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (rx->epoll_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "verbs receiver: epoll_create1");
	}
	rc = watch(rx, rx->ud.heal_fd, err);
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		rx->base.sourceless = rx->base.sourceless ||
				      (groups[l] != 0 && rx->ud.lines[l].device.facts.link ==
								 TW_VERBS_LINK_INFINIBAND);
	}
	for (uint32_t i = 0; i < n && rc == TW_OK; i++) {
		rc = open_endpoint(rx, i, conf, &endpoints[i], err);
	}
	return rc == TW_OK ? tw_ud_start(&rx->ud, err) : rc;
}

int tw_ud_rx_open(struct tw_rx **rx_p, const struct tw_fabric_conf *conf,
		  const struct tw_rx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	*rx_p = NULL;
	int rc = tw_udp_check_mtu(conf, err);
	if (rc != TW_OK) {
		return rc;
	}
	const size_t bytes = sizeof(struct ud_rx) + n * sizeof(struct rx_flow);
	struct ud_rx *rx = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (rx == NULL) {
		return tw_fail(err, TW_ENOMEM, "verbs receiver: aligned_alloc: %u endpoints", n);
	}
	memset(rx, 0, bytes);
	rx->base.ops = &ud_rx_ops;
	rx->base.endpoints = n;
	rx->mtu_bytes = conf->mtu_bytes;
	rx->extended = conf->extended_completions;
	rx->epoll_fd = -1;
	rc = open_all(rx, conf, endpoints, n, err);
	if (rc != TW_OK) {
		ud_rx_close(&rx->base);
		return rc;
	}
	*rx_p = &rx->base;
	return TW_OK;
}
