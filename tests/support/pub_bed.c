/* A test's own publisher on `lo`: see pub_bed.h. */
#include "tests/support/pub_bed.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "config/config.h"
#include "wire/datagram.h"

#define GROUPS_BASE 0xefc00000u /* 239.192.0.0/14, organization-local */
#define GROUPS_MASK 0x0003fffcu

static void dotted(uint32_t address, char out[16])
{
	snprintf(out, 16, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255,
		 address & 255);
}

static void write_channels(const struct pub_bed *bed, const struct pub_bed_conf *conf, FILE *f)
{
	char a[16], b[16];

	fputs("channels:\n", f);
	for (uint32_t c = 0; c < conf->channels; c++) {
		dotted(bed->groups[c][0], a);
		dotted(bed->groups[c][1], b);
		fprintf(f,
			"  - { id: %u, name: channel-%u, depth: %s, groups: { a: %s, b: %s } }\n",
			c + 1, c + 1, conf->depth != NULL ? conf->depth : "orders", a, b);
	}
}

static void write_host(const struct pub_bed_conf *conf, FILE *f)
{
	char a[16], b[16];

	if (conf->verbs == NULL) {
		fputs("hosts:\n  here: { address: 127.0.0.1, lines: { a: lo, b: lo } }\n", f);
		return;
	}
	dotted(conf->verbs[0].address, a);
	dotted(conf->verbs[1].address, b);
	fprintf(f,
		"hosts:\n  here: { address: %s, lines: { a: %s, b: %s }, addresses: { b: %s } }\n",
		a, conf->verbs[0].interface, conf->verbs[1].interface, b);
}

static bool write_site(const struct pub_bed *bed, const struct pub_bed_conf *conf)
{
	FILE *f = fopen(bed->site, "we");

	if (f == NULL) {
		return false;
	}
	fprintf(f, "site: %s\nenvironment: test\nrun_dir: %s\nidle: %s\n", bed->name, bed->run_dir,
		conf->idle != NULL ? conf->idle : "yield");
	fprintf(f, "fabric: { transport: %s, mtu_bytes: %u }\n",
		conf->verbs != NULL ? "verbs" : "udp", PUB_BED_MTU_BYTES);
	write_host(conf, f);
	if (conf->address != NULL) {
		fprintf(f, "  there: { address: %s, lines: { a: eth0, b: eth1 } }\n",
			conf->address);
	}
	fputs("venues:\n  - { id: 1, mic: XTST }\n", f);
	write_channels(bed, conf, f);
	fprintf(f, "publishers:\n  - { name: pub, host: %s, channels: [1%s]",
		conf->address != NULL ? "there" : "here",
		conf->channels == 2 && conf->repair_port_2 == 0 ? ", 2" : "");
	if (conf->repair_port != 0) {
		fprintf(f, ", repair_port: %u", conf->repair_port);
	}
	if (conf->heartbeat_ms != 0) {
		fprintf(f, ", heartbeat_ms: %u, history_ms: %u", conf->heartbeat_ms,
			4 * conf->heartbeat_ms);
	}
	fputs(" }\n", f);
	if (conf->repair_port_2 != 0) {
		fprintf(f, "  - { name: pub2, host: here, channels: [2], repair_port: %u }\n",
			conf->repair_port_2);
	}
	fprintf(f, "subscriber: { wait_us: %u, store_datagrams: %u%s }\n", conf->wait_us,
		conf->store_datagrams != 0 ? conf->store_datagrams : 64,
		conf->subscriber != NULL ? conf->subscriber : "");
	if (conf->fault != NULL) {
		fprintf(f, "fault:\n%s", conf->fault);
	}
	return fclose(f) == 0;
}

/* The groups are 16 bits: of thousands of beds some run beside another one of the same groups.  What that sends
 * is of another environment, which comes of the site's name. */
