/* Which RDMA device, port and GID a line uses, and whether they can carry it.
 *
 * Choice    the GID that *is* the line's address: on RoCE the v2 GID ::ffff:a.b.c.d of the line's
 *           interface, on InfiniBand the port GID that the IPoIB interface has in its hardware
 *           address.  Never "index 0": tables differ from machine to machine and change with
 *           addresses.
 * Split     tw_verbs_scan() and tw_verbs_query() ask the machine and fill in plain structs;
 *           tw_verbs_choose() and tw_verbs_check() are pure functions over those, so that tests can
 *           show them what no device at hand is.
 * Includes  no verbs header: configuration and tools use this too.
 * Threads   set-up and healing only, any thread. */
#ifndef TW_FABRIC_VERBS_DEVICE_H
#define TW_FABRIC_VERBS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"

struct ibv_context;

#define TW_VERBS_NAME_BYTES 64
#define TW_VERBS_GIDS_MAX   512u
#define TW_VERBS_PKEY       0xffffu /* the default partition, and the only one of RoCE */

enum tw_verbs_transport {
	TW_VERBS_IB = 0, /* InfiniBand's verbs: native, or RoCE */
	TW_VERBS_IWARP,
	TW_VERBS_OTHER /* EFA, usNIC and whatever else has no UD multicast */
};
enum tw_verbs_link { TW_VERBS_LINK_OTHER = 0, TW_VERBS_LINK_INFINIBAND, TW_VERBS_LINK_ETHERNET };
enum tw_verbs_gid_type { TW_VERBS_GID_IB = 0, TW_VERBS_GID_ROCE_V1, TW_VERBS_GID_ROCE_V2 };
enum tw_verbs_port_state { /* the values of enum ibv_port_state */
			   TW_VERBS_PORT_NOP = 0,
			   TW_VERBS_PORT_DOWN,
			   TW_VERBS_PORT_INIT,
			   TW_VERBS_PORT_ARMED,
			   TW_VERBS_PORT_ACTIVE
};

/* One entry of the GID table of this machine, all devices and ports together.  A port without any
 * GID has one entry with `empty`, so that it shows. */
struct tw_verbs_gid {
	char device[TW_VERBS_NAME_BYTES];
	char interface[16]; /* empty: the device did not say */
	uint8_t raw[16];
	uint32_t index;
	enum tw_verbs_gid_type type;
	enum tw_verbs_transport transport;
	enum tw_verbs_link link;
	uint8_t port;
	bool empty;
};

struct tw_verbs_table {
	struct tw_verbs_gid *gids; /* heap */
	uint32_t count;
	uint32_t devices; /* on this machine, with or without a GID */
};

/* What a line asks for. */
struct tw_verbs_want {
	uint32_t address;   /* IPv4, host order */
	char interface[16]; /* may be empty: any */
	uint8_t hw_gid[16]; /* InfiniBand: from the interface's hardware address */
	bool has_hw_gid;
	uint16_t pkey; /* InfiniBand: the interface's; else 0xffff */
};

/* Query results about one port: everything that tw_verbs_check() judges and that endpoints are
 * sized by. */
struct tw_verbs_facts {
	char device[TW_VERBS_NAME_BYTES];
	char interface[16];
	char firmware[64];
	enum tw_verbs_transport transport;
	enum tw_verbs_link link;
	enum tw_verbs_port_state state;
	uint8_t port;
	uint8_t gid[16];
	uint32_t gid_index;
	uint32_t active_mtu_bytes, max_mtu_bytes;
	uint32_t max_qp_wr, max_cqe, max_sge, max_qp;
	uint32_t max_rd_atomic, max_init_rd_atomic; /* as responder, as initiator */
	uint32_t max_srq, max_srq_wr;
	uint64_t max_mr_bytes;
	uint32_t max_mcast_grp, max_mcast_qp_attach;
	uint64_t max_mcast_attach; /* all groups and QPs together; 0: not said */
	uint16_t pkey;             /* of the line's interface */
	uint16_t pkey_index;
	bool pkey_there;
	uint64_t timestamp_mask; /* of completions; 0: the device has none */
	uint64_t clock_khz;      /* of those stamps; 0: not said */
	bool clock_readable;     /* the device's clock can be read now, to compare */
};

