/* Trying multicast from one host to others; see fabric_tool.h.
 *
 * A datagram of a probe is no Tidewire datagram: subscribers that are on the group count it as
 * malformed and do nothing else.  All integers little-endian.
 * Run      a sender draws a number for its run; a receiver takes the first run that it hears and no other.
 * End      after the last datagram the sender says so several times, apart from each other. */
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/slab.h"
#include "base/text.h"
#include "tidewire/wire.h"
#include "tools/fabric_tool.h"

#define PROBE_MAGIC 0x42505754u /* "TWPB" */
#define END_COUNT   20u
#define END_NS      50000000u
#define SETTLE_NS   1000000000ull /* after the first end on any line */
#define SILENCE_NS  10000000000ull
#define TOTAL_MAX   100000000u

struct probe {
	uint32_t magic, ends;
	uint64_t run, seq, total;
	uint8_t fill[32];
};
_Static_assert(sizeof(struct probe) == 64, "the least that is sent");

static _Atomic uint64_t tx_values[TW_FABRIC_MAX_LINES][TW_N_pub_line_counters];
static _Atomic uint64_t rx_values[TW_FABRIC_MAX_LINES][TW_N_sub_line_counters];

static void sleep_until(uint64_t at_ns)
{
	const struct timespec at = { .tv_sec = (time_t)(at_ns / 1000000000u),
				     .tv_nsec = (long)(at_ns % 1000000000u) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
	}
}

/* --- sending --------------------------------------------------------------------------------- */

/* Sends one and waits until it has left: the memory is then free again. */
static void send_one(struct tw_tx *tx, struct probe *probe, uint32_t len_bytes, uint64_t posted)
{
	const struct tw_tx_dgram dgram = { .data = (const uint8_t *)probe, .len_bytes = len_bytes };
	const uint64_t until_ns = tw_mono_ns() + END_NS;
	tw_tx_post(tx, 0, &dgram, 1);
	while (tw_tx_completed(tx, 0) < posted && tw_mono_ns() < until_ns) {
	}
}

static int send_summary(const struct tw_probe_conf *conf, struct tw_error *err)
{
	int rc = TW_OK;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (conf->groups[l] == 0) {
			continue;
		}
		const uint64_t skipped = tx_values[l][TW_PUB_LINE_skipped];
		const uint64_t errors = tx_values[l][TW_PUB_LINE_errors];
		printf("line %c: " TW_IPV4_FMT ": %" PRIu64 " sent, %" PRIu64 " skipped, %" PRIu64
		       " errors\n",
		       'a' + (int)l, TW_IPV4_ARGS(conf->groups[l]),
		       (uint64_t)tx_values[l][TW_PUB_LINE_datagrams], skipped, errors);
		if (skipped + errors > 0 && rc == TW_OK) {
			rc = tw_fail(err, TW_ETIMEOUT, "line %c did not take everything",
				     'a' + (int)l);
		}
	}
	return rc;
}

int tw_probe_send(const struct tw_probe_conf *conf, struct tw_error *err)
{
	struct tw_tx_endpoint ep = { .groups = { conf->groups[0], conf->groups[1] },
				     .publisher = 1 };
	struct tw_slab slab;
	struct tw_tx *tx;
	int rc = tw_slab_init(&slab, TW_WIRE_DGRAM_MAX_BYTES, err);
	if (rc != TW_OK) {
		return rc;
	}
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		ep.counters[l].values = tx_values[l];
	}
	ep.memory = slab.base;
	ep.memory_bytes = slab.size_bytes;
	rc = tw_tx_open(&tx, conf->verbs, &conf->fabric, &ep, 1, err);
	if (rc != TW_OK) {
		goto undo_slab;
	}
	struct probe *probe = (void *)slab.base; /* page aligned */
	memset(slab.base, 0x5a, slab.size_bytes);
	*probe = (struct probe){ .magic = PROBE_MAGIC, .total = conf->count };
	if (getrandom(&probe->run, sizeof(probe->run), 0) != sizeof(probe->run)) {
		probe->run = tw_wall_ns();
	}
	uint64_t due_ns = tw_mono_ns(), posted = 0;
	for (uint32_t i = 0; i < conf->count; i++) {
		probe->seq = i;
		send_one(tx, probe, conf->size_bytes, ++posted);
		due_ns += 1000000000ull / conf->rate;
		sleep_until(due_ns);
	}
	rc = send_summary(conf, err);
	probe->seq = conf->count;
	for (uint32_t i = 0; i < END_COUNT; i++) {
		probe->ends = 1;
		sleep_until(tw_mono_ns() + END_NS);
		send_one(tx, probe, sizeof(*probe), ++posted);
	}
	tw_tx_close(tx);
