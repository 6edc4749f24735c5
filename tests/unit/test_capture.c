/* Captures: every format built byte by byte, then recorded ones with their stated counts. */
#include <zlib.h>

#include "feedhandler/frame.h"
#include "tests/support/feed_bytes.h"

#define LINK_NULL     0u
#define LINK_ETHERNET 1u
#define LINK_RAW      101u
#define LINK_SLL      113u
#define LINK_IPV4     228u
#define LINK_SLL2     276u

#define WHEN_NS 1500000000123456789ull

static const struct pcap_kind little_ns = { .big = false, .nano = true };

/* In a block of exactly its size: under ASan one byte read too far ends the test. */
static struct tw_input *open_tape(const struct tape *t, uint8_t **block_p)
{
	struct tw_input *input;
	struct tw_error err = { 0 };
	uint8_t *block = malloc(t->len);
	cr_assert_not_null(block);
	memcpy(block, t->bytes, t->len);
	int rc = tw_input_capture_memory(&input, "tape", block, t->len, &err);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
	*block_p = block;
	return input;
}

/* Runs to the end and gives back how it ended. */
struct totals {
	struct tw_input_counts counts;
	uint64_t udp;
	uint64_t hash; /* of payloads and times */
	int rc;
	struct tw_error err, warning;
};

static uint64_t hash_packet(uint64_t h, const struct tw_packet *packet)
{
	h = (h ^ packet->recv_ns ^ packet->len_bytes) * UINT64_C(0x100000001b3);
	for (uint32_t i = 0; i < packet->len_bytes; i++) {
		h = (h ^ packet->payload[i]) * UINT64_C(0x100000001b3);
	}
	return h;
}

static struct totals drain(struct tw_input *input)
{
	struct totals t = { .rc = 0 };
	struct tw_packet packet;
	while ((t.rc = tw_input_next(input, &packet, &t.err)) >= 0) {
		t.udp += (uint64_t)t.rc;
		t.hash = t.rc == 1 ? hash_packet(t.hash, &packet) : t.hash;
	}
	t.counts = input->counts;
	t.warning = input->warning;
	return t;
}

static uint64_t shown, shown_hash;

static void show(const void *ctx, const struct tw_packet *packet)
{
	(void)ctx;
	cr_assert(packet->shown);
	shown++;
	shown_hash = hash_packet(shown_hash, packet);
}

/* Read twice: packet by packet, and ahead, which must come to the same. */
static struct totals drain_tape(const struct tape *t)
{
	uint8_t *block;
	struct tw_input *input = open_tape(t, &block);
	struct totals totals = drain(input);
	tw_input_close(input);
	free(block);
	input = open_tape(t, &block);
	input->unpaced = true;
	input->show = show;
	shown = 0;
	shown_hash = 0;
	struct totals ahead = drain(input);
	tw_input_close(input);
	free(block);
	cr_assert_eq(ahead.rc, totals.rc);
	cr_assert_str_eq(ahead.err.text, totals.err.text);
	cr_assert_str_eq(ahead.warning.text, totals.warning.text);
	cr_assert_eq(ahead.udp, totals.udp);
	cr_assert_eq(ahead.hash, totals.hash);
	cr_assert_eq(shown, totals.udp);
	cr_assert_eq(shown_hash, totals.hash);
	cr_assert_eq(memcmp(&ahead.counts, &totals.counts, sizeof(totals.counts)), 0);
	return totals;
}

