/* A plain file of messages, each behind its length in two bytes, big-endian; a length of zero ends
 * the session.  The format of the exchange's historical files. */
#include "gen.h"

static void binaryfile_open(struct gen_feed *feed, uint64_t start_ns)
{
	(void)start_ns;
	feed->next_seq = 1;
	feed->summary->first_seq = 1;
}

static uint8_t *binaryfile_append(struct gen_feed *feed, uint64_t time_ns, uint16_t len)
{
	struct tw_gen_summary *sum = feed->summary;
	uint8_t *at = tw_gen_capture_plain(feed->capture, (uint16_t)(2u + len));

	if (at == NULL) {
		return NULL;
	}
	at[0] = (uint8_t)(len >> 8);
	at[1] = (uint8_t)len;
	if (feed->next_seq++ == 1) {
		sum->first_ns = time_ns;
	}
	sum->last_ns = time_ns;
	sum->payload_bytes += 2u + len;
	return at + 2;
}

static int binaryfile_advance(struct gen_feed *feed, uint64_t time_ns)
{
	(void)feed;
	(void)time_ns;
	return TW_OK;
}

static int binaryfile_finish(struct gen_feed *feed)
{
	uint8_t *at = tw_gen_capture_plain(feed->capture, 2);

	if (at == NULL) {
		return TW_ESYS;
	}
	at[0] = at[1] = 0;
	return TW_OK;
}

const struct gen_framing gen_binaryfile = {
	.name = "binaryfile",
	.plain = true,
	.open = binaryfile_open,
	.append = binaryfile_append,
	.advance = binaryfile_advance,
	.finish = binaryfile_finish,
};
