/* Captures as an input: libpcap reads the file format, frame.c the frames.
 *
 * Threads   one.
 * Reading   libpcap reads through a FILE whose cookie is a tw_source, so that gzip and memory look
 *           like a file; stdio's own lock is switched off.  Nothing is allocated per packet. */
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>

#include "base/fail.h"
#include "feedhandler/frame.h"
#include "feedhandler/input_kinds.h"

enum {
	STREAM_BUFFER_BYTES = 256 * 1024,
	FRAMES_PER_CALL = 256, /* frames without a datagram before next() returns 0 */
	AHEAD_PACKETS = 8,
	AHEAD_BYTES = 128 * 1024, /* of their payloads; one is shorter than half of it */
	NAME_BYTES = 256
};

struct capture {
	struct tw_input input;
	struct tw_source *source; /* owned */
	FILE *stream;             /* owned by pcap once that is open */
	char *stream_buffer;
	pcap_t *pcap;
	enum tw_frame_link link;
	struct tw_packet ahead[AHEAD_PACKETS]; /* read, and not handed out from ahead_at on */
	uint32_t ahead_at, ahead_count;
	uint8_t *ahead_bytes; /* their payloads */
	int ahead_rc; /* what stopped reading ahead, for when they are gone; TW_OK: nothing */
	struct tw_error ahead_error; /* its text */
	char name[NAME_BYTES];
};

static ssize_t cookie_read(void *cookie, char *buf, size_t size)
{
	return tw_source_read(cookie, buf, size);
}

static bool is_capture(const uint8_t *first)
{
	static const uint8_t magics[][4] = {
		{ 0xd4, 0xc3, 0xb2, 0xa1 },
		{ 0xa1, 0xb2, 0xc3, 0xd4 }, /* pcap, us */
		{ 0x4d, 0x3c, 0xb2, 0xa1 },
		{ 0xa1, 0xb2, 0x3c, 0x4d }, /* pcap, ns */
		{ 0x34, 0xcd, 0xb2, 0xa1 },
		{ 0xa1, 0xb2, 0xcd, 0x34 }, /* pcap with patched records */
		{ 0x0a, 0x0d, 0x0d, 0x0a }  /* pcapng */
	};
	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
		if (memcmp(first, magics[i], sizeof(magics[i])) == 0) {
			return true;
		}
	}
	return false;
}

bool tw_input_is_capture(const struct tw_source *source)
{
	return source->peek_bytes >= 4 && is_capture(source->peek);
}

static int link_of(struct capture *cap, struct tw_error *err)
{
	int type = pcap_datalink(cap->pcap);
	switch (type) {
	case DLT_EN10MB:
		cap->link = TW_FRAME_ETHERNET;
		return TW_OK;
	case DLT_RAW:
	case DLT_IPV4:
		cap->link = TW_FRAME_RAW_IP;
		return TW_OK;
	case DLT_NULL:
		cap->link = TW_FRAME_NULL;
		return TW_OK;
	case DLT_LOOP:
		cap->link = TW_FRAME_LOOP;
		return TW_OK;
	case DLT_LINUX_SLL:
		cap->link = TW_FRAME_SLL;
		return TW_OK;
	case DLT_LINUX_SLL2:
		cap->link = TW_FRAME_SLL2;
		return TW_OK;
	default:
		break;
	}
	const char *name = pcap_datalink_val_to_name(type);
	return tw_fail(
		err, TW_EFORMAT,
		"%s: link type %d (%s): allowed are Ethernet, raw IPv4, null, loop, SLL and SLL2",
		cap->name, type, name != NULL ? name : "unknown");
}

/* 0 where libpcap hands out a time that does not fit. */
static uint64_t time_of(const struct pcap_pkthdr *hdr)
{
	int64_t s = hdr->ts.tv_sec;
	int64_t ns = hdr->ts.tv_usec; /* nanoseconds: asked for when the file was opened */
	if (s < 0 || s >= INT64_MAX / 1000000000 || ns < 0 || ns >= 1000000000) {
		return 0;
	}
	return (uint64_t)s * 1000000000u + (uint64_t)ns;
}