static void refuse_tape(const struct tape *t, const char *text)
{
	struct tw_input *input = (struct tw_input *)(uintptr_t)1;
	struct tw_error err = { 0 };
	int rc = tw_input_capture_memory(&input, "tape", t->bytes, t->len, &err);
	cr_assert_eq(rc, TW_EFORMAT, "%s", err.text);
	cr_assert_null(input);
	cr_assert(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
}

static void put_frame(struct tape *t, const char *payload)
{
	put_ethernet(t, 0x0800);
	put_ipv4_udp(t, payload, strlen(payload), 0, 0);
}

Test(capture, pcap_in_both_orders_and_precisions, .timeout = 60)
{
	for (unsigned int i = 0; i < 4; i++) {
		struct pcap_kind kind = { .big = (i & 1) != 0, .nano = (i & 2) != 0 };
		struct tape frame = { .len = 0 };
		struct tape file = { .len = 0 };
		put_frame(&frame, "hello");
		put_pcap_header(&file, kind, LINK_ETHERNET);
		put_pcap_packet(&file, kind, WHEN_NS, frame.bytes, frame.len, frame.len);
		uint8_t *block;
		struct tw_input *input = open_tape(&file, &block);
		struct tw_packet packet;
		struct tw_error err = { 0 };
		cr_assert(input->waits);
		cr_assert_eq(tw_input_next(input, &packet, &err), 1, "kind %u: %s", i, err.text);
		cr_assert_eq(packet.len_bytes, 5);
		cr_assert_eq(memcmp(packet.payload, "hello", 5), 0);
		cr_assert_eq(packet.recv_ns, kind.nano ? WHEN_NS : WHEN_NS / 1000 * 1000);
		cr_assert_eq(packet.src_addr, 0x17e29b84);
		cr_assert_eq(packet.dst_addr, 0xe9d71501);
		cr_assert_eq(packet.src_port, 5001);
		cr_assert_eq(packet.dst_port, 10378);
		cr_assert_eq(tw_input_next(input, &packet, &err), TW_ECLOSED);
		cr_assert_eq(input->warning.code, TW_OK);
		cr_assert_eq(input->counts.packets, 1);
		cr_assert_eq(input->counts.bytes, frame.len);
		tw_input_close(input);
		free(block);
	}
}

static void put_pcapng_block(struct tape *t, uint32_t type, const struct tape *body)
{
	size_t padded = (body->len + 3) / 4 * 4;
	put_le(t, type, 4);
	put_le(t, padded + 12, 4);
	put(t, body->bytes, body->len);
	put_le(t, 0, (unsigned int)(padded - body->len));
	put_le(t, padded + 12, 4);
}

static void put_pcapng(struct tape *t, const struct tape *frame)
{
	struct tape section = { .len = 0 };
	put_le(&section, 0x1a2b3c4d, 4);
	put_le(&section, 1, 2);
	put_le(&section, 0, 2);
	put_le(&section, UINT64_MAX, 8);
	put_pcapng_block(t, 0x0a0d0d0a, &section);

	struct tape interface = { .len = 0 };
	put_le(&interface, LINK_ETHERNET, 2);
	put_le(&interface, 0, 2);
	put_le(&interface, 0, 4);
	put_le(&interface, 9, 2); /* if_tsresol: 10^-9 */
	put_le(&interface, 1, 2);
	put_le(&interface, 9, 4);
	put_le(&interface, 0, 4); /* end of options */
	put_pcapng_block(t, 1, &interface);

	struct tape packet = { .len = 0 };
	put_le(&packet, 0, 4);
	put_le(&packet, WHEN_NS >> 32, 4);
	put_le(&packet, WHEN_NS & UINT32_MAX, 4);
	put_le(&packet, frame->len, 4);
	put_le(&packet, frame->len, 4);
	put(&packet, frame->bytes, frame->len);
	put_pcapng_block(t, 6, &packet);
}

Test(capture, pcapng, .timeout = 60)
{
	struct tape frame = { .len = 0 };
	struct tape file = { .len = 0 };
	put_frame(&frame, "hello");
	put_pcapng(&file, &frame);
	uint8_t *block;
	struct tw_input *input = open_tape(&file, &block);
	struct tw_packet packet;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_next(input, &packet, &err), 1, "%s", err.text);
	cr_assert_eq(packet.len_bytes, 5);
	cr_assert_eq(packet.recv_ns, WHEN_NS);
	cr_assert_eq(tw_input_next(input, &packet, &err), TW_ECLOSED);
	tw_input_close(input);
	free(block);
}