undo_slab:
	tw_slab_fini(&slab);
	return rc;
}

/* --- receiving ------------------------------------------------------------------------------- */

struct seen {
	uint64_t received, repeated, reordered, other, next;
	uint32_t source;
	bool ended;
};

struct run {
	uint64_t number, total;
	bool any;
	struct seen lines[TW_FABRIC_MAX_LINES];
	uint8_t *bits[TW_FABRIC_MAX_LINES]; /* of each line: which have come */
	struct tw_slab slabs[TW_FABRIC_MAX_LINES];
};

static bool begin_run(struct run *run, const struct probe *probe)
{
	struct tw_error err;
	if (probe->total == 0 || probe->total > TOTAL_MAX) {
		return false;
	}
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (tw_slab_init(&run->slabs[l], probe->total / 8 + 1, &err) != TW_OK) {
			return false;
		}
		run->bits[l] = run->slabs[l].base;
	}
	run->number = probe->run;
	run->total = probe->total;
	run->any = true;
	return true;
}

static void take(struct run *run, unsigned int line, const struct tw_rx_dgram *dgram)
{
	struct seen *seen = &run->lines[line];
	struct probe probe;
	if (dgram->len_bytes < sizeof(probe)) {
		seen->other++;
		return;
	}
	memcpy(&probe, dgram->data, sizeof(probe));
	if (probe.magic != PROBE_MAGIC || (!run->any && !begin_run(run, &probe)) ||
	    probe.run != run->number || probe.total != run->total) {
		seen->other++;
		return;
	}
	seen->source = dgram->src_addr;
	if (probe.ends != 0) {
		seen->ended = true;
		return;
	}
	if (probe.seq >= run->total) {
		seen->other++;
		return;
	}
	uint8_t *byte = &run->bits[line][probe.seq / 8];
	const uint8_t bit = (uint8_t)(1u << probe.seq % 8);
	if ((*byte & bit) != 0) {
		seen->repeated++;
		return;
	}
	*byte |= bit;
	seen->received++;
	seen->reordered += probe.seq < seen->next;
	seen->next = probe.seq >= seen->next ? probe.seq + 1 : seen->next;
}

static bool all_ended(const struct run *run, const struct tw_probe_conf *conf)
{
	bool all = true;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		all = all && (conf->groups[l] == 0 || run->lines[l].ended);
	}
	return all;
}

/* Until every line has heard the end, or one has and the others had time for it, or nothing comes. */
static int listen_for(struct run *run, struct tw_rx *rx, const unsigned int *lines, uint32_t n,
		      const struct tw_probe_conf *conf, struct tw_error *err)
{
	uint64_t until_ns = tw_mono_ns() + conf->wait_s * 1000000000ull;
	bool settling = false;
	while (!all_ended(run, conf) && tw_mono_ns() < until_ns) {
		bool any = false;
		for (uint32_t i = 0; i < n; i++) {
			struct tw_rx_dgram in[TW_RX_BATCH];
			const int got = tw_rx_poll(rx, i, in, TW_RX_BATCH);
			if (got < 0) {
				return tw_fail(err, got, "line %c: receive: %s",
					       'a' + (int)lines[i], tw_strstatus(got));
			}
			for (int k = 0; k < got; k++) {
				take(run, lines[i], &in[k]);
			}
			any = any || got > 0;
			if (run->lines[lines[i]].ended && !settling) {
				settling = true;
				until_ns = tw_mono_ns() + (uint64_t)END_COUNT * END_NS + SETTLE_NS;
			}
		}
		if (any && run->any && !settling) {
			until_ns = tw_mono_ns() + SILENCE_NS;
		} else if (!any) {
			(void)tw_rx_wait(rx, 10000000);
		}
	}
	return TW_OK;
}

