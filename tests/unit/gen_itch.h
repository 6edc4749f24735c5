/* For the tests of tw-gen's ITCH day: its settings, and what it writes as bytes. */
#ifndef TW_TESTS_GEN_ITCH_H
#define TW_TESTS_GEN_ITCH_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/gen_flow.h"

#define MESSAGES  20000u
#define SYMBOLS   60u
#define START_NS  1767623340000000000u /* 2026-01-05T14:29:00Z */
#define MAX_BYTES (16u << 20)
#define GROUP_A   0xefc31001u
#define GROUP_B   0xefc31101u
#define PORT      10378u

struct blob {
	uint8_t *bytes;
	size_t len;
};

static const struct tw_gen_conf itch_base = {
	.protocol = "itch50",
	.framing = "binaryfile",
	.seed = 7,
	.messages = MESSAGES,
	.rate = 5000,
	.symbols = SYMBOLS,
	.start_ns = START_NS,
	.group = GROUP_A,
	.port = PORT,
};

static inline struct tw_gen_conf moldudp64(bool two_lines)
{
	struct tw_gen_conf conf = itch_base;

	conf.framing = "moldudp64";
	if (two_lines) {
		conf.group_b = GROUP_B;
		conf.port_b = PORT;
		conf.skew_ns = 1500;
	}
	return conf;
}

/* Runs the generator into a temporary file and reads it back, unpacked. */
static inline struct blob generate(const struct tw_gen_conf *conf, struct tw_gen_summary *summary)
{
	char path[] = "/tmp/tw-test-gen-itch-XXXXXX";
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
	int n = gzread(f, blob.bytes, MAX_BYTES);
	cr_assert(n > 0 && n < (int)MAX_BYTES);
	blob.len = (size_t)n;
	(void)gzclose(f);
	(void)unlink(path);
	return blob;
}

static inline uint64_t be(const uint8_t *at, unsigned int bytes)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < bytes; i++) {
		v = v << 8 | at[i];
	}
	return v;
}

#endif
