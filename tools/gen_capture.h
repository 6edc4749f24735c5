/* Writes UDP datagrams as Ethernet frames into a capture file: classic pcap with nanoseconds, or
 * pcapng; or bytes as they are.  Plain or gzip.  The same input gives the same bytes.
 * Threads   one. */
#ifndef TW_TOOLS_GEN_CAPTURE_H
#define TW_TOOLS_GEN_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"

enum tw_gen_format { TW_GEN_PCAP = 0, TW_GEN_PCAPNG, TW_GEN_PLAIN };

#define TW_GEN_LINES 2u

struct tw_gen_capture; /* opaque */

struct tw_gen_capture_conf {
	const char *path; /* "-": standard output */
	enum tw_gen_format format;
	bool gzip;
	uint16_t src_port;
	struct {                          /* a line's datagrams come from an address of its own */
		uint32_t src_addr, group; /* IPv4, host order */
		uint16_t port;
	} lines[TW_GEN_LINES];
};

int tw_gen_capture_open(struct tw_gen_capture **capture_p, const struct tw_gen_capture_conf *conf,
			struct tw_error *err) TW_MUST_USE;
/* One datagram on a line; 0, or a status that is sticky and whose text tw_gen_capture_close() gives. */
int tw_gen_capture_write(struct tw_gen_capture *capture, unsigned int line, uint64_t time_ns,
			 const void *payload, uint16_t len_bytes) TW_MUST_USE;
/* Room for bytes that are no datagram, for the caller to fill before the next call; NULL where the
 * output has failed. */
uint8_t *tw_gen_capture_plain(struct tw_gen_capture *capture, uint16_t len_bytes);
uint64_t tw_gen_capture_bytes(const struct tw_gen_capture *capture); /* before compression */
/* Flushes and closes; reports the first failure of all calls.  A regular file that is incomplete is
 * removed.  NULL ok. */
int tw_gen_capture_close(struct tw_gen_capture *capture, struct tw_error *err) TW_MUST_USE;

#endif