static void put_gzip(struct tape *out, const void *data, size_t len)
{
	z_stream z = { 0 };
	cr_assert_eq(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (z_const Bytef *)data;
	z.avail_in = (uInt)len;
	z.next_out = out->bytes + out->len;
	z.avail_out = (uInt)(sizeof(out->bytes) - out->len);
	cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	out->len += z.total_out;
	(void)deflateEnd(&z);
}

static void put_capture(struct tape *file, unsigned int packets)
{
	struct tape frame = { .len = 0 };
	put_frame(&frame, "some payload");
	put_pcap_header(file, little_ns, LINK_ETHERNET);
	for (unsigned int i = 0; i < packets; i++) {
		put_pcap_packet(file, little_ns, WHEN_NS + i, frame.bytes, frame.len, frame.len);
	}
}

Test(capture, gzip_of_pcap_and_of_pcapng, .timeout = 60)
{
	struct tape plain = { .len = 0 };
	put_capture(&plain, 1000);
	struct tape zipped = { .len = 0 };
	put_gzip(&zipped, plain.bytes, plain.len);
	struct totals t = drain_tape(&zipped);
	cr_assert_eq(t.rc, TW_ECLOSED, "%s", t.err.text);
	cr_assert_eq(t.udp, 1000);
	cr_assert_eq(t.warning.code, TW_OK, "%s", t.warning.text);

	struct tape frame = { .len = 0 };
	put_frame(&frame, "x");
	plain.len = 0;
	put_pcapng(&plain, &frame);
	zipped.len = 0;
	put_gzip(&zipped, plain.bytes, plain.len);
	cr_assert_eq(drain_tape(&zipped).udp, 1);

	/* two members, as cat makes them, and the zeros of a tape's last block */
	plain.len = 0;
	put_capture(&plain, 10);
	zipped.len = 0;
	put_gzip(&zipped, plain.bytes, 100);
	put_gzip(&zipped, plain.bytes + 100, plain.len - 100);
	put_le(&zipped, 0, 8);
	t = drain_tape(&zipped);
	cr_assert_eq(t.rc, TW_ECLOSED);
	cr_assert_eq(t.udp, 10);
	cr_assert_eq(t.warning.code, TW_OK, "%s", t.warning.text);
}

Test(capture, cut_anywhere_gives_what_is_whole, .timeout = 120)
{
	enum { PACKETS = 5 };
	struct tape plain = { .len = 0 };
	put_capture(&plain, PACKETS);
	const size_t each = (plain.len - 24) / PACKETS;
	for (size_t len = 24; len <= plain.len; len++) {
		struct tape cut = { .len = 0 };
		put(&cut, plain.bytes, len);
		struct totals t = drain_tape(&cut);
		bool between = (len - 24) % each == 0;
		cr_assert_eq(t.rc, TW_ECLOSED, "cut at %zu: %s", len, t.err.text);
		cr_assert_eq(t.udp, (len - 24) / each, "cut at %zu: %lu", len,
			     (unsigned long)t.udp);
		cr_assert_eq(t.warning.code, between ? TW_OK : TW_EFORMAT, "cut at %zu", len);
		cr_assert_eq(t.counts.truncated, between ? 0 : 1, "cut at %zu", len);
	}
	struct tape zipped = { .len = 0 };
	put_gzip(&zipped, plain.bytes, plain.len);
	for (size_t len = 40; len < zipped.len; len++) {
		struct tape cut = { .len = 0 };
		put(&cut, zipped.bytes, len);
		struct tw_input *input;
		struct tw_error err;
		if (tw_input_capture_memory(&input, "cut", cut.bytes, cut.len, &err) != TW_OK) {
			continue; /* not even the file header is whole */
		}
		struct totals t = drain(input);
		tw_input_close(input);
		cr_assert_eq(t.rc, TW_ECLOSED, "cut at %zu: %s", len, t.err.text);
		cr_assert_leq(t.udp, PACKETS);
		cr_assert_eq(t.warning.code, TW_EFORMAT, "cut at %zu of %zu", len, zipped.len);
	}
}

Test(capture, damage_is_told_from_a_cut, .timeout = 60)
{
	struct tape plain = { .len = 0 };
	put_capture(&plain, 3);
	size_t each = (plain.len - 24) / 3;
	memset(plain.bytes + 24 + each + 8, 0xff, 4); /* the second packet's captured length */
	struct totals t = drain_tape(&plain);
	cr_assert_eq(t.rc, TW_EFORMAT, "%s", t.err.text);
	cr_assert_eq(t.udp, 1);

	struct tape noise = { .len = 0 };
	put_capture(&noise, 1000);
	struct tape zipped = { .len = 0 };
	put_gzip(&zipped, noise.bytes, noise.len);
	memset(zipped.bytes + zipped.len - 8, 0x55, 4); /* its CRC */
	t = drain_tape(&zipped);
	cr_assert_eq(t.rc, TW_EFORMAT, "%s", t.err.text);
	cr_assert(strstr(t.err.text, "damaged gzip") != NULL, "%s", t.err.text);
}

Test(capture, what_is_no_capture_is_named, .timeout = 60)
{
	struct tape t = { .len = 0 };
	refuse_tape(&t, "empty");
	put(&t, "symbol,price\n", 13);
	refuse_tape(&t, "not a capture: first bytes 73 79 6d 62 6f 6c 2c 70");
	struct tape zipped = { .len = 0 };
	put_gzip(&zipped, t.bytes, t.len);
	refuse_tape(&zipped, "inside the gzip");
	zipped.len = 0;
	put_gzip(&zipped, "", 0);
	refuse_tape(&zipped, "empty inside the gzip");
	t.len = 0;
	put_hex(&t, "d4 c3 b2");
	refuse_tape(&t, "first bytes d4 c3 b2,");
	t.len = 0;
	put_pcap_header(&t, little_ns, 105);
	refuse_tape(&t, "link type 105 (IEEE802_11)");
	t.len = 0;
	put_pcap_header(&t, little_ns, LINK_ETHERNET);
	t.len = 20;
	refuse_tape(&t, "tape: ");

	struct tw_input *input;
	struct tw_error err = { 0 };
	int rc = tw_input_capture_open(&input, "no/such/file.pcap", &err);
	cr_assert_eq(rc, TW_ENOTFOUND);
	cr_assert(strstr(err.text, "no/such/file.pcap: open: No such file") != NULL, "%s",
		  err.text);
	rc = tw_input_capture_open(&input, "/", &err);
	cr_assert_eq(rc, TW_ESYS, "%s", err.text);
}

/* One frame in a pcap of `link`, captured whole. */
static struct totals one_frame(uint32_t link, const struct tape *frame)
{
	struct tape file = { .len = 0 };
	put_pcap_header(&file, little_ns, link);
	put_pcap_packet(&file, little_ns, WHEN_NS, frame->bytes, frame->len, frame->len);
	return drain_tape(&file);
}

static void assert_one(struct totals t, uint64_t udp, uint64_t foreign, uint64_t malformed,
		       uint64_t truncated, const char *what)
{
	cr_assert_eq(t.rc, TW_ECLOSED, "%s: %s", what, t.err.text);
	cr_assert_eq(t.counts.packets, 1, "%s", what);
	cr_assert_eq(t.udp, udp, "%s", what);
	cr_assert_eq(t.counts.foreign, foreign, "%s: foreign", what);
	cr_assert_eq(t.counts.malformed, malformed, "%s: malformed", what);
	cr_assert_eq(t.counts.truncated, truncated, "%s: truncated", what);
}

Test(capture, links_and_tags, .timeout = 60)
{
	struct tape f = { .len = 0 };
	put_ethernet(&f, 0x8100); /* VLAN */
	put_be(&f, 905, 2);
	put_be(&f, 0x0800, 2);
	put_ipv4_udp(&f, "abc", 3, 0, 0);
	assert_one(one_frame(LINK_ETHERNET, &f), 1, 0, 0, 0, "VLAN");

	f.len = 0;
	put_ethernet(&f, 0x88a8); /* QinQ */
	put_be(&f, 30, 2);
	put_be(&f, 0x8100, 2);
	put_be(&f, 100, 2);
	put_be(&f, 0x0800, 2);
	put_ipv4_udp(&f, "abc", 3, 0, 0);
	assert_one(one_frame(LINK_ETHERNET, &f), 1, 0, 0, 0, "QinQ");

	f.len = 0;
	put_ethernet(&f, 0x8100);
	for (unsigned int i = 0; i < 20; i++) { /* more tags than anyone stacks */
		put_be(&f, 1, 2);
		put_be(&f, 0x8100, 2);
	}
	assert_one(one_frame(LINK_ETHERNET, &f), 0, 1, 0, 0, "tags without end");

	f.len = 0;
	put_ethernet(&f, 0x86dd);
	put_be(&f, 0x60000000, 4);
	assert_one(one_frame(LINK_ETHERNET, &f), 0, 1, 0, 0, "IPv6");

	f.len = 0;
	put_ipv4_udp(&f, "abc", 3, 0, 0);
	assert_one(one_frame(LINK_RAW, &f), 1, 0, 0, 0, "raw");
	assert_one(one_frame(LINK_IPV4, &f), 1, 0, 0, 0, "IPv4");

	for (unsigned int big = 0; big < 2; big++) {
		f.len = 0;
		put_int(&f, 2, 4, big != 0);
		put_ipv4_udp(&f, "abc", 3, 0, 0);
		assert_one(one_frame(LINK_NULL, &f), 1, 0, 0, 0, "null");
	}
	f.len = 0;
	put_hex(&f, "0000 0001 0006 020000000001 0000 0800");
	put_ipv4_udp(&f, "abc", 3, 0, 0);
	assert_one(one_frame(LINK_SLL, &f), 1, 0, 0, 0, "SLL");
	f.len = 0;
	put_hex(&f, "0800 0000 00000002 0001 00 06 0200000000010000");
	put_ipv4_udp(&f, "abc", 3, 0, 0);
	assert_one(one_frame(LINK_SLL2, &f), 1, 0, 0, 0, "SLL2");
}

Test(capture, lengths_are_honoured, .timeout = 60)
{
	struct tape f = { .len = 0 };
	put_ethernet(&f, 0x0800);
	put_ipv4_udp(&f, "abc", 3, 40, 0);
	assert_one(one_frame(LINK_ETHERNET, &f), 1, 0, 0, 0, "options");

	f.len = 0;
	put_frame(&f, "abc");
	put_hex(&f, "000000000000000000000000000000 de ad be ef"); /* padding and FCS */
	struct tape file = { .len = 0 };
	put_pcap_header(&file, little_ns, LINK_ETHERNET);
	put_pcap_packet(&file, little_ns, WHEN_NS, f.bytes, f.len, f.len);
	uint8_t *block;
	struct tw_input *input = open_tape(&file, &block);
	struct tw_packet packet;
	struct tw_error err;
	cr_assert_eq(tw_input_next(input, &packet, &err), 1);
	cr_assert_eq(packet.len_bytes, 3);
	tw_input_close(input);
	free(block);

	static const struct {
		uint16_t fragment;
		const char *what;
	} fragments[] = { { 0x2000, "first fragment" }, { 0x0010, "last fragment" } };
	for (size_t i = 0; i < 2; i++) {
		f.len = 0;
		put_ethernet(&f, 0x0800);
		put_ipv4_udp(&f, "abc", 3, 0, fragments[i].fragment);
		assert_one(one_frame(LINK_ETHERNET, &f), 0, 1, 0, 0, fragments[i].what);
	}
	f.len = 0;
	put_ethernet(&f, 0x0800);
	put_ipv4_udp(&f, "abc", 3, 0, 0x4000);
	assert_one(one_frame(LINK_ETHERNET, &f), 1, 0, 0, 0, "don't fragment");

	/* one field at a time made wrong: offset in the frame, value, what it is */
	static const struct {
		size_t at;
		uint16_t value;
		const char *what;
		bool foreign;
	} faults[] = {
		{ 14, 0x4400, "header length 16", false },
		{ 14, 0x4f00, "header length 60, longer than the datagram", false },
		{ 14, 0x6500, "version 6", true },
		{ 16, 19, "total length below the header", false },
		{ 16, 27, "no room for UDP", false },
		{ 16, 2000, "total length past the frame", false },
		{ 38, 7, "UDP length below its header", false },
		{ 38, 0, "UDP length 0", false },
		{ 38, 12, "UDP length past the datagram", false },
		{ 22, 0x1006, "TCP", true },
	};
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		f.len = 0;
		put_frame(&f, "abc");
		f.bytes[faults[i].at] = (uint8_t)(faults[i].value >> 8);
		f.bytes[faults[i].at + 1] = (uint8_t)faults[i].value;
		assert_one(one_frame(LINK_ETHERNET, &f), 0, faults[i].foreign, !faults[i].foreign,
			   0, faults[i].what);
	}
	f.len = 0;
	put_frame(&f, "abc");
	f.bytes[16] = 0;
	f.bytes[17] = 0;
	assert_one(one_frame(LINK_ETHERNET, &f), 1, 0, 0, 0,
		   "total length 0: segmentation offload");
}

