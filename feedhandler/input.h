/* Where packets come from: one interface, a table of kinds in registry.c.
 *
 * Threads    one; the hot thread that calls tw_input_next() owns the input.
 * Ownership  a packet's bytes belong to the input and are valid until the next call. */
#ifndef TW_FEEDHANDLER_INPUT_H
#define TW_FEEDHANDLER_INPUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"

struct tw_packet { /* one UDP datagram */
	const uint8_t *payload;
	uint32_t len_bytes;
	uint32_t src_addr, dst_addr; /* IPv4, host order */
	uint16_t src_port, dst_port;
	uint64_t recv_ns; /* wall clock of its reception, 0 where unknown */
	uint32_t line;    /* of a live feed, from 0 */
	bool shown;       /* tw_input.show has had it */
};

/* Written by the input; the process copies them into its counter file. */
struct tw_input_counts {
	uint64_t packets;   /* frames or datagrams read, of every kind */
	uint64_t bytes;     /* of them, as captured */
	uint64_t foreign;   /* not a whole IPv4 UDP datagram: other protocols, fragments */
	uint64_t malformed; /* lengths that contradict each other */
	uint64_t truncated; /* whole on the wire, but cut short in the capture */
};

/* Of one line of a live feed.  The hot thread writes, but for the joins. */
struct tw_input_line {
	uint64_t packets, bytes, truncated, kernel_drops, unstamped;
	uint64_t
		heard_ns; /* tw_mono_ns() of the newest packet, of the opening before there is one */
	uint32_t receive_buffer_bytes;
	_Atomic uint64_t joins, joins_failed; /* main thread */
};

struct tw_input;
struct tw_input_ops {
	int (*next)(struct tw_input *input, struct tw_packet *packet, struct tw_error *err);
	void (*close)(struct tw_input *input);
	/* main thread, every 100 ms while another one reads; NULL: nothing to do */
	void (*tick)(struct tw_input *input);
};

struct tw_input { /* the head of every implementation */
	const struct tw_input_ops *ops;
	struct tw_input_counts counts;
	bool waits; /* a file: it can wait for its reader, nothing is lost meanwhile */
	const char
		*session; /* the session layer that its packets are for; NULL: what is configured */
	/* Set by who reads: packets are wanted as they come, whatever their time.  The input may then read ahead,
	 * and shows what it has read, so that it can be fetched. */
	bool unpaced;
	void (*show)(const void *ctx, const struct tw_packet *packet); /* NULL: nobody looks */
	const void *show_ctx;
	uint32_t lines;                   /* of a live feed; 0: a file */
	uint32_t empty_lines;             /* bit l: line l was polled empty by the last next() */
	const struct tw_input_line *line; /* `lines` of them */
	uint32_t parts;          /* recordings begun: grows where the next of several begins */
	struct tw_error warning; /* code TW_OK: none.  Set when the input ends in mid-packet */
};

/* 1: *packet is the next datagram.  0: none now, try again (also after a run of frames that were only
 * counted, so that a caller gets to look at its stop flag).  TW_ECLOSED: the input has ended, see
 * input->warning.  TW_EFORMAT, TW_ESYS: it cannot be read on; what came before was right. */
static inline int tw_input_next(struct tw_input *input, struct tw_packet *packet,
				struct tw_error *err)
{
	return input->ops->next(input, packet, err);
}

static inline void tw_input_close(struct tw_input *input) /* NULL ok */
{
	if (input != NULL) {
		input->ops->close(input);
	}
}

/* A recording, recognised by its content: a capture as below, or Nasdaq's BinaryFILE of ITCH 5.0, whose
 * session layer is "binaryfile"; or gzip of either.  TW_EFORMAT says what was found instead.
 * `trading_date` is that of a BinaryFILE, YYYYMMDD; 0: from the file's name, else it is not known. */
int tw_input_recording_open(struct tw_input **input_p, const char *path, uint32_t trading_date,
			    struct tw_error *err) TW_MUST_USE;
/* The same from memory, which must stay until close. */
int tw_input_recording_memory(struct tw_input **input_p, const char *name, const void *data,
			      size_t len_bytes, uint32_t trading_date,
			      struct tw_error *err) TW_MUST_USE;
/* One recording after the other, all of one session layer; `paths`, NULL-terminated and not empty, must
 * stay until close.  Every file is looked at before the first one is read.  Opening the next one is a
 * system call. */
int tw_input_files_open(struct tw_input **input_p, char *const *paths, uint32_t trading_date,
			struct tw_error *err) TW_MUST_USE;
/* A capture alone: pcap (either byte order, us or ns), pcapng, or gzip of either.  Links: Ethernet with
 * any VLAN tags, raw IPv4, BSD loopback, Linux cooked v1 and v2. */
int tw_input_capture_open(struct tw_input **input_p, const char *path,
			  struct tw_error *err) TW_MUST_USE;
/* A capture from memory, which must stay until close; `name` is for error texts. */
int tw_input_capture_memory(struct tw_input **input_p, const char *name, const void *data,
			    size_t len_bytes, struct tw_error *err) TW_MUST_USE;

struct tw_input_multicast_conf {
	uint32_t lines; /* 1 or 2 */
	struct {
		uint32_t group; /* IPv4, host order */
		uint16_t port;
		char interface[16]; /* name, or IPv4 address */
	} line[2];
	uint32_t receive_buffer_bytes; /* wanted, of each line */
};
/* A venue's own multicast, live.  An interface that is not there, or not up, is no error: its group is joined
 * by a later tick. */
int tw_input_multicast_open(struct tw_input **input_p, const struct tw_input_multicast_conf *conf,
			    struct tw_error *err) TW_MUST_USE;

#endif
