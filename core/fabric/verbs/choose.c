/* Choosing and judging RDMA ports: pure functions over query results.  See device.h. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/verbs/device.h"

#define TABLE_TEXT_BYTES 300 /* of the 512 of an error; tw-fabric shows all */

const char *tw_verbs_link_name(enum tw_verbs_link link)
{
	return link == TW_VERBS_LINK_ETHERNET     ? "Ethernet"
	       : link == TW_VERBS_LINK_INFINIBAND ? "InfiniBand"
						  : "other";
}

const char *tw_verbs_transport_name(enum tw_verbs_transport transport)
{
	return transport == TW_VERBS_IB      ? "InfiniBand verbs"
	       : transport == TW_VERBS_IWARP ? "iWARP"
					     : "other";
}

const char *tw_verbs_gid_type_name(enum tw_verbs_gid_type type)
{
	return type == TW_VERBS_GID_ROCE_V2   ? "RoCE v2"
	       : type == TW_VERBS_GID_ROCE_V1 ? "RoCE v1"
					      : "InfiniBand";
}

const char *tw_verbs_port_state_name(enum tw_verbs_port_state state)
{
	static const char *const names[] = { "unknown", "DOWN", "INIT", "ARMED", "ACTIVE" };
	return (unsigned int)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

void tw_verbs_gid_text(const struct tw_verbs_gid *gid, char *out, size_t size)
{
	char text[INET6_ADDRSTRLEN] = "?";
	const bool roce = gid->link == TW_VERBS_LINK_ETHERNET && gid->transport == TW_VERBS_IB;
	const char *kind = gid->transport != TW_VERBS_IB ? tw_verbs_transport_name(gid->transport)
			   : roce                        ? tw_verbs_gid_type_name(gid->type)
							 : "InfiniBand";
	if (gid->empty) {
		(void)snprintf(out, size, "%s port %u: no GID, %s", gid->device, gid->port,
			       gid->transport == TW_VERBS_IB ? tw_verbs_link_name(gid->link)
							     : kind);
		return;
	}
	(void)inet_ntop(AF_INET6, gid->raw, text, sizeof(text));
	(void)snprintf(out, size, "%s port %u index %u: %s %s%s%s", gid->device, gid->port,
		       gid->index, text, kind, gid->interface[0] != '\0' ? " on " : "",
		       gid->interface);
}

void tw_verbs_facts_text(const struct tw_verbs_facts *facts, char *out, size_t size)
{
	char text[INET6_ADDRSTRLEN] = "?";
	(void)inet_ntop(AF_INET6, facts->gid, text, sizeof(text));
	(void)snprintf(out, size, "%s port %u, GID %u (%s, %s%s%s), MTU %u", facts->device,
		       facts->port, facts->gid_index, text,
		       facts->link == TW_VERBS_LINK_ETHERNET ? "RoCE v2" : "InfiniBand",
		       facts->interface[0] != '\0' ? " on " : "", facts->interface,
		       facts->active_mtu_bytes);
}

static bool is_mapped(const uint8_t raw[16], uint32_t address)
{
	const uint8_t want[16] = { [10] = 0xff,
				   [11] = 0xff,
				   [12] = (uint8_t)(address >> 24),
				   [13] = (uint8_t)(address >> 16),
				   [14] = (uint8_t)(address >> 8),
				   [15] = (uint8_t)address };
	return memcmp(raw, want, sizeof(want)) == 0;
}

/* Whether the GID is the line's address, whatever its type. */
static bool is_address(const struct tw_verbs_gid *gid, const struct tw_verbs_want *want)
{
	if (gid->empty) {
		return false;
	}
	if (gid->link == TW_VERBS_LINK_INFINIBAND) {
		return want->has_hw_gid && memcmp(gid->raw, want->hw_gid, sizeof(gid->raw)) == 0;
	}
	return is_mapped(gid->raw, want->address);
}

static bool on_interface(const struct tw_verbs_gid *gid, const struct tw_verbs_want *want)
{
	return want->interface[0] != '\0' && strcmp(gid->interface, want->interface) == 0;
}

static bool usable(const struct tw_verbs_gid *gid)
{
	return gid->transport == TW_VERBS_IB &&
	       (gid->link == TW_VERBS_LINK_INFINIBAND || gid->type == TW_VERBS_GID_ROCE_V2);
}

static void table_text(const struct tw_verbs_table *table, char out[TABLE_TEXT_BYTES])
{
	size_t used = 0;
	out[0] = '\0';
	for (uint32_t i = 0; i < table->count; i++) {
		char entry[192];
		tw_verbs_gid_text(&table->gids[i], entry, sizeof(entry));
		if (used + strlen(entry) + 32 > TABLE_TEXT_BYTES) {
			(void)snprintf(out + used, TABLE_TEXT_BYTES - used, "; %u more (tw-fabric)",
				       table->count - i);
			return;
		}
		used += (size_t)snprintf(out + used, TABLE_TEXT_BYTES - used, "%s%s",
					 used > 0 ? "; " : "", entry);
	}
}

/* Nothing fits: the most telling reason there is. */
static int none_fits(const struct tw_verbs_table *table, const struct tw_verbs_want *want,
		     struct tw_error *err)
{
	char address[INET_ADDRSTRLEN] = "?", list[TABLE_TEXT_BYTES];
	const struct in_addr in = { .s_addr = htonl(want->address) };
	const struct tw_verbs_gid *other = NULL, *v1 = NULL;
	const char *name = want->interface[0] != '\0' ? want->interface : "any interface";

	(void)inet_ntop(AF_INET, &in, address, sizeof(address));
	if (table->devices == 0) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "verbs: %s, %s: this machine has no RDMA device: load its driver, "
			       "or use fabric.transport: udp",
			       name, address);
	}
	for (uint32_t i = 0; i < table->count; i++) {
		const struct tw_verbs_gid *gid = &table->gids[i];
		if (gid->transport != TW_VERBS_IB && other == NULL && on_interface(gid, want)) {
			other = gid;
		}
		if (gid->type == TW_VERBS_GID_ROCE_V1 && is_address(gid, want)) {
			v1 = gid;
		}
	}
	table_text(table, list);
	if (other != NULL) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "verbs: %s, %s: device %s is %s, which has no multicast: use "
			       "fabric.transport: udp (GIDs: %s)",
			       name, address, other->device,
			       other->transport == TW_VERBS_IWARP ? "iWARP"
								  : "not InfiniBand verbs",
			       list);
	}
	if (v1 != NULL) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "verbs: %s, %s: device %s has that address as a RoCE v1 GID alone: "
			       "switch RoCE v2 on, or use fabric.transport: udp (GIDs: %s)",
			       name, address, v1->device, list);
	}
	return tw_fail(err, TW_EUNSUPPORTED,
		       "verbs: %s, %s: no GID of an RDMA device is that address: give a RoCE "
		       "interface the address, or use fabric.transport: udp (GIDs: %s)",
		       name, address, list[0] != '\0' ? list : "none");
}