Test(capture, short_captures_are_counted_and_never_overread, .timeout = 60)
{
	struct tape frame = { .len = 0 };
	put_ethernet(&frame, 0x8100);
	put_be(&frame, 7, 2);
	put_be(&frame, 0x0800, 2);
	put_ipv4_udp(&frame, "payload", 7, 8, 0);
	size_t whole = frame.len;
	put_be(&frame, 0, 4); /* FCS */
	for (size_t captured = 0; captured <= frame.len; captured++) {
		struct tape file = { .len = 0 };
		put_pcap_header(&file, little_ns, LINK_ETHERNET);
		put_pcap_packet(&file, little_ns, WHEN_NS, frame.bytes, captured, frame.len);
		struct totals t = drain_tape(&file);
		bool enough = captured >= whole;
		assert_one(t, enough, 0, 0, !enough, "captured short");

		struct tw_packet packet;
		uint8_t *block = malloc(captured + 1);
		cr_assert_not_null(block);
		memcpy(block + 1, frame.bytes, captured);
		enum tw_frame_verdict v = tw_frame_parse(&packet, TW_FRAME_ETHERNET, block + 1,
							 (uint32_t)captured, (uint32_t)captured);
		/* short on the wire too: then the frame itself is at fault */
		cr_assert_eq(v, enough ? TW_FRAME_UDP : TW_FRAME_MALFORMED, "%zu bytes: %d",
			     captured, v);
		free(block);
	}
}