/* What a configuration needs of a port. */
struct tw_verbs_need {
	char line; /* 'a', 'b', for the text */
	uint32_t mtu_bytes;
	uint32_t groups; /* to be joined on it by one process */
	uint16_t partition_key;
};

/* Asks every device of this machine.  No device is no error: count 0. */
int tw_verbs_scan(struct tw_verbs_table *table, struct tw_error *err) TW_MUST_USE;
void tw_verbs_table_free(struct tw_verbs_table *table);
/* One line of text about an entry: "rxe0 port 1 index 1: ::ffff:10.0.0.1 RoCE v2 on v0". */
void tw_verbs_gid_text(const struct tw_verbs_gid *gid, char *out, size_t size);

/* Fills in `want` for a line: what its interface says of itself. */
void tw_verbs_want(struct tw_verbs_want *want, const struct tw_fabric_line *line);

/* Pure.  The entry that a line uses, or TW_EUNSUPPORTED with the whole table (as far as it fits) and
 * what to do. */
int tw_verbs_choose(const struct tw_verbs_table *table, const struct tw_verbs_want *want,
		    struct tw_error *err) TW_MUST_USE;
/* Pure.  TW_OK, or TW_ECONFIG / TW_EUNSUPPORTED with what is wrong and what to do about it. */
int tw_verbs_check(const struct tw_verbs_facts *facts, const struct tw_verbs_need *need,
		   struct tw_error *err) TW_MUST_USE;

/* A device that is open, and what it said. */
struct tw_verbs_device {
	struct ibv_context *context; /* NULL: closed */
	struct tw_verbs_facts facts;
};

/* Scan, choose, open, query, check.  The context is this caller's own: its asynchronous events are
 * nobody else's.  `device` is zeroed on failure. */
int tw_verbs_open(struct tw_verbs_device *device, const struct tw_fabric_line *line,
		  const struct tw_verbs_need *need, struct tw_error *err) TW_MUST_USE;
void tw_verbs_close(struct tw_verbs_device *device); /* a zeroed one is fine */
/* The same, for what it says alone. */
int tw_verbs_probe(struct tw_verbs_facts *facts, const struct tw_fabric_line *line,
		   const struct tw_verbs_need *need, struct tw_error *err) TW_MUST_USE;
/* Asks an open context (rdma_cm's own, for one) about the port of `gid`. */
int tw_verbs_query(struct tw_verbs_facts *facts, struct ibv_context *context,
		   const struct tw_verbs_gid *gid, uint16_t pkey, struct tw_error *err) TW_MUST_USE;

/* Opens the device of an entry just to ask it. */
int tw_verbs_inspect(struct tw_verbs_facts *facts, const struct tw_verbs_gid *gid,
		     struct tw_error *err) TW_MUST_USE;
/* Asks again for what changes: state and MTU of the port. */
int tw_verbs_refresh(struct tw_verbs_facts *facts, struct ibv_context *context,
		     struct tw_error *err) TW_MUST_USE;

/* "rxe0 port 1, GID 1 (::ffff:10.0.0.1, RoCE v2 on v0), MTU 1024": for start-up lines. */
void tw_verbs_facts_text(const struct tw_verbs_facts *facts, char *out, size_t size);

const char *tw_verbs_link_name(enum tw_verbs_link link);
const char *tw_verbs_transport_name(enum tw_verbs_transport transport);
const char *tw_verbs_gid_type_name(enum tw_verbs_gid_type type);
const char *tw_verbs_port_state_name(enum tw_verbs_port_state state);

#endif
