/* tw-gen's output, taken apart by a reader of its own that shares no code with the generator or the
 * feedhandler: containers, frames, checksums, segments, and a little market logic. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/gen.h"

#define MESSAGES   20000u
#define SYMBOLS    60u
#define START_NS   1767623340000000000u
#define MAX_BYTES  (16u << 20)
#define MAX_TRADES 16384u
#define GROUP      0xefc31001u
#define PORT       10378u

struct blob {
	uint8_t *bytes;
	size_t len;
};

static const struct tw_gen_conf base = {
	.protocol = "tops16",
	.seed = 7,
	.messages = MESSAGES,
	.rate = 5000,
	.symbols = SYMBOLS,
	.start_ns = START_NS,
	.group = GROUP,
	.port = PORT,
};

/* Runs the generator into a temporary file and reads it back, unpacked. */
static struct blob generate(const struct tw_gen_conf *conf, struct tw_gen_summary *summary)
{
	char path[] = "/tmp/tw-test-gen-XXXXXX";
	struct tw_gen_conf with = *conf;
	struct tw_error err = { 0 };
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	with.output = path;
	cr_assert_eq(tw_gen_run(&with, summary, &err), TW_OK, "%s", err.text);
	(void)close(fd);
	struct blob blob = { malloc(MAX_BYTES), 0 };
	gzFile f = gzopen(path, "rb"); /* reads plain files as they are */
	cr_assert(f != NULL && blob.bytes != NULL);
	cr_assert_eq(gzdirect(f), with.gzip ? 0 : 1);
	int n = gzread(f, blob.bytes, MAX_BYTES);
	cr_assert(n > 0 && n < (int)MAX_BYTES);
	blob.len = (size_t)n;
	(void)gzclose(f);
	(void)unlink(path);
	return blob;
}

static uint32_t le32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

