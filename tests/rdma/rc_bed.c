/* Both ends of repair over RC for tests: see rc_bed.h. */
#include "tests/rdma/rc_bed.h"

#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/words.h"
#include "tests/support/bus_msgs.h"
#include "wire/datagram.h"

#define UNIT TW_WIRE_UNIT_BYTES

static const struct rc_bed *open_bed;

static void show(const char *name, const struct tw_counters *counters, unsigned int count)
{
	printf("%s:", name);
	for (unsigned int i = 0; i < count; i++) {
		printf(" %llu", (unsigned long long)tw_counter_get(counters, i));
	}
	printf("\n");
}

void rc_die(const char *what)
{
	printf("FAILED: %s\n", what);
	if (open_bed != NULL) { /* in the order of base/counters_table.h */
		show("server", &open_bed->server_counters, TW_N_read_server_counters);
		show("reader", &open_bed->reader_counters, TW_N_reader_counters);
	}
	(void)fflush(stdout);
	_Exit(2);
}

void rc_pause(void)
{
	(void)sched_yield();
}

static void must(int rc, const struct tw_error *err)
{
	if (rc < 0) {
		rc_die(err->text);
	}
}

/* --- histories ----------------------------------------------------------------------------------- */

static uint64_t salt_of(const struct rc_channel *channel, uint64_t session, uint32_t publisher)
{
	return session * 1000 + publisher * 10 + channel->id;
}

struct source {
	struct rc_channel *channel;
	uint64_t end_seq;
};

static int give(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	struct rc_channel *channel = source->channel;
	*batch = (struct tw_bus_batch){ .first_seq = channel->next_seq };
	while (channel->next_seq < source->end_seq) {
		uint64_t msg[TW_MSG_MAX_BYTES / 8];
		uint64_t salt = salt_of(channel, channel->session, channel->publisher);
		uint32_t len = test_msg_make(msg, channel->next_seq, salt);
		if (batch->bytes + len > max_bytes) {
			break;
		}
		tw_words_put((uint8_t *)dst + batch->bytes, msg, len);
		batch->bytes += len;
		batch->count++;
		channel->next_seq++;
	}
	return (int)batch->count;
}

static void remember(struct rc_channel *channel, const struct tw_pack_dgram *dgram)
{
	struct tw_wire_hdr hdr;
	memcpy(&hdr, dgram->data, sizeof(hdr));
	channel->places[hdr.packet_seq % RC_PLACES] =
		(struct rc_place){ .packet_seq = hdr.packet_seq,
				   .log_pos = hdr.log_pos,
				   .units = dgram->len_bytes / UNIT,
				   .first_msg_seq = hdr.first_msg_seq,
				   .end_msg_seq = hdr.first_msg_seq + hdr.msg_count };
	channel->newest = hdr.packet_seq;
}

void rc_write(struct rc_channel *channel, uint32_t dgrams)
{
	for (uint32_t i = 0; i < dgrams; i++) {
		struct tw_pack_dgram out;
		struct source source = { .channel = channel,
					 .end_seq = channel->next_seq + 1 +
						    test_mix(channel->next_seq) % 12 };
		RC_MUST(tw_pack_poll(&channel->pack, give, &source, 0, 1, &out, 1) == 1);
		remember(channel, &out);
		const struct rc_place *place = &channel->places[channel->newest % RC_PLACES];
		tw_history_index_note(&channel->index, place->log_pos, place->first_msg_seq);
		tw_history_publish(&channel->history);
		tw_history_complete(&channel->history, out.end_pos);
	}
}

void rc_begin(struct rc_channel *channel, uint64_t session, uint32_t publisher)
{
	struct tw_pack_conf conf = { .channel = channel->id,
				     .environment = RC_ENV,
				     .session = session,
				     .publisher = publisher,
				     .mtu_bytes = RC_MTU,
				     .first_msg_seq = 1,
				     .heartbeat_min_ns = 1,
				     .heartbeat_max_ns = 1 };
	channel->session = session;
	channel->publisher = publisher;
	channel->next_seq = 1;
	channel->newest = 0;
	RC_MUST(tw_history_init(&channel->history, channel->slab.base, (RC_UNITS + 1) * UNIT,
				RC_MTU, session, publisher) == TW_OK);
	tw_history_index_begin(&channel->index);
	tw_pack_init(&channel->pack, &conf, &channel->history, 0);
	rc_write(channel, 400);
}