/* ---- recorded by others ---- */

static struct totals drain_path(const char *path)
{
	struct tw_input *input;
	struct totals t = { .rc = 0 };
	t.rc = tw_input_capture_open(&input, path, &t.err);
	if (t.rc == TW_OK) {
		t = drain(input);
		tw_input_close(input);
	}
	return t;
}

Test(capture, recorded_miax, .timeout = 120)
{
	char path[512];
	if (!data_path(path, sizeof(path), "captures/Miax.Tom.Mach.v1.9.Example.pcap")) {
		cr_skip_test("%s is not there", path);
	}
	struct totals t = drain_path(path);
	cr_assert_eq(t.rc, TW_ECLOSED, "%s", t.err.text);
	cr_assert_eq(t.udp, 20560);
	cr_assert_eq(t.counts.malformed + t.counts.truncated, 0);
	cr_assert_eq(t.warning.code, TW_OK);
}

Test(capture, recorded_iex, .timeout = 120)
{
	char path[512];
	if (!data_path(path, sizeof(path), "iex/TOPS16.pcapng.gz")) {
		cr_skip_test("%s is not there", path);
	}
	struct totals t = drain_path(path);
	cr_assert_eq(t.rc, TW_ECLOSED, "%s", t.err.text);
	cr_assert_eq(t.udp, 13022);
	cr_assert_eq(t.counts.packets, 13022);
}

