/* An arbiter's memory: how much it needs, and where in it everything lies.  See arb.h. */
#include <string.h>

#include "base/slab.h"
#include "protocol/arb_impl.h"

/* Offsets of the parts in the caller's memory. */
struct layout {
	size_t segs, gaps, ring, free_segs, slot_refs, free_slots, slots, total;
	uint32_t seg_limit, ring_size, slot_count, slot_bytes;
};

static bool conf_holds(const struct tw_arb_conf *conf)
{
	return conf->lines >= 1 && conf->lines <= TW_MAX_LINES && conf->store_dgrams >= 1 &&
	       conf->store_dgrams <= TW_ARB_STORE_MAX_DGRAMS &&
	       conf->mtu_bytes > TW_WIRE_HDR_BYTES && conf->mtu_bytes <= TW_WIRE_DGRAM_MAX_BYTES &&
	       conf->heartbeat_max_ns >= 1 &&
	       conf->heartbeat_max_ns <= UINT64_MAX / TW_ARB_DOWN_HEARTBEATS;
}

static size_t take_bytes(size_t *total, size_t bytes)
{
	size_t at = *total;

	*total += tw_round_up(bytes, TW_CACHE_LINE_BYTES);
	return at;
}

static struct layout lay_out(const struct tw_arb_conf *conf)
{
	struct layout lay = { .ring_size = 1 };

	/* A held datagram and the gap before it make two segments; as much again for gaps that only
	 * heartbeats have shown, holes, and datagrams that fill several gaps. */
	lay.seg_limit = 4 * conf->store_dgrams + 4 * TW_ARB_INPUT_SEGS;
	while (lay.ring_size < lay.seg_limit + TW_ARB_INPUT_SEGS) {
		lay.ring_size *= 2;
	}
	/* One more than may be in use: a datagram that makes room for itself cannot use the slots
	 * that this releases, their bytes are still being read. */
	lay.slot_count = conf->latest ? 0 : conf->store_dgrams + 1;
	lay.slot_bytes =
		(uint32_t)tw_round_up(conf->mtu_bytes - TW_WIRE_HDR_BYTES, TW_CACHE_LINE_BYTES);
	(void)take_bytes(&lay.total, sizeof(struct tw_arb));
	lay.segs = take_bytes(&lay.total, lay.ring_size * sizeof(struct tw_arb_seg));
	lay.gaps = take_bytes(&lay.total, lay.ring_size * sizeof(struct tw_arb_gap_info));
	lay.ring = take_bytes(&lay.total, lay.ring_size * sizeof(uint32_t));
	lay.free_segs = take_bytes(&lay.total, lay.ring_size * sizeof(uint32_t));
	lay.slot_refs = take_bytes(&lay.total, lay.slot_count * sizeof(uint32_t));
	lay.free_slots = take_bytes(&lay.total, lay.slot_count * sizeof(uint32_t));
	lay.slots = take_bytes(&lay.total, (size_t)lay.slot_count * lay.slot_bytes);
	return lay;
}

size_t tw_arb_size(const struct tw_arb_conf *conf)
{
	return conf_holds(conf) ? lay_out(conf).total : 0;
}

int tw_arb_init(struct tw_arb **arb_p, void *memory, size_t size_bytes,
		const struct tw_arb_conf *conf, uint64_t now_ns)
{
	*arb_p = NULL;
	if (!conf_holds(conf) || memory == NULL || (uintptr_t)memory % TW_CACHE_LINE_BYTES != 0) {
		return TW_EARG;
	}
	struct layout lay = lay_out(conf);
	if (size_bytes < lay.total) {
		return TW_EARG;
	}
	uint8_t *base = memory;
	struct tw_arb *arb = memory;
	memset(base, 0, lay.slots);
	arb->conf = *conf;
	arb->now_ns = now_ns;
	arb->seg_limit = lay.seg_limit;
	arb->segs.pool = (void *)(base + lay.segs);
	arb->segs.gaps = (void *)(base + lay.gaps);
	arb->segs.ring = (void *)(base + lay.ring);
	arb->segs.free_ids = (void *)(base + lay.free_segs);
	tw_arb_segs_init(&arb->segs, lay.ring_size);
	arb->slots.bytes = base + lay.slots;
	arb->slots.refs = (void *)(base + lay.slot_refs);
	arb->slots.free_ids = (void *)(base + lay.free_slots);
	tw_arb_slots_init(&arb->slots, lay.slot_count, lay.slot_bytes);
	for (uint32_t i = 0; i < conf->lines; i++) {
		tw_arb_line_init(&arb->lines[i], now_ns);
	}
	arb->tail.pos = TW_ARB_NO_POS;
	*arb_p = arb;
	return TW_OK;
}