/* libpcap found no further packet whole: did the bytes end, or are they wrong? */
static int read_failed(struct capture *cap, struct tw_error *err)
{
	struct tw_input *input = &cap->input;
	if (cap->source->damaged) {
		return tw_fail(err, TW_EFORMAT, "%s: after packet %llu: %s", cap->name,
			       (unsigned long long)input->counts.packets, cap->source->text);
	}
	if (!cap->source->ended) {
		return tw_fail(err, TW_EFORMAT, "%s: after packet %llu: %s", cap->name,
			       (unsigned long long)input->counts.packets, pcap_geterr(cap->pcap));
	}
	(void)tw_fail(&input->warning, TW_EFORMAT, "%s: ends in the middle of packet %llu: %s",
		      cap->name, (unsigned long long)input->counts.packets + 1,
		      pcap_geterr(cap->pcap));
	input->counts.truncated++;
	return tw_fail(err, TW_ECLOSED, "%s: end of the capture", cap->name);
}

/* libpcap takes an end between two packets for the end of the capture; inside gzip it may be a cut. */
static int read_ended(struct capture *cap, struct tw_error *err)
{
	if (cap->source->damaged) {
		return read_failed(cap, err);
	}
	if (cap->source->gzip && cap->source->member_begun) {
		(void)tw_fail(&cap->input.warning, TW_EFORMAT,
			      "%s: the gzip data ends early, after packet %llu", cap->name,
			      (unsigned long long)cap->input.counts.packets);
	}
	return tw_fail(err, TW_ECLOSED, "%s: end of the capture", cap->name);
}

static int read_packet(struct capture *cap, struct tw_packet *packet, struct tw_error *err)
{
	struct tw_input *input = &cap->input;
	for (unsigned int i = 0; i < FRAMES_PER_CALL; i++) {
		struct pcap_pkthdr *hdr;
		const u_char *data;
		int rc = pcap_next_ex(cap->pcap, &hdr, &data);
		if (rc == PCAP_ERROR_BREAK) {
			return read_ended(cap, err);
		}
		if (rc != 1) {
			return read_failed(cap, err);
		}
		input->counts.packets++;
		input->counts.bytes += hdr->caplen;
		switch (tw_frame_parse(packet, cap->link, data, hdr->caplen, hdr->len)) {
		case TW_FRAME_UDP:
			packet->recv_ns = time_of(hdr);
			return 1;
		case TW_FRAME_FOREIGN:
			input->counts.foreign++;
			break;
		case TW_FRAME_MALFORMED:
			input->counts.malformed++;
			break;
		case TW_FRAME_TRUNCATED:
			input->counts.truncated++;
			break;
		}
	}
	return 0;
}

/* Reads some packets, so that they can be fetched while those before them are decoded.  As tw_input_next() for the
 * first of them. */
static int read_ahead(struct capture *cap, struct tw_error *err)
{
	uint32_t used_bytes = 0;
	cap->ahead_at = 0;
	cap->ahead_count = 0;
	while (cap->ahead_count < AHEAD_PACKETS && used_bytes <= AHEAD_BYTES / 2) {
		struct tw_packet *packet = &cap->ahead[cap->ahead_count];
		int rc = read_packet(cap, packet, cap->ahead_count == 0 ? err : &cap->ahead_error);
		if (rc != 1 && cap->ahead_count == 0) {
			return rc;
		}
		if (rc != 1) {
			cap->ahead_rc = rc;
			break;
		}
		/* the next frame takes its place */
		uint8_t *room = cap->ahead_bytes + used_bytes;
		memcpy(room, packet->payload, packet->len_bytes);
		packet->payload = room;
		packet->shown = true;
		used_bytes += packet->len_bytes;
		cap->ahead_count++;
		cap->input.show(cap->input.show_ctx, packet);
	}
	return 1;
}

