/* Repair at a subscriber handle: between the ladder of each channel (protocol/repair.h), which says what to
 * read, and the one reader of the handle (fabric/reader.h), which reads it.
 *
 * Turn      only while some channel has an open gap or a read under way: then once in each poll, as soon as
 *           nothing is half pulled and before anything new is taken from the lines, because a gap holds
 *           back everything behind it.  A turn begins one reply, or lets one channel's ladder ask.
 * Borrowing  events of a repaired datagram lie in the reader's slot, which is given back when the reply was
 *           walked to its end, by a poll that has handed out nothing yet: that one's turn comes after it.
 * Threads   the handle's, but for the reader's own behind it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "subscriber/sub_internal.h"

#define BYTES_PER_MBIT 125000u
#define ECT0           2u /* of a ToS: a sender that slows down when it is told to */
/* Spread-out loss is many small reads, each of which waits for two threads to get a CPU: it is their
 * number that makes the rate. */
#define READS_PER_CHANNEL  256u
#define LARGE_PER_CHANNEL  8u
#define SLOTS_BASE         16u  /* of 64 KiB: reads of all channels together, beside one a server */
#define SMALL_SLOTS        512u /* of all channels together */
#define JOIN_UNITS         64u  /* gaps less than 4 KiB apart are one read */
#define CONNECT_TIMEOUT_NS 1000000000u
#define REPLY_TIMEOUT_NS   500000000u /* at least: a busy host is not a dead server */
#define GATHER_NS          TW_SUB_REPLY_NS /* longest that a read is held back where many are asked for */
#define ASKS               8u
#define PRIORITY_MAX       6u /* more needs CAP_NET_ADMIN: socket(7), SO_PRIORITY */

/* --- what to open ------------------------------------------------------------------------------ */

static bool publishes(const struct tw_site_publisher *publisher, uint32_t channel)
{
	for (uint32_t i = 0; i < publisher->channel_count; i++) {
		if (publisher->channels[i] == channel) {
			return true;
		}
	}
	return false;
}

uint32_t tw_sub_repair_servers(const struct tw_sub_plan *plan, uint32_t site_idx,
			       uint8_t out[TW_REPAIR_MAX_SERVERS])
{
	const struct tw_site *site = plan->site;
	uint32_t count = 0;

	for (uint32_t i = 0; i < site->subscriber.repair_count; i++) {
		if (publishes(&site->publishers[site->subscriber.repair[i]], site_idx)) {
			out[count++] = (uint8_t)i;
		}
	}
	return count;
}

bool tw_sub_repair_conf(const struct tw_sub *sub, uint32_t site_idx, struct tw_repair_conf *out)
{
	const struct tw_site *site = sub->plan.site;
	const struct tw_site_subscriber *conf = &site->subscriber;
	uint8_t servers[TW_REPAIR_MAX_SERVERS];
	/* two datagrams at least, or one that lies across two reads would be in neither */
	uint32_t least_bytes = 2 * ((site->fabric.mtu_bytes + TW_WIRE_UNIT_BYTES - 1) /
				    TW_WIRE_UNIT_BYTES * TW_WIRE_UNIT_BYTES);
	uint32_t read_bytes = conf->read_kbytes * 1024;

	*out = (struct tw_repair_conf){
		.channel = site->channels[site_idx].id,
		.servers = tw_sub_repair_servers(&sub->plan, site_idx, servers),
		.wait_ns = (uint64_t)conf->wait_us * 1000u,
		.retry_min_ns = (uint64_t)conf->retry_min_ms * 1000000u,
		.retry_max_ns = (uint64_t)conf->retry_max_ms * 1000000u,
		.give_up_ns = (uint64_t)conf->give_up_ms * 1000000u,
		.max_bytes_per_s = (uint64_t)conf->max_mbps * BYTES_PER_MBIT,
		.attempts_max = conf->attempts,
		.reads_max = READS_PER_CHANNEL,
		.bytes_max = (uint64_t)LARGE_PER_CHANNEL * TW_REPAIR_READ_MAX_BYTES,
		.read_max_bytes = read_bytes > least_bytes ? read_bytes : least_bytes,
		.join_units = JOIN_UNITS,
	};
	return out->servers > 0;
}

int tw_sub_repair_counters(struct tw_sub *sub, struct tw_error *err)
{
	const struct tw_site *site = sub->plan.site;
	char label[TW_NAME_BYTES + 24];
	int rc = TW_OK;

	for (uint32_t i = 0; i < site->subscriber.repair_count && rc >= 0; i++) {
		const struct tw_site_publisher *p = &site->publishers[site->subscriber.repair[i]];
		(void)snprintf(label, sizeof(label), "repair by %s", p->name);
		rc = tw_stats_add(sub->stats, TW_SET_reader, label, &sub->servers[i], err);
		if (rc >= 0 && sub->plan.verbs) {
			(void)snprintf(label, sizeof(label), "repair by %s over RC", p->name);
			rc = tw_stats_add(sub->stats, TW_SET_reader, label, &sub->rc_servers[i],
					  err);
		}
	}
	return rc;
}