static void open_channel(struct rc_channel *channel, uint16_t id)
{
	struct tw_error err;
	channel->id = id;
	must(tw_slab_init(&channel->slab, (RC_UNITS + 1) * UNIT, &err), &err);
	RC_MUST(tw_history_view_make(&channel->view, channel->slab.base, (RC_UNITS + 1) * UNIT,
				     RC_MTU) == TW_OK);
	uint64_t marks = tw_history_index_marks(RC_UNITS);
	RC_MUST(marks <= sizeof(channel->marks) / sizeof(channel->marks[0]));
	tw_history_index_init(&channel->index, channel->marks, marks);
}

struct tw_read rc_range(const struct rc_channel *channel, uint64_t packet_seq, uint32_t count)
{
	const struct rc_place *first = &channel->places[packet_seq % RC_PLACES];
	const struct rc_place *last = &channel->places[(packet_seq + count - 1) % RC_PLACES];
	return (struct tw_read){ .channel = channel->id,
				 .session = channel->session,
				 .publisher = channel->publisher,
				 .begin = first->log_pos,
				 .end = last->log_pos + last->units };
}

static bool dgram_is_whole(const struct rc_channel *channel, const struct tw_read *read,
			   const uint8_t *at, uint32_t left_bytes, uint32_t *bytes)
{
	struct tw_wire_hdr hdr;
	struct tw_dgram d;
	if (left_bytes < sizeof(hdr)) {
		return false;
	}
	memcpy(&hdr, at, sizeof(hdr));
	*bytes = (TW_WIRE_HDR_BYTES + hdr.payload_bytes + UNIT - 1) / UNIT * UNIT;
	if (*bytes > left_bytes || tw_dgram_parse(&d, at, *bytes) != TW_DGRAM_OK ||
	    hdr.session != read->session || hdr.channel != channel->id) {
		return false;
	}
	const uint8_t *msg = d.msgs;
	for (uint64_t seq = hdr.first_msg_seq; seq < d.end_seq; seq++) {
		if (!test_msg_is(msg, seq, salt_of(channel, hdr.session, hdr.publisher))) {
			return false;
		}
		msg += test_msg_bytes(seq);
	}
	return true;
}

/* By position the units that were skipped at the end of the log are in it, with whatever they hold. */
bool rc_is_whole(const struct rc_channel *channel, const struct tw_read *read, const uint8_t *data,
		 uint32_t len_bytes)
{
	uint32_t bytes;
	uint32_t found = 0;
	for (uint32_t at = 0; at < len_bytes; at += bytes) {
		struct tw_wire_hdr hdr;
		uint64_t pos = read->begin + at / UNIT;
		memcpy(&hdr, data + at, sizeof(hdr));
		bytes = UNIT;
		if (!read->by_seq && pos % RC_UNITS + RC_MTU / UNIT > RC_UNITS) {
			continue; /* no datagram begins where the largest would not fit */
		}
		if (!dgram_is_whole(channel, read, data + at, len_bytes - at, &bytes) ||
		    (!read->by_seq && hdr.log_pos != pos)) {
			return false;
		}
		found++;
	}
	return found > 0;
}

/* --- the bed ------------------------------------------------------------------------------------- */

void rc_bed_open(struct rc_bed *bed, uint32_t addr)
{
	struct tw_error err;
	memset(bed, 0, sizeof(*bed));
	bed->addr = addr;
	tw_clock_init();
	must(tw_stats_create(&bed->stats, NULL, "bed", "test", &err), &err);
	must(tw_stats_add(bed->stats, TW_SET_read_server, "s", &bed->server_counters, &err), &err);
	for (uint32_t i = 0; i < RC_CLIENTS; i++) {
		must(tw_stats_add(bed->stats, TW_SET_read_client, "c", &bed->client_counters[i],
				  &err),
		     &err);
	}
	must(tw_stats_add(bed->stats, TW_SET_reader, "r", &bed->reader_counters, &err), &err);
	must(tw_stats_seal(bed->stats, &err), &err);
	open_bed = bed;
	for (uint16_t i = 0; i < RC_CHANNELS; i++) {
		open_channel(&bed->channels[i], i + 1);
		rc_begin(&bed->channels[i], 70 + i, 1);
	}
}

void rc_bed_close(struct rc_bed *bed)
{
	tw_read_server_close(bed->server);
	for (uint16_t i = 0; i < RC_CHANNELS; i++) {
		tw_slab_fini(&bed->channels[i].slab);
	}
	open_bed = NULL;
	tw_stats_close(bed->stats, true);
}