static int capture_next(struct tw_input *input, struct tw_packet *packet, struct tw_error *err)
{
	struct capture *cap = (struct capture *)input; /* input is its first member */
	if (!input->unpaced || input->show == NULL) {
		return read_packet(cap, packet, err);
	}
	if (cap->ahead_at == cap->ahead_count) {
		int rc = cap->ahead_rc;
		if (rc < 0) {
			if (err != NULL) {
				*err = cap->ahead_error;
			}
			return rc;
		}
		cap->ahead_rc = TW_OK;
		rc = read_ahead(cap, err);
		if (rc != 1) {
			return rc;
		}
	}
	*packet = cap->ahead[cap->ahead_at++];
	return 1;
}

static void capture_close(struct tw_input *input)
{
	struct capture *cap = (struct capture *)input;
	if (cap->pcap != NULL) {
		pcap_close(cap->pcap); /* closes the stream too */
	} else if (cap->stream != NULL) {
		(void)fclose(cap->stream);
	}
	tw_input_source_close(cap->source);
	free(cap->stream_buffer);
	free(cap->ahead_bytes);
	free(cap);
}

static const struct tw_input_ops capture_ops = { .next = capture_next, .close = capture_close };

/* From an open source to a pcap_t. */
static int begin(struct capture *cap, struct tw_error *err)
{
	if (!tw_input_is_capture(cap->source)) {
		return tw_input_refuse(cap->name, cap->source, "pcap, pcapng and gzip of either",
				       err);
	}
	cap->stream = fopencookie(cap->source, "r", (cookie_io_functions_t){ .read = cookie_read });
	cap->stream_buffer = malloc(STREAM_BUFFER_BYTES);
	cap->ahead_bytes = malloc(AHEAD_BYTES);
	if (cap->stream == NULL || cap->stream_buffer == NULL || cap->ahead_bytes == NULL) {
		return tw_fail(err, TW_ENOMEM, "%s: out of memory", cap->name);
	}
	(void)setvbuf(cap->stream, cap->stream_buffer, _IOFBF, STREAM_BUFFER_BYTES);
	(void)__fsetlocking(cap->stream, FSETLOCKING_BYCALLER); /* one thread reads it */
	char text[PCAP_ERRBUF_SIZE] = "";
	cap->pcap = pcap_fopen_offline_with_tstamp_precision(cap->stream,
							     PCAP_TSTAMP_PRECISION_NANO, text);
	if (cap->pcap == NULL) {
		return tw_fail(err, TW_EFORMAT, "%s: %s%s%s", cap->name, text,
			       cap->source->damaged ? "; " : "", cap->source->text);
	}
	return link_of(cap, err);
}

int tw_input_capture_begin(struct tw_input **input_p, const char *name, struct tw_source *source,
			   struct tw_error *err)
{
	struct capture *cap = calloc(1, sizeof(*cap));
	if (cap == NULL) {
		tw_input_source_close(source);
		return tw_fail(err, TW_ENOMEM, "%s: out of memory", name);
	}
	cap->input = (struct tw_input){ .ops = &capture_ops, .waits = true };
	cap->source = source;
	(void)snprintf(cap->name, sizeof(cap->name), "%s", name);
	int rc = begin(cap, err);
	if (rc != TW_OK) {
		capture_close(&cap->input);
		return rc;
	}
	*input_p = &cap->input;
	return TW_OK;
}

int tw_input_capture_open(struct tw_input **input_p, const char *path, struct tw_error *err)
{
	*input_p = NULL;
	struct tw_source *source;
	int rc = tw_input_source_path(&source, path, err);
	return rc != TW_OK ? rc : tw_input_capture_begin(input_p, path, source, err);
}

int tw_input_capture_memory(struct tw_input **input_p, const char *name, const void *data,
			    size_t len_bytes, struct tw_error *err)
{
	*input_p = NULL;
	struct tw_source *source;
	int rc = tw_input_source_memory(&source, name, data, len_bytes, err);
	return rc != TW_OK ? rc : tw_input_capture_begin(input_p, name, source, err);
}
