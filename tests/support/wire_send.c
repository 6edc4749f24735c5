/* Sends or receives datagrams over a transport, for tests that look at the wire.
 *
 * usage: tw-test-wire-send send|receive OPTION=VALUE ...
 *   a=ADDR b=ADDR            interface addresses of the lines (b: optional)
 *   group_a=ADDR group_b=ADDR
 *   gso=auto|on|off count=N size=BYTES batch=N mtu=BYTES tos=N ttl=N publisher=N
 *   transport=udp|verbs extended=0|1
 *   limit_ms=N               receive: gives up after so long
 * Prints `ready` once everything is open.  send then waits for a line (or the end) of its input, so
 * that the caller can change the network in between, posts, and prints the counters of each line;
 * receive goes on until `count` datagrams have come on line a, and prints what it counted. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/fabric.h"
#include "tidewire/wire.h"

struct options {
	bool receive, verbs;
	struct tw_fabric_conf conf;
	uint32_t groups[TW_FABRIC_MAX_LINES];
	uint32_t count, size_bytes, batch, publisher, limit_ms;
};

static _Atomic uint64_t
	values[TW_FABRIC_MAX_LINES][(int)TW_N_pub_line_counters > (int)TW_N_sub_line_counters
					    ? (int)TW_N_pub_line_counters
					    : (int)TW_N_sub_line_counters];

static int fail(const struct tw_error *err)
{
	fprintf(stderr, "tw-test-wire-send: %s\n", err->text);
	return tw_exit_status(err->code);
}

static bool parse_address(const char *text, uint32_t *out)
{
	struct in_addr addr;
	if (inet_pton(AF_INET, text, &addr) != 1) {
		return false;
	}
	*out = ntohl(addr.s_addr);
	return true;
}

static bool parse_number(const char *text, uint32_t max, uint32_t *out)
{
	char *end;
	const unsigned long v = strtoul(text, &end, 0);
	if (end == text || *end != '\0' || v > max) {
		return false;
	}
	*out = (uint32_t)v;
	return true;
}

static bool parse_option(struct options *o, const char *key, const char *value)
{
	uint32_t small;
	if (strcmp(key, "a") == 0) {
		return parse_address(value, &o->conf.lines[0].address);
	} else if (strcmp(key, "b") == 0) {
		return parse_address(value, &o->conf.lines[1].address);
	} else if (strcmp(key, "group_a") == 0) {
		return parse_address(value, &o->groups[0]);
	} else if (strcmp(key, "group_b") == 0) {
		return parse_address(value, &o->groups[1]);
	} else if (strcmp(key, "gso") == 0) {
		o->conf.gso = strcmp(value, "on") == 0    ? TW_GSO_ON
			      : strcmp(value, "off") == 0 ? TW_GSO_OFF
							  : TW_GSO_AUTO;
		return true;
	} else if (strcmp(key, "transport") == 0) {
		o->verbs = strcmp(value, "verbs") == 0;
		return o->verbs || strcmp(value, "udp") == 0;
	} else if (strcmp(key, "extended") == 0 && parse_number(value, 1, &small)) {
		o->conf.extended_completions = small != 0;
		return true;
	} else if (strcmp(key, "count") == 0) {
		return parse_number(value, 1u << 30, &o->count);
	} else if (strcmp(key, "size") == 0) {
		return parse_number(value, TW_WIRE_DGRAM_MAX_BYTES, &o->size_bytes);
	} else if (strcmp(key, "batch") == 0) {
		return parse_number(value, TW_TX_BATCH, &o->batch) && o->batch > 0;
	} else if (strcmp(key, "mtu") == 0) {
		return parse_number(value, UINT32_MAX, &o->conf.mtu_bytes);
	} else if (strcmp(key, "publisher") == 0) {
		return parse_number(value, UINT32_MAX, &o->publisher);
	} else if (strcmp(key, "limit_ms") == 0) {
		return parse_number(value, 1u << 30, &o->limit_ms);
	} else if (strcmp(key, "tos") == 0 && parse_number(value, 255, &small)) {
		o->conf.tos = (uint8_t)small;
		return true;
	} else if (strcmp(key, "ttl") == 0 && parse_number(value, 255, &small)) {
		o->conf.ttl = (uint8_t)small;
		return true;
	}
	return false;
}

static int parse(struct options *o, int argc, char **argv)
{
	memset(o, 0, sizeof(*o));
	o->conf.mtu_bytes = 1024;
	o->conf.ttl = 8;
	o->conf.partition_key = 0xffff;
	o->conf.rcvbuf_bytes = 4u << 20;
	o->count = 100;
	o->size_bytes = 1024;
	o->batch = TW_TX_BATCH;
	o->publisher = 1;
	o->limit_ms = 10000;
	if (argc < 2 || (strcmp(argv[1], "send") != 0 && strcmp(argv[1], "receive") != 0)) {
		return -1;
	}
	o->receive = argv[1][0] == 'r';
	for (int i = 2; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		if (value == NULL) {
			return -1;
		}
		*value++ = '\0';
		if (!parse_option(o, argv[i], value)) {
			fprintf(stderr, "tw-test-wire-send: %s=%s\n", argv[i], value);
			return -1;
		}
	}
	return o->size_bytes > 0 && o->size_bytes % 4 == 0 && o->size_bytes <= o->conf.mtu_bytes
		       ? 0
		       : -1;
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

static int send_all(const struct options *o)
{
	static uint8_t memory[TW_TX_BATCH][TW_WIRE_DGRAM_MAX_BYTES];
	const struct tw_tx_endpoint ep = { .groups = { o->groups[0], o->groups[1] },
					   .publisher = o->publisher,
					   .counters = { { values[0], NULL },
							 { values[1], NULL } } };
	struct tw_tx *tx;
	struct tw_error err;
	if (tw_tx_open(&tx, o->verbs, &o->conf, &ep, 1, &err) != TW_OK) {
		return fail(&err);
	}
	ready();
	(void)getchar();
	for (uint32_t seq = 0; seq < o->count;) {
		struct tw_tx_dgram dgrams[TW_TX_BATCH];
		unsigned int n = 0;
		for (; n < o->batch && seq < o->count; n++, seq++) {
			for (uint32_t i = 0; i < o->size_bytes; i++) {
				memory[n][i] = (uint8_t)(seq * 7 + i);
			}
			dgrams[n] = (struct tw_tx_dgram){ .data = memory[n],
							  .len_bytes = o->size_bytes };
		}
		tw_tx_post(tx, 0, dgrams, n);
	}
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (o->groups[l] != 0) {
			printf("line %c datagrams %llu skipped %llu errors %llu\n", 'a' + (int)l,
			       (unsigned long long)values[l][TW_PUB_LINE_datagrams],
			       (unsigned long long)values[l][TW_PUB_LINE_skipped],
			       (unsigned long long)values[l][TW_PUB_LINE_errors]);
		}
	}
	tw_tx_close(tx);
	return 0;
}

static int receive_all(const struct options *o)
{
	const struct tw_rx_endpoint ep = { .group = o->groups[0], .counters = { values[0], NULL } };
	struct tw_rx *rx;
	struct tw_error err;
	if (tw_rx_open(&rx, o->verbs, &o->conf, &ep, 1, &err) != TW_OK) {
		return fail(&err);
	}
	ready();
	const uint64_t limit_ns = tw_mono_ns() + o->limit_ms * 1000000ull;
	struct tw_rx_dgram out[TW_RX_BATCH];
	uint32_t received = 0, wrong = 0;
	while (received < o->count && tw_mono_ns() < limit_ns) {
		const int n = tw_rx_poll(rx, 0, out, TW_RX_BATCH);
		if (n < 0 || (n == 0 && tw_rx_wait(rx, 10000000) < 0)) {
			fputs("tw-test-wire-send: receive failed\n", stderr);
			break;
		}
		for (int i = 0; i < n; i++, received++) {
			wrong += out[i].len_bytes != o->size_bytes ||
				 out[i].data[0] != (uint8_t)(received * 7) ||
				 out[i].data[o->size_bytes - 1] !=
					 (uint8_t)(received * 7 + o->size_bytes - 1);
		}
	}
	printf("received %u wrong %u icrc_bad %llu foreign_frames %llu\n", received, wrong,
	       (unsigned long long)values[0][TW_SUB_LINE_icrc_bad],
	       (unsigned long long)values[0][TW_SUB_LINE_foreign_frames]);
	tw_rx_close(rx);
	return 0;
}

int main(int argc, char **argv)
{
	struct options o;
	if (parse(&o, argc, argv) != 0) {
		fputs("usage: tw-test-wire-send send|receive a=ADDR group_a=ADDR ...\n", stderr);
		return 64;
	}
	return o.receive ? receive_all(&o) : send_all(&o);
}
