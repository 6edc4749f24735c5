/* Capture files, written through one large buffer. */
#include "gen_capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fail.h"

#define BUFFER_BYTES  (1u << 20)
#define PACKED_BYTES  (1u << 18)
#define ETH_BYTES     14u
#define IP_BYTES      20u
#define UDP_BYTES     8u
#define HEADERS_BYTES (ETH_BYTES + IP_BYTES + UDP_BYTES)
#define SNAP_BYTES    262144u
#define LINK_ETHERNET 1u

struct line {
	uint8_t headers[HEADERS_BYTES]; /* lengths, identification and checksums are filled in */
	uint32_t ip_sum;                /* of the constant part of the IP header */
	uint32_t udp_sum;               /* of the constant part of pseudo header and UDP header */
	uint16_t ip_id;
};

struct tw_gen_capture {
	struct tw_gen_capture_conf conf;
	int fd;
	int status; /* sticky */
	struct tw_error error;
	uint64_t bytes;
	uint32_t used;
	struct line lines[TW_GEN_LINES];
	z_stream packer;
	bool packing;
	uint8_t packed[PACKED_BYTES];
	uint8_t buffer[BUFFER_BYTES];
};

static void store16be(uint8_t *at, uint32_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

static void store32be(uint8_t *at, uint32_t v)
{
	store16be(at, v >> 16);
	store16be(at + 2, v);
}

static uint32_t fold(uint64_t sum)
{
	while (sum >> 16 != 0) {
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return (uint32_t)sum;
}

/* Sum of 16-bit words in network order, folded.  Whatever the order they are added up in, it comes
 * out in the same [RFC 1071, 2 (B)]. */
static uint32_t words_sum(const uint8_t *at, size_t len)
{
	uint64_t sum = 0;
	uint32_t word = 0;

	for (; len >= sizeof(word); at += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum += word;
	}
	word = 0;
	memcpy(&word, at, len);
	return __builtin_bswap16((uint16_t)fold(sum + word));
}

static void write_all(struct tw_gen_capture *c, const uint8_t *at, size_t len)
{
	while (len > 0 && c->status == TW_OK) {
		ssize_t n = write(c->fd, at, len);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			c->status = tw_fail_sys(&c->error, TW_ESYS, "%s: write", c->conf.path);
			return;
		}
		at += n;
		len -= (size_t)n;
	}
}

static void pack(struct tw_gen_capture *c, int flush)
{
	int rc = Z_OK;

	c->packer.next_in = c->buffer;
	c->packer.avail_in = c->used;
	do {
		c->packer.next_out = c->packed;
		c->packer.avail_out = PACKED_BYTES;
		rc = deflate(&c->packer, flush);
		write_all(c, c->packed, PACKED_BYTES - c->packer.avail_out);
	} while (c->packer.avail_out == 0 || (flush == Z_FINISH && rc == Z_OK));
}

static void drain(struct tw_gen_capture *c, bool end)
{
	if (c->packing) {
		pack(c, end ? Z_FINISH : Z_NO_FLUSH);
	} else {
		write_all(c, c->buffer, c->used);
	}
	c->used = 0;
}

static uint8_t *reserve(struct tw_gen_capture *c, uint32_t len)
{
	if (BUFFER_BYTES - c->used < len) {
		drain(c, false);
	}
	uint8_t *at = c->buffer + c->used;
	c->used += len;
	c->bytes += len;
	return at;
}

static void put_words(struct tw_gen_capture *c, const uint32_t *words, uint32_t n)
{
	uint32_t bytes = n * 4;

	memcpy(reserve(c, bytes), words, bytes);
}

/* Both formats in the byte order of this host, which the magic tells. */
static void put_file_header(struct tw_gen_capture *c)
{
	if (c->conf.format == TW_GEN_PLAIN) {
		return;
	}
	if (c->conf.format == TW_GEN_PCAP) {
		const uint32_t header[] = { 0xa1b23c4d, 2u | 4u << 16, 0,
					    0,          SNAP_BYTES,    LINK_ETHERNET };
		put_words(c, header, 6);
		return;
	}
	const uint32_t section[] = { 0x0a0d0d0a, 28, 0x1a2b3c4d, 1, UINT32_MAX, UINT32_MAX, 28 };
	/* option 9, one byte: timestamps in 10^-9 s */
	const uint32_t interface[] = { 1, 32, LINK_ETHERNET, SNAP_BYTES, 9u | 1u << 16, 9, 0, 32 };
	put_words(c, section, 7);
	put_words(c, interface, 8);
}

static void make_headers(struct tw_gen_capture *c, unsigned int index)
{
	const struct tw_gen_capture_conf *conf = &c->conf;
	const uint32_t src_addr = conf->lines[index].src_addr;
	const uint32_t group = conf->lines[index].group;
	struct line *line = &c->lines[index];
	uint8_t *eth = line->headers;
	uint8_t *ip = eth + ETH_BYTES;
	uint8_t *udp = ip + IP_BYTES;

	store16be(eth, 0x0100); /* 01:00:5e and the low 23 bits of the group */
	store32be(eth + 2, 0x5e000000u | (group & 0x7fffff));
	eth[6] = 0x02; /* locally administered */
	store32be(eth + 8, src_addr);
	store16be(eth + 12, 0x0800);
	ip[0] = 0x45;
	store16be(ip + 6, 0x4000); /* DF */
	ip[8] = 64;
	ip[9] = 17;
	store32be(ip + 12, src_addr);
	store32be(ip + 16, group);
	store16be(udp, conf->src_port);
	store16be(udp + 2, conf->lines[index].port);
	line->ip_sum = words_sum(ip, IP_BYTES);
	line->udp_sum = words_sum(ip + 12, 8) + ip[9] + words_sum(udp, UDP_BYTES);
}

int tw_gen_capture_open(struct tw_gen_capture **capture_p, const struct tw_gen_capture_conf *conf,
			struct tw_error *err)
{
	*capture_p = NULL;
	struct tw_gen_capture *c = calloc(1, sizeof(*c));
	int status = TW_ENOMEM;

	if (c == NULL) {
		return tw_fail(err, TW_ENOMEM, "%s: calloc: out of memory", conf->path);
	}
	c->conf = *conf;
	c->fd = strcmp(conf->path, "-") == 0
			? dup(STDOUT_FILENO)
			: open(conf->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (c->fd < 0) {
		status = tw_fail_sys(err, TW_ESYS, "%s: open", conf->path);
		goto undo_calloc;
	}
	if (conf->gzip) {
		/* 31: largest window, gzip header; it carries no name and no time */
		if (deflateInit2(&c->packer, Z_BEST_SPEED, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY) !=
		    Z_OK) {
			status = tw_fail(err, TW_ENOMEM, "%s: deflateInit2: out of memory",
					 conf->path);
			goto undo_open;
		}
		c->packing = true;
	}
	for (unsigned int i = 0; i < TW_GEN_LINES; i++) {
		make_headers(c, i);
	}
	put_file_header(c);
	*capture_p = c;
	return TW_OK;

undo_open:
	(void)close(c->fd);
undo_calloc:
	free(c);
	return status;
}

/* Record header of `frame` captured bytes; pcapng pads them and repeats the length behind them. */
static uint8_t *begin_record(struct tw_gen_capture *c, uint64_t time_ns, uint32_t frame)
{
	if (c->conf.format == TW_GEN_PCAP) {
		const uint32_t header[] = { (uint32_t)(time_ns / 1000000000u),
					    (uint32_t)(time_ns % 1000000000u), frame, frame };
		uint8_t *at = reserve(c, sizeof(header) + frame);
		memcpy(at, header, sizeof(header));
		return at + sizeof(header);
	}
	uint32_t padded = (frame + 3) & ~3u;
	uint32_t total = 28 + padded + 4;
	const uint32_t header[] = { 6,     total, 0, (uint32_t)(time_ns >> 32), (uint32_t)time_ns,
				    frame, frame };
	uint8_t *at = reserve(c, total);
	memcpy(at, header, sizeof(header));
	memset(at + total - 8, 0, 4);
	memcpy(at + total - 4, &total, 4);
	return at + sizeof(header);
}

int tw_gen_capture_write(struct tw_gen_capture *c, unsigned int index, uint64_t time_ns,
			 const void *payload, uint16_t len_bytes)
{
	struct line *line = &c->lines[index];
	uint32_t udp_len = UDP_BYTES + len_bytes;
	uint32_t ip_len = IP_BYTES + udp_len;

	if (ip_len > UINT16_MAX) {
		return TW_EARG;
	}
	uint8_t *frame = begin_record(c, time_ns, ETH_BYTES + ip_len);
	uint8_t *ip = frame + ETH_BYTES;
	uint8_t *udp = ip + IP_BYTES;

	memcpy(frame, line->headers, HEADERS_BYTES);
	memcpy(udp + UDP_BYTES, payload, len_bytes);
	store16be(ip + 2, ip_len);
	store16be(ip + 4, line->ip_id);
	store16be(ip + 10, ~fold(line->ip_sum + ip_len + line->ip_id));
	line->ip_id++;
	store16be(udp + 4, udp_len);
	/* the length counts twice: in the pseudo header and in the header */
	uint32_t sum = fold(line->udp_sum + 2 * udp_len + words_sum(payload, len_bytes));
	store16be(udp + 6, sum == 0xffff ? 0xffff : ~sum); /* 0 would say: no checksum */
	return c->status;
}

uint8_t *tw_gen_capture_plain(struct tw_gen_capture *c, uint16_t len_bytes)
{
	return c->status == TW_OK ? reserve(c, len_bytes) : NULL;
}

uint64_t tw_gen_capture_bytes(const struct tw_gen_capture *c)
{
	return c->bytes;
}

static void remove_incomplete(const struct tw_gen_capture *c)
{
	struct stat st;

	if (strcmp(c->conf.path, "-") != 0 && fstat(c->fd, &st) == 0 && S_ISREG(st.st_mode)) {
		(void)unlink(c->conf.path);
	}
}

int tw_gen_capture_close(struct tw_gen_capture *c, struct tw_error *err)
{
	if (c == NULL) {
		return TW_OK;
	}
	drain(c, true);
	if (c->packing) {
		(void)deflateEnd(&c->packer);
	}
	if (c->status != TW_OK) {
		remove_incomplete(c);
	}
	if (close(c->fd) != 0 && c->status == TW_OK) {
		c->status = tw_fail_sys(&c->error, TW_ESYS, "%s: close", c->conf.path);
	}
	int status = c->status;
	if (status != TW_OK && err != NULL) {
		*err = c->error;
	}
	free(c);
	return status;
}