static int receive_summary(const struct run *run, const struct tw_probe_conf *conf,
			   struct tw_error *err)
{
	int rc = TW_OK;
	const char *comma = "";
	printf(conf->json ? "{\"transport\":\"%s\",\"lines\":[" : "transport %s\n",
	       conf->verbs ? "verbs" : "udp");
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		const struct seen *seen = &run->lines[l];
		const uint64_t lost = run->total - seen->received;
		if (conf->groups[l] == 0) {
			continue;
		}
		printf(conf->json ? "%s{\"line\":\"%c\",\"group\":\"" TW_IPV4_FMT
				    "\",\"from\":\"" TW_IPV4_FMT "\",\"sent\":%" PRIu64
				    ",\"received\":%" PRIu64 ",\"lost\":%" PRIu64
				    ",\"repeated\":%" PRIu64 ",\"reordered\":%" PRIu64
				    ",\"other\":%" PRIu64 "}"
				  : "%sline %c: " TW_IPV4_FMT " from " TW_IPV4_FMT ": %" PRIu64
				    " sent, %" PRIu64 " received, %" PRIu64 " lost, %" PRIu64
				    " repeated, %" PRIu64 " reordered; %" PRIu64
				    " other datagrams\n",
		       conf->json ? comma : "", 'a' + (int)l, TW_IPV4_ARGS(conf->groups[l]),
		       TW_IPV4_ARGS(seen->source), run->total, seen->received, lost, seen->repeated,
		       seen->reordered, seen->other);
		comma = ",";
		if (!run->any || seen->received == 0) {
			rc = tw_fail(
				err, TW_ETIMEOUT,
				"line %c: nothing came: is tw-fabric send running on the other "
				"host, does the switch forward the group (IGMP snooping needs a "
				"querier), do both ends use the same VLAN?",
				'a' + (int)l);
		} else if (lost > 0 && rc == TW_OK) {
			rc = tw_fail(err, TW_ETIMEOUT, "line %c: %" PRIu64 " of %" PRIu64 " lost",
				     'a' + (int)l, lost, run->total);
		}
	}
	printf(conf->json ? "]}\n" : "");
	return rc;
}

int tw_probe_receive(const struct tw_probe_conf *conf, struct tw_error *err)
{
	struct tw_rx_endpoint eps[TW_FABRIC_MAX_LINES];
	unsigned int lines[TW_FABRIC_MAX_LINES];
	struct run run = { .any = false };
	uint32_t n = 0;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (conf->groups[l] != 0) {
			lines[n] = l;
			eps[n++] = (struct tw_rx_endpoint){ .group = conf->groups[l],
							    .line = (uint8_t)l,
							    .counters = { rx_values[l], NULL } };
		}
	}
	struct tw_rx *rx;
	int rc = tw_rx_open(&rx, conf->verbs, &conf->fabric, eps, n, err);
	if (rc != TW_OK) {
		return rc;
	}
	fprintf(stderr, "tw-fabric: waiting up to %u s for tw-fabric send\n", conf->wait_s);
	rc = listen_for(&run, rx, lines, n, conf, err);
	if (rc == TW_OK) {
		rc = receive_summary(&run, conf, err);
	}
	tw_rx_close(rx);
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		tw_slab_fini(&run.slabs[l]);
	}
	return rc;
}