static bool draw(struct pub_bed *bed)
{
	uint32_t random[2];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		return false;
	}
	for (uint32_t i = 0; i < 2 * PUB_BED_CHANNELS; i++) {
		bed->groups[i / 2][i % 2] = GROUPS_BASE | (random[0] & GROUPS_MASK) | i;
	}
	snprintf(bed->name, sizeof(bed->name), "bed-%08x", random[1]);
	return true;
}

static bool read_environment(struct pub_bed *bed)
{
	struct tw_error err;
	struct tw_site *site;

	if (tw_site_load(&site, bed->site, &err) < 0) {
		fprintf(stderr, "pub_bed: %s\n", err.text);
		return false;
	}
	bed->environment = site->environment_id;
	tw_site_free(site);
	return true;
}

/* Endpoint 3 * channel + lines. */
static bool open_tx(struct pub_bed *bed, const struct tw_fabric_line *verbs)
{
	struct tw_fabric_conf conf = {
		.mtu_bytes = PUB_BED_MTU_BYTES,
		.ttl = 1,
		.rcvbuf_bytes = 1u << 20,
		.partition_key = 0xffff,
		.lines = { { .address = 0x7f000001u, .interface = "lo" },
			   { .address = 0x7f000001u, .interface = "lo" } },
	};
	struct tw_tx_endpoint endpoints[3 * PUB_BED_CHANNELS] = { 0 };
	struct tw_error err;

	if (verbs != NULL) {
		memcpy(conf.lines, verbs, sizeof(conf.lines));
	}
	if (tw_stats_create(&bed->stats, NULL, "bed", "test", &err) < 0) {
		return false;
	}
	for (uint32_t e = 0; e < 3 * PUB_BED_CHANNELS; e++) {
		endpoints[e].publisher = 1;
		for (uint32_t l = 0; l < 2; l++) {
			if (e % 3 == PUB_BED_BOTH || e % 3 == 1 + l) {
				endpoints[e].groups[l] = bed->groups[e / 3][l];
			}
			if (tw_stats_add(bed->stats, TW_SET_pub_line, "line",
					 &endpoints[e].counters[l], &err) < 0) {
				return false;
			}
		}
	}
	if (tw_stats_seal(bed->stats, &err) < 0 ||
	    tw_tx_open(&bed->tx, verbs != NULL, &conf, endpoints, 3 * PUB_BED_CHANNELS, &err) < 0) {
		fprintf(stderr, "pub_bed: %s\n", err.text);
		return false;
	}
	return true;
}

bool pub_bed_open(struct pub_bed *bed, const struct pub_bed_conf *conf)
{
	memset(bed, 0, sizeof(*bed));
	if (!temp_dir_make(&bed->dir)) {
		return false;
	}
	snprintf(bed->site, sizeof(bed->site), "%s/site.yaml", bed->dir.path);
	snprintf(bed->run_dir, sizeof(bed->run_dir), "%s", bed->dir.path);
	tw_clock_init();
	return draw(bed) && write_site(bed, conf) && read_environment(bed) &&
	       open_tx(bed, conf->verbs);
}

void pub_bed_close(struct pub_bed *bed)
{
	tw_tx_close(bed->tx);
	tw_stats_close(bed->stats, true);
	temp_dir_remove(&bed->dir);
}

int pub_bed_subscribe(const struct pub_bed *bed, const char *name, struct tw_sub **sub_p,
		      struct tw_error *err)
{
	struct tw_sub_conf conf;

	tw_sub_conf_init(&conf);
	conf.site_path = bed->site;
	conf.as = "here";
	conf.name = name;
	return tw_sub_open(sub_p, &conf, err);
}