int tw_verbs_choose(const struct tw_verbs_table *table, const struct tw_verbs_want *want,
		    struct tw_error *err)
{
	/* Where several devices claim the address, the one on the line's own interface: a VLAN or a
	 * bond has it in more than one table. */
	int found = -1;
	for (uint32_t i = 0; i < table->count; i++) {
		const struct tw_verbs_gid *gid = &table->gids[i];
		if (!usable(gid) || !is_address(gid, want)) {
			continue;
		}
		if (on_interface(gid, want) || want->interface[0] == '\0') {
			return (int)i;
		}
		if (found < 0 && gid->interface[0] == '\0') {
			found = (int)i; /* a kernel that does not say */
		}
	}
	return found >= 0 ? found : none_fits(table, want, err);
}

static int check_port(const struct tw_verbs_facts *f, const struct tw_verbs_need *need,
		      struct tw_error *err)
{
	const bool ib = f->link == TW_VERBS_LINK_INFINIBAND;
	if (f->state == TW_VERBS_PORT_ACTIVE) {
		return TW_OK;
	}
	const char *cure =
		ib ? f->state == TW_VERBS_PORT_DOWN
				? "check cable and switch port"
				: "no subnet manager has brought it up: start opensm, or "
				  "check the one there is"
		   : "check the cable, the switch port, and that the interface is up "
		     "(ip link set dev NAME up)";
	return tw_fail(err, TW_EUNSUPPORTED, "line %c: %s port %u%s%s: state %s: %s", need->line,
		       f->device, f->port, f->interface[0] != '\0' ? " on " : "", f->interface,
		       tw_verbs_port_state_name(f->state), cure);
}

