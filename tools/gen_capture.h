/* Writes UDP datagrams as Ethernet frames into a capture file: classic pcap with nanoseconds, or
 * pcapng; plain or gzip.  The same input gives the same bytes.
 * Threads   one. */
#ifndef TW_TOOLS_GEN_CAPTURE_H
#define TW_TOOLS_GEN_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"

enum tw_gen_format { TW_GEN_PCAP = 0, TW_GEN_PCAPNG };

struct tw_gen_capture; /* opaque */

struct tw_gen_capture_conf {
	const char *path; /* "-": standard output */
	enum tw_gen_format format;
	bool gzip;
	uint32_t src_addr, group; /* IPv4, host order */
	uint16_t src_port, port;
};

int tw_gen_capture_open(struct tw_gen_capture **capture_p, const struct tw_gen_capture_conf *conf,
			struct tw_error *err) TW_MUST_USE;
/* One datagram; 0, or a status that is sticky and whose text tw_gen_capture_close() gives. */
int tw_gen_capture_write(struct tw_gen_capture *capture, uint64_t time_ns, const void *payload,
			 uint16_t len_bytes) TW_MUST_USE;
uint64_t tw_gen_capture_bytes(const struct tw_gen_capture *capture); /* before compression */
/* Flushes and closes; reports the first failure of all calls.  A regular file that is incomplete is
 * removed.  NULL ok. */
int tw_gen_capture_close(struct tw_gen_capture *capture, struct tw_error *err) TW_MUST_USE;

#endif