static uint64_t le64(const uint8_t *at)
{
	return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static uint32_t le16(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t be16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

/* A cursor over the frames of either container. */
struct reader {
	const struct blob *blob;
	size_t at;
	bool pcapng;
	const uint8_t *frame;
	uint32_t len;
	uint64_t time_ns;
};

static struct reader reader_open(const struct blob *blob)
{
	struct reader r = { .blob = blob, .at = 24 };

	cr_assert_gt(blob->len, 60);
	if (le32(blob->bytes) == 0x0a0d0d0a) {
		const uint8_t *idb = blob->bytes + 28;
		r.pcapng = true;
		cr_assert_eq(le32(blob->bytes + 8), 0x1a2b3c4d);
		cr_assert_eq(le32(blob->bytes + 4), 28);
		cr_assert_eq(le32(blob->bytes + 24), 28);
		cr_assert_eq(le32(idb), 1, "an interface comes first");
		cr_assert_eq(le16(idb + 8), 1, "Ethernet");
		cr_assert_eq(le16(idb + 16), 9, "if_tsresol");
		cr_assert_eq(idb[20], 9, "nanoseconds");
		r.at = 28 + le32(idb + 4);
		cr_assert_eq(le32(idb + le32(idb + 4) - 4), le32(idb + 4));
		return r;
	}
	cr_assert_eq(le32(blob->bytes), 0xa1b23c4d, "nanosecond pcap");
	cr_assert_eq(le16(blob->bytes + 4), 2);
	cr_assert_eq(le16(blob->bytes + 6), 4);
	cr_assert_eq(le32(blob->bytes + 20), 1, "Ethernet");
	return r;
}

static bool reader_next(struct reader *r)
{
	const uint8_t *at = r->blob->bytes + r->at;
	size_t left = r->blob->len - r->at;

	if (left == 0) {
		return false;
	}
	if (r->pcapng) {
		cr_assert_geq(left, 32);
		uint32_t total = le32(at + 4);
		cr_assert_eq(le32(at), 6, "enhanced packet block");
		cr_assert(total <= left && total % 4 == 0 && le32(at + total - 4) == total);
		r->time_ns = (uint64_t)le32(at + 12) << 32 | le32(at + 16);
		r->len = le32(at + 20);
		cr_assert_eq(le32(at + 24), r->len);
		cr_assert_eq((r->len + 3) / 4 * 4 + 32, total);
		r->frame = at + 28;
		r->at += total;
		return true;
	}
	cr_assert_geq(left, 16);
	cr_assert_lt(le32(at + 4), 1000000000u);
	r->time_ns = le32(at) * UINT64_C(1000000000) + le32(at + 4);
	r->len = le32(at + 8);
	cr_assert_eq(le32(at + 12), r->len);
	cr_assert_leq(r->len, left - 16);
	r->frame = at + 16;
	r->at += 16 + r->len;
	return true;
}

static uint32_t internet_sum(const uint8_t *at, size_t len, uint32_t sum)
{
	for (size_t i = 0; i < len; i++) {
		sum += i % 2 == 0 ? (uint32_t)at[i] << 8 : at[i];
	}
	return (sum & 0xffff) + (sum >> 16);
}

/* Checks Ethernet, IP and UDP and returns the UDP payload. */
static const uint8_t *check_frame(const struct reader *r, uint32_t *len, uint32_t id)
{
	const uint8_t *eth = r->frame;
	const uint8_t *ip = eth + 14;
	const uint8_t *udp = ip + 20;
	static const uint8_t group_mac[] = { 0x01, 0x00, 0x5e, 0x43, 0x10, 0x01 };

	cr_assert_geq(r->len, 42);
	cr_assert_arr_eq(eth, group_mac, 6);
	cr_assert_eq(eth[6] & 1, 0, "a unicast source");
	cr_assert_eq(be16(eth + 12), 0x0800);
	cr_assert_eq(ip[0], 0x45);
	cr_assert_eq(ip[9], 17);
	cr_assert_eq(be16(ip + 2), r->len - 14);
	cr_assert_eq(be16(ip + 4), id & 0xffff);
	cr_assert_eq(be16(ip + 16) << 16 | be16(ip + 18), GROUP);
	cr_assert_eq(internet_sum(ip, 20, 0), 0xffff, "IP checksum");
	cr_assert_eq(be16(udp + 2), PORT);
	cr_assert_eq(be16(udp + 4), r->len - 34);
	cr_assert_neq(be16(udp + 6), 0);
	uint32_t sum = internet_sum(ip + 12, 8, 17 + be16(udp + 4));
	sum = internet_sum(udp, be16(udp + 4), sum);
	cr_assert_eq((sum & 0xffff) + (sum >> 16), 0xffff, "UDP checksum");
	*len = be16(udp + 4) - 8;
	return udp + 8;
}

struct trade {
	uint64_t id;
	int64_t price;
	uint32_t size;
	uint8_t flags;
	bool broken;
	char symbol[8];
};

struct book { /* what the feed has said of one symbol */
	char symbol[8];
	uint32_t bid_size, ask_size;
	int64_t bid, ask;
	uint8_t quote_flags;
	char state, venue_state;
	bool quoted;
	bool listed;
};

struct seen {
	uint64_t next_seq, next_offset, packets, heartbeats, messages, last_time_ns, last_send_ns;
	uint64_t counts[256], one_sided, empty, traded, broken;
	uint32_t session;
	char phase; /* the newest system event */
	struct book books[SYMBOLS];
	uint32_t book_count;
	struct trade trades[MAX_TRADES];
	uint32_t trade_count;
	uint64_t open_ns, close_ns, open_messages, close_messages;
};

static struct book *book_of(struct seen *s, const uint8_t *symbol)
{
	for (uint32_t i = 0; i < s->book_count; i++) {
		if (memcmp(s->books[i].symbol, symbol, 8) == 0) {
			return &s->books[i];
		}
	}
	cr_assert_lt(s->book_count, SYMBOLS);
	for (unsigned int i = 0; i < 8; i++) {
		cr_assert(symbol[i] >= ' ' && symbol[i] <= 'Z');
	}
	struct book *b = &s->books[s->book_count++];
	memcpy(b->symbol, symbol, 8);
	return b;
}

static bool extended(const struct seen *s)
{
	return strchr("OSE", s->phase) != NULL || s->phase == 'M';
}

static void see_system(struct seen *s, const uint8_t *m, uint64_t time_ns)
{
	static const char order[] = "OSRMEC";
	const char *before = s->phase == '\0' ? order : strchr(order, s->phase) + 1;

	cr_assert_eq(m[1], (uint8_t)*before, "%c after %c", m[1], s->phase);
	s->phase = (char)m[1];
	if (s->phase == 'R') {
		s->open_ns = time_ns;
		s->open_messages = s->messages;
	} else if (s->phase == 'M') {
		s->close_ns = time_ns;
		s->close_messages = s->messages;
	}
}

static bool same_quote(const struct book *a, const struct book *b)
{
	return a->bid == b->bid && a->ask == b->ask && a->bid_size == b->bid_size &&
	       a->ask_size == b->ask_size && a->quote_flags == b->quote_flags;
}

static void see_quote(struct seen *s, const uint8_t *m)
{
	struct book *b = book_of(s, m + 10);
	struct book was = *b;

	b->bid_size = le32(m + 18);
	b->bid = (int64_t)le64(m + 22);
	b->ask = (int64_t)le64(m + 30);
	b->ask_size = le32(m + 38);
	b->quote_flags = m[1];
	cr_assert_eq(b->bid == 0, b->bid_size == 0, "an absent side has no price and no size");
	cr_assert_eq(b->ask == 0, b->ask_size == 0);
	cr_assert(b->bid >= 0 && b->ask >= 0);
	cr_assert(b->bid == 0 || b->ask == 0 || b->bid < b->ask, "a crossed quote");
	bool halted = b->state != 'T' || b->venue_state != 'N';
	cr_assert_eq((m[1] & 0x80) != 0, halted);
	cr_assert_eq((m[1] & 0x40) != 0, extended(s));
	cr_assert(!halted || (b->bid == 0 && b->ask == 0));
	if (b->quoted) {
		cr_assert(!same_quote(b, &was), "an update that changes nothing");
	} else {
		cr_assert(b->bid == 0 && b->ask == 0, "the first quote is empty");
	}
	b->quoted = true;
	s->empty += b->bid == 0 && b->ask == 0 ? 1 : 0;
	s->one_sided += (b->bid == 0) != (b->ask == 0) ? 1 : 0;
}

static void see_trade(struct seen *s, const uint8_t *m)
{
	struct book *b = book_of(s, m + 10);
	struct trade t = {
		.id = le64(m + 30),
		.price = (int64_t)le64(m + 22),
		.size = le32(m + 18),
		.flags = m[1],
	};

	memcpy(t.symbol, m + 10, 8);
	cr_assert(b->state == 'T' && b->venue_state == 'N', "a trade while halted");
	cr_assert(t.price > 0 && t.size > 0);
	cr_assert_eq((t.flags & 0x20) != 0, t.size < 100, "odd lot");
	cr_assert_eq(t.flags & 0x07, 0);
	if ((t.flags & 0x08) != 0) {
		cr_assert(b->listed && (t.flags & 0x10) != 0, "a cross of a listed instrument");
	} else {
		cr_assert_eq((t.flags & 0x40) != 0, extended(s));
		cr_assert(b->bid == 0 || t.price >= b->bid, "below the bid");
		cr_assert(b->ask == 0 || t.price <= b->ask, "above the offer");
	}
	cr_assert(s->trade_count == 0 || t.id > s->trades[s->trade_count - 1].id);
	cr_assert_lt(s->trade_count, MAX_TRADES);
	s->trades[s->trade_count++] = t;
	s->traded += t.size;
}

static void see_break(struct seen *s, const uint8_t *m)
{
	for (uint32_t i = 0; i < s->trade_count; i++) {
		struct trade *t = &s->trades[i];
		if (t->id == le64(m + 30)) {
			cr_assert(!t->broken, "broken twice");
			cr_assert_eq(t->size, le32(m + 18));
			cr_assert_eq(t->price, (int64_t)le64(m + 22));
			cr_assert_eq(t->flags, m[1]);
			cr_assert_arr_eq(t->symbol, m + 10, 8);
			t->broken = true;
			s->broken += t->size;
			return;
		}
	}
	cr_assert_fail("a break of a trade that never was");
}

static void see_message(struct seen *s, const uint8_t *m, uint32_t len, uint64_t send_ns)
{
	static const uint8_t sizes[256] = {
		['S'] = 10, ['D'] = 31, ['H'] = 22, ['O'] = 18, ['P'] = 19,
		['Q'] = 42, ['T'] = 38, ['X'] = 26, ['B'] = 38, ['A'] = 80
	};
	uint64_t time_ns = le64(m + 2);

	cr_assert_eq(len, sizes[m[0]], "type %c", m[0]);
	cr_assert(time_ns >= s->last_time_ns && time_ns <= send_ns);
	s->last_time_ns = time_ns;
	s->messages++;
	s->counts[m[0]]++;
	cr_assert(m[0] == 'S' || strchr("OSRMEC", s->phase) != NULL);
	switch (m[0]) {
	case 'S':
		see_system(s, m, time_ns);
		break;
	case 'D':
		book_of(s, m + 10)->listed = true;
		cr_assert_eq(m[1] & 0x1f, 0);
		cr_assert_eq(le32(m + 18), 100);
		cr_assert_gt((int64_t)le64(m + 22), 0);
		cr_assert_leq(m[30], 2);
		break;
	case 'H':
		book_of(s, m + 10)->state = (char)m[1];
		cr_assert_not_null(strchr("THOP", m[1]));
		break;
	case 'O':
		book_of(s, m + 10)->venue_state = (char)m[1];
		cr_assert(m[1] == 'O' || m[1] == 'N');
		break;
	case 'P':
		cr_assert(m[1] == 0 ? strchr(" D", m[18]) != NULL : strchr("ACN", m[18]) != NULL);
		break;
	case 'Q':
		see_quote(s, m);
		break;
	case 'T':
		see_trade(s, m);
		break;
	case 'B':
		see_break(s, m);
		break;
	case 'X':
		cr_assert(book_of(s, m + 10)->listed);
		cr_assert_eq(m[1], s->phase == 'R' ? 'Q' : 'M');
		break;
	case 'A':
		cr_assert(book_of(s, m + 10)->listed);
		cr_assert_eq(m[1], s->phase == 'S' ? 'O' : 'C');
		cr_assert_eq(m[42] == 'N', le32(m + 38) == 0);
		break;
	default:
		break;
	}
}

static void see_packet(struct seen *s, const uint8_t *p, uint32_t len, uint64_t time_ns)
{
	cr_assert_geq(len, 40);
	uint32_t payload = le16(p + 12);
	uint32_t messages = le16(p + 14);
	uint64_t send_ns = le64(p + 32);
	const uint8_t *m = p + 40;

	cr_assert_eq(p[0], 1);
	cr_assert_eq(le16(p + 2), 0x8003);
	cr_assert_eq(le32(p + 4), 1);
	cr_assert(s->packets == 0 || le32(p + 8) == s->session);
	s->session = le32(p + 8);
	cr_assert_eq(payload, len - 40);
	cr_assert_eq(le64(p + 16), s->next_offset);
	cr_assert_eq(le64(p + 24), s->next_seq);
	cr_assert(send_ns >= s->last_send_ns && time_ns >= send_ns);
	if (messages == 0) {
		cr_assert_eq(payload, 0);
		cr_assert(s->packets == 0 || send_ns - s->last_send_ns == 1000000000u);
		s->heartbeats++;
	}
	cr_assert(s->packets == 0 || send_ns - s->last_send_ns <= 1000050000u, "silence");
	s->last_send_ns = send_ns;
	for (uint32_t i = 0; i < messages; i++) {
		cr_assert_leq(m + 2, p + len);
		uint32_t m_len = le16(m);
		cr_assert_leq(m + 2 + m_len, p + len);
		see_message(s, m + 2, m_len, send_ns);
		m += 2 + m_len;
	}
	cr_assert_eq(m, p + len, "messages fill the payload");
	s->next_seq += messages;
	s->next_offset += payload;
	s->packets++;
}

static struct seen *see_all(const struct blob *blob, const struct tw_gen_summary *sum)
{
	struct seen *s = calloc(1, sizeof(*s));
	struct reader r = reader_open(blob);
	uint64_t before_ns = 0;

	cr_assert_not_null(s);
	s->next_seq = 1;
	while (reader_next(&r)) {
		uint32_t len = 0;
		const uint8_t *p = check_frame(&r, &len, (uint32_t)s->packets);
		cr_assert_geq(r.time_ns, before_ns);
		cr_assert(s->packets != 0 || r.time_ns == sum->first_ns);
		before_ns = r.time_ns;
		see_packet(s, p, len, r.time_ns);
	}
	cr_assert_eq(before_ns, sum->last_ns);
	return s;
}

Test(gen, a_day_is_what_the_summary_says, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct blob blob = generate(&base, &sum);
	struct seen *s = see_all(&blob, &sum);

	cr_assert_eq(blob.len, sum.capture_bytes);
	cr_assert_eq(s->messages, MESSAGES);
	cr_assert_eq(sum.messages, MESSAGES);
	cr_assert_eq(sum.first_seq, 1);
	cr_assert_eq(sum.last_seq, s->next_seq - 1);
	cr_assert_eq(sum.payload_bytes, s->next_offset);
	cr_assert_eq(sum.packets, s->packets);
	cr_assert_eq(sum.heartbeats, s->heartbeats);
	cr_assert_eq(sum.session, s->session);
	cr_assert_eq(sum.one_sided_quotes, s->one_sided);
	cr_assert_eq(sum.empty_quotes, s->empty);
	cr_assert_eq(sum.traded_qty, s->traded);
	cr_assert_eq(sum.broken_qty, s->broken);
	cr_assert_arr_eq(sum.counts, s->counts, sizeof(s->counts));
	cr_assert_eq(s->phase, 'C');
	cr_assert_eq(s->book_count, SYMBOLS);
	for (const char *type = "SDHOPQTXBA"; *type != '\0'; type++) {
		cr_assert_gt(s->counts[(uint8_t)*type], 0, "no %c in the day", *type);
	}
	cr_assert_eq(s->counts['S'], 6);
	cr_assert_eq(s->counts['X'], 2 * s->counts['D']);
	cr_assert_geq(s->heartbeats, 2);
	cr_assert_lt(s->packets, s->messages, "several messages in a packet");
	free(s);
	free(blob.bytes);
}

/* The regular session is as long as the rate says, give or take the luck of the draw. */
Test(gen, the_rate_is_the_average, .timeout = 60)
{
	static const uint64_t rates[] = { 200, 5000, 1000000 };

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		struct tw_gen_conf conf = base;
		struct tw_gen_summary sum;
		conf.rate = rates[i];
		struct blob blob = generate(&conf, &sum);
		struct seen *s = see_all(&blob, &sum);
		uint64_t messages = s->close_messages - s->open_messages;
		uint64_t expected_ns = messages * 1000000000u / rates[i];
		uint64_t ns = s->close_ns - s->open_ns;
		cr_assert_gt(ns, expected_ns * 85 / 100, "rate %llu", (unsigned long long)rates[i]);
		cr_assert_lt(ns, expected_ns * 115 / 100, "rate %llu",
			     (unsigned long long)rates[i]);
		free(s);
		free(blob.bytes);
	}
}

static bool same(const struct blob *a, const struct blob *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

Test(gen, a_seed_is_a_day, .timeout = 60)
{
	struct tw_gen_summary sum[4];
	struct tw_gen_conf conf = base;
	struct blob first = generate(&conf, &sum[0]);
	struct blob again = generate(&conf, &sum[1]);

	cr_assert(same(&first, &again));
	cr_assert_arr_eq(&sum[0], &sum[1], sizeof(sum[0]));
	conf.gzip = true;
	struct blob packed = generate(&conf, &sum[2]);
	cr_assert(same(&first, &packed));
	conf.gzip = false;
	conf.seed++;
	struct blob other = generate(&conf, &sum[3]);
	cr_assert_not(same(&first, &other));
	free(first.bytes);
	free(again.bytes);
	free(packed.bytes);
	free(other.bytes);
}

/* A hash pins the bytes: whoever changes the day changes every count that tests elsewhere state. */
Test(gen, the_bytes_are_pinned, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct blob blob = generate(&base, &sum);

	cr_assert_eq(crc32(0, blob.bytes, (uInt)blob.len), 0xc80c2c01u, "%08lx",
		     crc32(0, blob.bytes, (uInt)blob.len));
	free(blob.bytes);
}

Test(gen, both_containers_hold_the_same_frames, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_gen_conf conf = base;
	struct blob pcap = generate(&conf, &sum);
	conf.format = TW_GEN_PCAPNG;
	struct blob pcapng = generate(&conf, &sum);
	struct reader a = reader_open(&pcap);
	struct reader b = reader_open(&pcapng);

	cr_assert(!a.pcapng && b.pcapng);
	while (reader_next(&a)) {
		cr_assert(reader_next(&b));
		cr_assert_eq(a.time_ns, b.time_ns);
		cr_assert_eq(a.len, b.len);
		cr_assert_arr_eq(a.frame, b.frame, a.len);
	}
	cr_assert_not(reader_next(&b));
	free(pcap.bytes);
	free(pcapng.bytes);
}

Test(gen, the_shortest_days_have_everything, .timeout = 60)
{
	static const uint32_t symbols[] = { 1, 2, 26, SYMBOLS };

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		struct tw_gen_conf conf = base;
		struct tw_gen_summary sum;
		conf.symbols = symbols[i];
		conf.messages = gen_day_min_messages(symbols[i]);
		struct blob blob = generate(&conf, &sum);
		struct seen *s = see_all(&blob, &sum);
		cr_assert_eq(s->messages, conf.messages);
		for (const char *type = "SDHOPQTXBA"; *type != '\0'; type++) {
			cr_assert_gt(s->counts[(uint8_t)*type], 0, "%u symbols: no %c", symbols[i],
				     *type);
		}
		free(s);
		free(blob.bytes);
	}
}

Test(gen, settings_are_checked, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_error err;

#define REFUSED(change)                                                           \
	do {                                                                      \
		struct tw_gen_conf c = base;                                      \
		c.output = "/nonexistent/never-made";                             \
		change;                                                           \
		err.text[0] = '\0';                                               \
		cr_assert_eq(tw_gen_run(&c, &sum, &err), TW_EARG, "%s", #change); \
		cr_assert_neq(err.text[0], '\0');                                 \
	} while (0)
	REFUSED(c.protocol = "tops17");
	REFUSED(c.symbols = 0);
	REFUSED(c.symbols = TW_GEN_MAX_SYMBOLS + 1);
	REFUSED(c.rate = 0);
	REFUSED(c.rate = TW_GEN_MAX_RATE + 1);
	REFUSED(c.messages = gen_day_min_messages(SYMBOLS) - 1);
	REFUSED(c.messages = UINT64_MAX);
	REFUSED((c.messages = 100000000, c.rate = 1));
#undef REFUSED
}

Test(gen, a_failing_output_is_reported, .timeout = 60)
{
	struct tw_gen_conf conf = base;
	struct tw_gen_summary sum;
	struct tw_error err = { 0 };

	conf.output = "/nonexistent/capture";
	cr_assert_eq(tw_gen_run(&conf, &sum, &err), TW_ESYS);
	cr_assert_not_null(strstr(err.text, "/nonexistent/capture: open: "));
	for (int gzip = 0; gzip < 2; gzip++) {
		conf.output = "/dev/full";
		conf.gzip = gzip != 0;
		cr_assert_eq(tw_gen_run(&conf, &sum, &err), TW_ESYS);
		cr_assert_not_null(strstr(err.text, "/dev/full: write: "));
	}
}
