/* Where packets come from: one interface, a table of kinds in registry.c.
 *
 * Threads    one; the hot thread that calls tw_input_next() owns the input.
 * Ownership  a packet's bytes belong to the input and are valid until the next call. */
#ifndef TW_FEEDHANDLER_INPUT_H
#define TW_FEEDHANDLER_INPUT_H

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
};

/* Written by the input; the process copies them into its counter file. */
struct tw_input_counts {
	uint64_t packets;   /* frames or datagrams read, of every kind */
	uint64_t bytes;     /* of them, as captured */
	uint64_t foreign;   /* not a whole IPv4 UDP datagram: other protocols, fragments */
	uint64_t malformed; /* lengths that contradict each other */
	uint64_t truncated; /* whole on the wire, but cut short in the capture */
};

struct tw_input;
struct tw_input_ops {
	int (*next)(struct tw_input *input, struct tw_packet *packet, struct tw_error *err);
	void (*close)(struct tw_input *input);
};

struct tw_input { /* the head of every implementation */
	const struct tw_input_ops *ops;
	struct tw_input_counts counts;
	bool waits;              /* a file: it can wait for its reader, nothing is lost meanwhile */
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

/* A capture, recognised by its content: pcap (either byte order, us or ns), pcapng, or gzip of
 * either.  Links: Ethernet with any VLAN tags, raw IPv4, BSD loopback, Linux cooked v1 and v2.
 * TW_EFORMAT says what was found instead. */
int tw_input_capture_open(struct tw_input **input_p, const char *path,
			  struct tw_error *err) TW_MUST_USE;
/* One capture after the other; `paths`, NULL-terminated and not empty, must stay until close.  Every
 * file is looked at before the first one is read.  Opening the next one is a system call. */
int tw_input_files_open(struct tw_input **input_p, char *const *paths,
			struct tw_error *err) TW_MUST_USE;
/* A capture from memory, which must stay until close; `name` is for error texts. */
int tw_input_capture_memory(struct tw_input **input_p, const char *name, const void *data,
			    size_t len_bytes, struct tw_error *err) TW_MUST_USE;

#endif