static int read_history(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	struct rc_channel *channel = ctx;
	return read->by_seq ? tw_history_read_msgs(&channel->view, &channel->index, read->session,
						   read->begin, read->end, dst, max_bytes)
			    : tw_history_read(&channel->view, read->session, read->publisher,
					      read->begin, read->end, dst, max_bytes);
}

struct tw_read_server_conf rc_server_conf(struct rc_bed *bed)
{
	return (struct tw_read_server_conf){
		.addr = bed->addr,
		.port = bed->port,
		.environment = RC_ENV,
		.max_clients = RC_CLIENTS,
		.idle_timeout_ns = 20000 * RC_MS,
		.tos = 106,
		.cpu = -1,
		.counters = bed->server_counters,
		.clients = bed->client_counters,
	};
}

void rc_serve(struct rc_bed *bed, struct tw_read_server_conf conf, bool one_sided)
{
	struct tw_read_server_channel channels[RC_CHANNELS];
	struct tw_error err;
	for (uint32_t i = 0; i < RC_CHANNELS; i++) {
		channels[i] = (struct tw_read_server_channel){
			.channel = bed->channels[i].id,
			.read = read_history,
			.ctx = &bed->channels[i],
			.memory = one_sided ? bed->channels[i].slab.base : NULL,
			.memory_bytes = (RC_UNITS + 1) * UNIT,
			.readers = i == 2 ? 9 : 0,
		};
	}
	conf.channels = channels;
	conf.channel_count = RC_CHANNELS;
	must(tw_rc_read_server_open(&bed->server, &conf, &err), &err);
	bed->port = tw_read_server_port(bed->server);
}

struct tw_reader *rc_reader(struct rc_bed *bed, const char *name)
{
	struct tw_reader_server at = { .addr = bed->addr, .port = bed->port };
	struct tw_reader *reader;
	struct tw_error err;
	struct tw_reader_conf conf = { .servers = &at,
				       .server_count = 1,
				       .environment = RC_ENV,
				       .slots = 16,
				       .connect_timeout_ns = 20000 * RC_MS,
				       .retry_min_ns = RC_MS,
				       .retry_max_ns = 100 * RC_MS,
				       .idle_timeout_ns = 20000 * RC_MS,
				       .tos = 106,
				       .cpu = -1,
				       .counters = &bed->reader_counters };
	(void)snprintf(conf.name, sizeof(conf.name), "%s", name);
	must(tw_rc_reader_open(&reader, &conf, &err), &err);
	return reader;
}

void rc_wait_up(struct tw_reader *reader, bool up)
{
	RC_UNTIL((tw_reader_up(reader) != 0) == up);
}

void rc_read(struct tw_reader *reader, const struct tw_read *read, struct tw_read_done *done)
{
	RC_MUST(tw_reader_post(reader, read));
	RC_UNTIL(tw_reader_poll(reader, done));
	RC_MUST(done->id == read->id && done->channel == read->channel);
}

/* --- the raw client ------------------------------------------------------------------------------ */