void pub_dgram_begin(struct pub_dgram *d, const struct pub_bed *bed, uint64_t session,
		     uint64_t first_msg_seq)
{
	memset(d, 0, sizeof(*d));
	*pub_dgram_hdr(d) = (struct tw_wire_hdr){
		.magic = TW_WIRE_MAGIC,
		.version_major = TW_WIRE_MAJOR,
		.version_minor = TW_WIRE_MINOR,
		.header_bytes = TW_WIRE_HDR_BYTES,
		.channel = 1,
		.environment = bed->environment,
		.session = session,
		.publisher = 1,
		.first_msg_seq = first_msg_seq,
	};
	d->len_bytes = TW_WIRE_HDR_BYTES;
}

void pub_dgram_orders(struct pub_dgram *d, unsigned int n)
{
	struct tw_wire_hdr *hdr = pub_dgram_hdr(d);

	for (unsigned int i = 0; i < n; i++) {
		struct tw_msg_order_add *order = (void *)(d->bytes + d->len_bytes);
		tw_msg_init(order, TW_MSG_ORDER_ADD);
		order->head.venue_id = 1;
		order->head.exchange_ns = tw_wall_ns();
		order->head.recv_delta_ns = 1000;
		order->order_id = hdr->first_msg_seq + hdr->msg_count;
		order->head.instrument_id = (uint32_t)(order->order_id % PUB_BED_INSTRUMENTS);
		order->price = (int64_t)(order->order_id * 1000003u + hdr->session);
		hdr->msg_count++;
		d->len_bytes += (uint32_t)sizeof(*order);
		hdr->payload_bytes = (uint16_t)(d->len_bytes - TW_WIRE_HDR_BYTES);
	}
}

void pub_dgram_heartbeat(struct pub_dgram *d, bool end)
{
	pub_dgram_hdr(d)->flags |= (uint8_t)(TW_WIRE_HEARTBEAT | (end ? TW_WIRE_END : 0));
}

void pub_dgram_hole(struct pub_dgram *d, uint64_t end_msg_seq)
{
	struct tw_wire_hole hole = { .end_msg_seq = end_msg_seq };

	pub_dgram_hdr(d)->flags |= TW_WIRE_HOLE;
	memcpy(d->bytes + d->len_bytes, &hole, sizeof(hole));
	d->len_bytes += (uint32_t)sizeof(hole);
	pub_dgram_hdr(d)->payload_bytes = (uint16_t)sizeof(hole);
}

bool pub_dgram_is_order(const struct tw_event *ev)
{
	const struct tw_msg_order_add *order = (const void *)ev->data;

	return ev->type == TW_EV_MSG && order != NULL && ((uintptr_t)order & 7u) == 0 &&
	       ev->len_bytes == sizeof(*order) && order->head.sbe.template_id == TW_MSG_ORDER_ADD &&
	       order->order_id == ev->seq &&
	       order->price == (int64_t)(ev->seq * 1000003u + ev->session);
}

void pub_bed_send(struct pub_bed *bed, struct pub_dgram *d, enum pub_bed_lines lines)
{
	struct tw_wire_hdr *hdr = pub_dgram_hdr(d);
	uint32_t channel = hdr->channel == 2 ? 1 : 0;
	struct tw_tx_dgram tx = {
		.data = d->bytes,
		.len_bytes = (d->len_bytes + TW_WIRE_UNIT_BYTES - 1) & ~(TW_WIRE_UNIT_BYTES - 1),
	};

	if (hdr->packet_seq == 0) {
		bool heartbeat = (hdr->flags & TW_WIRE_HEARTBEAT) != 0;
		hdr->packet_seq = bed->packets + 1;
		bed->packets += heartbeat ? 0 : 1;
	}
	hdr->send_ns = tw_wall_ns();
	tw_tx_post(bed->tx, 3 * channel + (uint32_t)lines, &tx, 1);
}

void pub_bed_orders(struct pub_bed *bed, uint64_t session, uint64_t first_msg_seq, unsigned int n,
		    enum pub_bed_lines lines)
{
	struct pub_dgram d;

	pub_dgram_begin(&d, bed, session, first_msg_seq);
	pub_dgram_orders(&d, n);
	pub_bed_send(bed, &d, lines);
}