static int check_multicast(const struct tw_verbs_facts *f, const struct tw_verbs_need *need,
			   struct tw_error *err)
{
	if (f->transport != TW_VERBS_IB) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "line %c: %s: %s has no UD multicast: use fabric.transport: udp",
			       need->line, f->device,
			       f->transport == TW_VERBS_IWARP ? "iWARP" : "this kind of device");
	}
	if (f->link == TW_VERBS_LINK_OTHER) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "line %c: %s port %u: link layer neither Ethernet nor InfiniBand: "
			       "use fabric.transport: udp",
			       need->line, f->device, f->port);
	}
	if (f->max_mcast_grp == 0 || f->max_mcast_qp_attach == 0) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "line %c: %s: no multicast (max_mcast_grp %u, max_mcast_qp_attach "
			       "%u): use fabric.transport: udp",
			       need->line, f->device, f->max_mcast_grp, f->max_mcast_qp_attach);
	}
	if (need->groups > f->max_mcast_grp) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "line %c: %s: %u groups wanted, max_mcast_grp is %u: fewer "
			       "channels, or another device",
			       need->line, f->device, need->groups, f->max_mcast_grp);
	}
	return TW_OK;
}

static int check_partition(const struct tw_verbs_facts *f, const struct tw_verbs_need *need,
			   struct tw_error *err)
{
	if (f->link == TW_VERBS_LINK_ETHERNET) {
		if (need->partition_key != TW_VERBS_PKEY) {
			return tw_fail(err, TW_ECONFIG,
				       "fabric.partition_key: found 0x%x, allowed on RoCE 0xffff "
				       "(line %c, %s): partitions are InfiniBand's, use VLANs",
				       need->partition_key, need->line, f->device);
		}
		return TW_OK;
	}
	/* The top bit says full or limited member; the partition is the rest. */
	if (((f->pkey ^ need->partition_key) & 0x7fffu) != 0) {
		return tw_fail(err, TW_ECONFIG,
			       "fabric.partition_key: found 0x%x, interface %s of line %c is in "
			       "partition 0x%x: name that, or another interface",
			       need->partition_key, f->interface, need->line, f->pkey);
	}
	if (!f->pkey_there) {
		return tw_fail(err, TW_ECONFIG,
			       "fabric.partition_key: 0x%x is not in the table of %s port %u: the "
			       "subnet manager must make the port a member",
			       need->partition_key, f->device, f->port);
	}
	return TW_OK;
}

int tw_verbs_check(const struct tw_verbs_facts *facts, const struct tw_verbs_need *need,
		   struct tw_error *err)
{
	int rc = check_multicast(facts, need, err);
	if (rc == TW_OK) {
		rc = check_partition(facts, need, err);
	}
	if (rc == TW_OK) {
		rc = check_port(facts, need, err);
	}
	if (rc == TW_OK && need->mtu_bytes > facts->active_mtu_bytes) {
		rc = tw_fail(
			err, TW_ECONFIG,
			"line %c: fabric.mtu_bytes: %u, but %s port %u has an active MTU of %u "
			"(it can do %u): set fabric.mtu_bytes to %u, or raise the %s",
			need->line, need->mtu_bytes, facts->device, facts->port,
			facts->active_mtu_bytes, facts->max_mtu_bytes, facts->active_mtu_bytes,
			facts->link == TW_VERBS_LINK_ETHERNET
				? "MTU of the interface and of the switch"
				: "MTU of the subnet");
	}
	return rc;
}