bool rc_raw_connect(struct rc_raw *raw, const struct rc_bed *bed, uint16_t channel)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(bed->port),
				   .sin_addr.s_addr = htonl(bed->addr) };
	struct tw_rc_hello_head hello;
	memset(raw, 0, sizeof(*raw));
	RC_MUST(rdma_create_id(NULL, &raw->id, NULL, RDMA_PS_TCP) == 0);
	/* rdma_cm's own is seconds: a peer that has gone is found out at once here */
	uint8_t ack_timeout = 12;
	RC_MUST(rdma_set_option(raw->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
				sizeof(ack_timeout)) == 0);
	RC_MUST(rdma_resolve_addr(raw->id, NULL, (struct sockaddr *)&sin, 10000) == 0);
	RC_MUST(rdma_resolve_route(raw->id, 10000) == 0);
	raw->pd = ibv_alloc_pd(raw->id->verbs);
	raw->cq = ibv_create_cq(raw->id->verbs, 64, NULL, NULL, 0);
	raw->memory = aligned_alloc(4096, RAW_BYTES);
	RC_MUST(raw->pd != NULL && raw->cq != NULL && raw->memory != NULL);
	raw->mr = ibv_reg_mr(raw->pd, raw->memory, RAW_BYTES, IBV_ACCESS_LOCAL_WRITE);
	RC_MUST(raw->mr != NULL);
	struct ibv_qp_init_attr init = { .send_cq = raw->cq,
					 .recv_cq = raw->cq,
					 .cap = { .max_send_wr = 32,
						  .max_recv_wr = 32,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	RC_MUST(rdma_create_qp(raw->id, raw->pd, &init) == 0);
	tw_rc_put_hello(&hello, channel);
	struct rdma_conn_param param = { .private_data = &hello,
					 .private_data_len = sizeof(hello),
					 .initiator_depth = 4,
					 .retry_count = 4, /* rxe takes 7 for ever */
					 .rnr_retry_count = 6 };
	raw->connected = rdma_connect(raw->id, &param) == 0;
	return raw->connected;
}

void rc_raw_die(struct rc_raw *raw)
{
	rdma_destroy_qp(raw->id);
	raw->connected = false;
}

void rc_raw_close(struct rc_raw *raw)
{
	if (raw->connected) { /* else it would wait for ever for an event */
		(void)rdma_disconnect(raw->id);
	}
	if (raw->id->qp != NULL) {
		rdma_destroy_qp(raw->id);
	}
	(void)ibv_destroy_cq(raw->cq);
	(void)ibv_dereg_mr(raw->mr);
	(void)ibv_dealloc_pd(raw->pd);
	(void)rdma_destroy_id(raw->id);
	free(raw->memory);
}

enum ibv_wc_status rc_raw_wait(struct rc_raw *raw, struct ibv_wc *wc)
{
	RC_UNTIL(ibv_poll_cq(raw->cq, 1, wc) == 1);
	return wc->status;
}

bool rc_raw_receive(struct rc_raw *raw, uint64_t wr_id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)raw->memory,
			       .length = RAW_BYTES / 2,
			       .lkey = raw->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	return ibv_post_recv(raw->id->qp, &wr, &bad) == 0;
}

bool rc_raw_send(struct rc_raw *raw, const void *data, uint32_t bytes)
{
	memcpy(raw->memory + RAW_BYTES / 2, data, bytes);
	struct ibv_sge sge = { .addr = (uintptr_t)raw->memory + RAW_BYTES / 2,
			       .length = bytes,
			       .lkey = raw->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND
	};
	struct ibv_send_wr *bad;
	return ibv_post_send(raw->id->qp, &wr, &bad) == 0;
}

void rc_raw_ask_login(struct rc_raw *raw, const char *name)
{
	struct tw_rw_login_head head;
	tw_rw_put_login(&head, RC_ENV, name);
	RC_MUST(rc_raw_receive(raw, 2) && rc_raw_send(raw, &head, sizeof(head)));
}

bool rc_raw_is_answered(struct rc_raw *raw)
{
	struct ibv_wc wc;
	bool answered = false;
	while (ibv_poll_cq(raw->cq, 1, &wc) == 1) {
		answered |= wc.status == IBV_WC_SUCCESS && wc.wr_id == 2;
	}
	return answered;
}

enum tw_rw_login rc_raw_login(struct rc_raw *raw, const char *name)
{
	enum tw_rw_login result;
	struct ibv_wc wc;
	uint32_t bytes = 0;
	rc_raw_ask_login(raw, name);
	for (int i = 0; i < 2; i++) {
		RC_MUST(rc_raw_wait(raw, &wc) == IBV_WC_SUCCESS);
		bytes = wc.wr_id == 2 ? wc.byte_len : bytes;
	}
	RC_MUST(tw_rc_parse_login_reply(raw->memory, bytes, RC_ENV, &result, raw->grants,
					&raw->grant_count) == TW_RW_WELL_FORMED);
	return result;
}

const struct tw_rc_grant *rc_raw_grant(const struct rc_raw *raw, uint16_t channel)
{
	for (uint32_t i = 0; i < raw->grant_count; i++) {
		if (raw->grants[i].channel == channel) {
			return &raw->grants[i];
		}
	}
	return NULL;
}

enum ibv_wc_status rc_raw_rdma(struct rc_raw *raw, enum ibv_wr_opcode opcode, uint64_t addr,
			       uint32_t rkey, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = (uintptr_t)raw->memory,
			       .length = bytes,
			       .lkey = raw->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .wr.rdma = { .remote_addr = addr, .rkey = rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	memset(raw->memory, 0, bytes);
	RC_MUST(ibv_post_send(raw->id->qp, &wr, &bad) == 0);
	return rc_raw_wait(raw, &wc);
}