/* RC where a server has it, TCP where it has not: a publisher on `udp` has nothing else. */
static int open_readers(struct tw_sub *sub, struct tw_reader_conf *conf, struct tw_error *err)
{
	const struct tw_site_class *qos = &sub->plan.site->fabric.repair;
	struct tw_reader *tcp, *rc_reader;

	int rc = tw_tcp_reader_open(&tcp, conf, err);
	if (rc < 0 || !sub->plan.verbs) {
		sub->reader = tcp;
		return rc;
	}
	conf->tos |= qos->ecn ? ECT0 : 0; /* TCP has the kernel to see to that */
	conf->counters = sub->rc_servers;
	rc = tw_rc_reader_open(&rc_reader, conf, err);
	if (rc < 0) {
		tw_reader_close(tcp);
		return rc;
	}
	return tw_reader_pair_open(&sub->reader, rc_reader, tcp, err);
}

int tw_sub_repair_open(struct tw_sub *sub, struct tw_error *err)
{
	const struct tw_site *site = sub->plan.site;
	const struct tw_site_subscriber *conf = &site->subscriber;
	const struct tw_site_class *qos = &site->fabric.repair;
	struct tw_reader_server servers[TW_READER_MAX_SERVERS];
	uint64_t reply_ns = (uint64_t)conf->give_up_ms * 1000000u;
	bool any = false;

	for (uint32_t i = 0; i < sub->channel_count; i++) {
		any |= sub->channels[i].repair != NULL;
	}
	if (!any) {
		return TW_OK;
	}
	for (uint32_t i = 0; i < conf->repair_count; i++) {
		const struct tw_site_publisher *p = &site->publishers[conf->repair[i]];
		servers[i] = (struct tw_reader_server){ .addr = site->hosts[p->host].address,
							.port = (uint16_t)p->repair_port };
	}
	struct tw_reader_conf reader = {
		.servers = servers,
		.server_count = conf->repair_count,
		.environment = site->environment_id,
		.slots = SLOTS_BASE + conf->repair_count,
		.small_slots = SMALL_SLOTS,
		.connect_timeout_ns = CONNECT_TIMEOUT_NS,
		.retry_min_ns = (uint64_t)conf->retry_min_ms * 1000000u,
		.retry_max_ns = (uint64_t)conf->retry_max_ms * 1000000u,
		.idle_timeout_ns = reply_ns > REPLY_TIMEOUT_NS ? reply_ns : REPLY_TIMEOUT_NS,
		.gather_ns = GATHER_NS,
		.tos = (uint8_t)(qos->dscp << 2),
		.priority = (uint8_t)(qos->priority < PRIORITY_MAX ? qos->priority : PRIORITY_MAX),
		.cpu = -1,
		.counters = sub->servers,
	};
	(void)snprintf(reader.name, sizeof(reader.name), "%s", sub->name);
	return open_readers(sub, &reader, err);
}

/* --- hot path, while something is missing -------------------------------------------------------- */

/* Tells the ladders which servers can be asked. */
static void refresh_servers(struct tw_sub *sub)
{
	uint32_t up = tw_reader_up(sub->reader);

	if (up == sub->servers_up) {
		return;
	}
	sub->servers_up = up;
	for (uint32_t i = 0; i < sub->channel_count; i++) {
		struct tw_sub_channel *channel = &sub->channels[i];
		for (uint32_t s = 0; s < channel->server_count; s++) {
			tw_repair_server(channel->repair, s, (up >> channel->servers[s] & 1u) != 0,
					 sub->now_ns);
		}
	}
}

static void ask(struct tw_sub *sub, struct tw_sub_channel *channel)
{
	struct tw_repair_read reads[ASKS];
	uint32_t n = tw_repair_poll(channel->repair, sub->now_ns, reads, ASKS);

	for (uint32_t i = 0; i < n; i++) {
		struct tw_read read = {
			.id = reads[i].id,
			.server = channel->servers[reads[i].server],
			.channel = reads[i].channel,
			.by_seq = reads[i].by_seq,
			.session = reads[i].session,
			.publisher = reads[i].publisher,
			.begin = reads[i].begin,
			.end = reads[i].end,
		};
		if (!tw_reader_post(sub->reader, &read)) {
			tw_repair_reply(channel->repair, read.id, TW_REPAIR_UNPOSTED, NULL, 0,
					sub->now_ns);
		}
	}
}