/* Frames, and UDP datagrams over IPv4 as Wireshark counts them with reassembly off, fragments left out.
 * Two differ from it on purpose: a datagram longer than its frame is no datagram
 * (ipv4_invalid_total_length), and the third frame of null_loopback has no address family but PPP.
 * `refused`: libpcap reads no pcapng whose interfaces differ in link type or snapshot length, and
 * netlink is no link that datagrams come by; what came before that is counted. */
static const struct {
	const char *name;
	uint64_t packets, udp;
	bool refused;
} links[] = {
	{ "802.1ad_QinQ.pcap", 2, 0, false },
	{ "IPv4-TSO.pcap", 1, 0, false },
	{ "IPv4Frag.pcap", 3, 0, false },
	{ "IgmpPackets.pcap", 81, 26, false },
	{ "QinQ_802.1_AD.pcapng", 1, 0, false },
	{ "Sll2Packet.pcap", 1, 0, false },
	{ "SllPacket.pcap", 1, 0, false },
	{ "VlanPackets.pcap", 26, 0, false },
	{ "empty.pcapng", 0, 0, false },
	{ "epgm_zmtp1.pcap", 15, 15, false },
	{ "esp_truncated.pcap", 1, 0, false },
	{ "frag_with_padding.pcap", 8, 0, false },
	{ "igmpv3-queries.pcap", 6, 0, false },
	{ "igmpv3.pcap", 2, 0, false },
	{ "ip4_bad_fragment.pcap", 1, 0, false },
	{ "ip4_fragments.pcap", 53, 3, false },
	{ "ipv4-malformed.pcap", 0, 0, true },
	{ "ipv4-options.pcap", 7, 0, false },
	{ "ipv4_invalid_hdr_length.pcap", 1, 0, false },
	{ "ipv4_invalid_length.pcap", 1, 0, false },
	{ "ipv4_invalid_total_length.pcap", 1, 0, false },
	{ "linktype_ipv4.pcap", 2, 2, false },
	{ "many_interfaces-1.pcapng", 0, 0, true },
	{ "microsecs.pcap", 2, 0, false },
	{ "microsecs_big_endian.pcap", 0, 0, true },
	{ "nanosecs.pcap", 2, 0, false },
	{ "nanosecs_big_endian.pcap", 10, 0, false },
	{ "null_loopback.pcap", 3, 1, false },
	{ "packet_trailer.pcap", 4, 0, false },
	{ "pcapng-example.pcapng", 59, 0, true },
	{ "pgm_zmtp1.pcap", 14, 0, false },
	{ "ptp.pcap", 5, 5, false },
	{ "raw_ip.pcap", 100, 8, false },
	{ "sll.pcap", 518, 27, false },
	{ "sll2.pcap", 3, 0, false },
	{ "too_many_interfaces.pcapng", 0, 0, true },
};

Test(capture, recorded_links, .timeout = 120)
{
	char path[512];
	if (!data_path(path, sizeof(path), "captures/links")) {
		cr_skip_test("%s is not there", path);
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		char name[128];
		(void)snprintf(name, sizeof(name), "captures/links/%s", links[i].name);
		cr_assert(data_path(path, sizeof(path), name), "%s", path);
		struct totals t = drain_path(path);
		cr_expect_eq(t.rc, links[i].refused ? TW_EFORMAT : TW_ECLOSED, "%s: %s", name,
			     t.err.text);
		cr_expect_eq(t.counts.packets, links[i].packets, "%s: %lu packets", name,
			     (unsigned long)t.counts.packets);
		cr_expect_eq(t.udp, links[i].udp, "%s: %lu datagrams", name, (unsigned long)t.udp);
		cr_expect_eq(t.udp + t.counts.foreign + t.counts.malformed + t.counts.truncated,
			     t.counts.packets, "%s: every frame is one thing", name);
	}
}