static enum tw_repair_status status_of(enum tw_read_status status)
{
	switch (status) {
	case TW_READ_OK:
		return TW_REPAIR_OK;
	case TW_READ_GONE:
		return TW_REPAIR_GONE;
	case TW_READ_REFUSED:
		return TW_REPAIR_REFUSED;
	case TW_READ_BUSY:
		return TW_REPAIR_BUSY;
	case TW_READ_BROKEN:
	case TW_READ_STATUSES:
		break;
	}
	return TW_REPAIR_BROKEN;
}

/* Whether a reply was begun. */
static bool begin_reply(struct tw_sub *sub)
{
	if (!tw_reader_poll(sub->reader, &sub->reply)) {
		return false;
	}
	sub->reply_held = true;
	for (uint32_t i = 0; i < sub->channel_count; i++) {
		struct tw_sub_channel *channel = &sub->channels[i];
		if (channel->id == sub->reply.channel) {
			sub->reply_channel = channel->down ? NULL : channel;
			sub->reply_ns = tw_wall_ns();
			tw_counter_add(&channel->counters, TW_SUB_CHANNEL_repair_one_sided,
				       sub->reply.one_sided);
			tw_repair_reply(channel->repair, sub->reply.id,
					status_of(sub->reply.status), sub->reply.data,
					sub->reply.len_bytes, sub->now_ns);
		}
	}
	return true;
}

void tw_sub_repair_refresh(struct tw_sub *sub, struct tw_sub_channel *channel)
{
	bool repairing =
		tw_arb_gaps(channel->arb) != 0 || tw_repair_outstanding(channel->repair) != 0;
	struct tw_repair_stats stats;

	if (!repairing && !channel->repairing) {
		return;
	}
	tw_repair_stats(channel->repair, &stats);
#define SET(name, value) tw_counter_set(&channel->counters, TW_SUB_CHANNEL_##name, value)
	SET(repair_reads, stats.reads);
	SET(repair_bytes, stats.bytes);
	SET(repair_retries, stats.retries);
	SET(repair_failed, stats.refused + stats.gone + stats.busy + stats.broken);
#undef SET
	if (repairing != channel->repairing) {
		channel->repairing = repairing;
		sub->repairing += repairing ? 1u : UINT32_MAX;
	}
}

void tw_sub_repair_release(struct tw_sub *sub)
{
	if (sub->reply_held && sub->reply_channel == NULL) {
		tw_reader_release(sub->reader, &sub->reply);
		sub->reply_held = false;
	}
}

void tw_sub_repair_begin(struct tw_sub *sub)
{
	sub->repair_due = sub->repairing != 0;
	tw_sub_repair_release(sub);
}

void tw_sub_repair_turn(struct tw_sub *sub)
{
	/* one reply in a call: the next would take the place of bytes that were handed out */
	if (sub->reply_held || sub->store_borrowed) {
		return;
	}
	refresh_servers(sub);
	if (begin_reply(sub)) {
		return;
	}
	for (uint32_t i = 0; i < sub->channel_count; i++) {
		struct tw_sub_channel *channel = &sub->channels[sub->repair_cursor];
		sub->repair_cursor =
			sub->repair_cursor + 1 == sub->channel_count ? 0 : sub->repair_cursor + 1;
		if (channel->repairing && !channel->down) {
			ask(sub, channel);
			sub->pulling = channel; /* something may have become LOST */
			return;
		}
	}
}

void tw_sub_repair_input(struct tw_sub *sub)
{
	struct tw_sub_channel *channel = sub->reply_channel;
	struct tw_dgram dgram;

	if (!tw_repair_next_dgram(channel->repair, &dgram)) {
		sub->reply_channel = NULL;
		tw_sub_repair_refresh(sub, channel);
		return;
	}
	(void)tw_arb_repair(channel->arb, &dgram, sub->reply_ns, sub->now_ns);
	sub->pulling = channel;
}

uint64_t tw_sub_repair_sleep_ns(const struct tw_sub *sub, uint64_t now_ns)
{
	uint64_t sleep_ns = UINT64_MAX;

	for (uint32_t i = 0; i < sub->channel_count; i++) {
		const struct tw_sub_channel *channel = &sub->channels[i];
		if (!channel->repairing) {
			continue;
		}
		uint64_t next_ns = tw_repair_next_ns(channel->repair);
		uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
		/* a reply wakes nobody: the sockets of the lines are what is slept on */
		if (tw_repair_outstanding(channel->repair) != 0 && wait_ns > TW_SUB_REPLY_NS) {
			wait_ns = TW_SUB_REPLY_NS;
		}
		sleep_ns = wait_ns < sleep_ns ? wait_ns : sleep_ns;
	}
	return sleep_ns;
}
