/* Asking RDMA devices; the judging is in choose.c.  See device.h. */
#include "fabric/verbs/device.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static void copy_name(char *out, size_t size, const char *from)
{
	const size_t n = strnlen(from, size - 1);
	memcpy(out, from, n);
	out[n] = '\0';
}

static enum tw_verbs_transport transport_of(const struct ibv_device *device)
{
	switch (device->transport_type) {
	case IBV_TRANSPORT_IB:
		return TW_VERBS_IB;
	case IBV_TRANSPORT_IWARP:
		return TW_VERBS_IWARP;
	default:
		return TW_VERBS_OTHER;
	}
}

static enum tw_verbs_link link_of(const struct ibv_port_attr *attr)
{
	switch (attr->link_layer) {
	case IBV_LINK_LAYER_ETHERNET:
		return TW_VERBS_LINK_ETHERNET;
	case IBV_LINK_LAYER_INFINIBAND:
	case IBV_LINK_LAYER_UNSPECIFIED: /* libibverbs before link layers: InfiniBand */
		return TW_VERBS_LINK_INFINIBAND;
	default:
		return TW_VERBS_LINK_OTHER;
	}
}

/* --- scanning -------------------------------------------------------------------------------- */

static int add_gid(struct tw_verbs_table *table, const struct tw_verbs_gid *gid)
{
	if (table->count == TW_VERBS_GIDS_MAX) {
		return 0; /* no machine has so many; what is left out does not show */
	}
	table->gids[table->count++] = *gid;
	return 1;
}

static void scan_port(struct tw_verbs_table *table, struct ibv_context *context, uint8_t port,
		      const struct ibv_gid_entry *entries, ssize_t count)
{
	struct ibv_port_attr attr;
	struct tw_verbs_gid gid = { .port = port, .transport = transport_of(context->device) };
	copy_name(gid.device, sizeof(gid.device), ibv_get_device_name(context->device));
	if (ibv_query_port(context, port, &attr) == 0) {
		gid.link = link_of(&attr);
	}
	int found = 0;
	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].port_num != port) {
			continue;
		}
		gid.index = entries[i].gid_index;
		gid.type = entries[i].gid_type == IBV_GID_TYPE_ROCE_V2   ? TW_VERBS_GID_ROCE_V2
			   : entries[i].gid_type == IBV_GID_TYPE_ROCE_V1 ? TW_VERBS_GID_ROCE_V1
									 : TW_VERBS_GID_IB;
		memcpy(gid.raw, entries[i].gid.raw, sizeof(gid.raw));
		char name[IF_NAMESIZE];
		gid.interface[0] = '\0';
		if (entries[i].ndev_ifindex != 0 &&
		    if_indextoname(entries[i].ndev_ifindex, name) != NULL) {
			copy_name(gid.interface, sizeof(gid.interface), name);
		}
		found += add_gid(table, &gid);
	}
	if (found == 0) {
		gid.empty = true;
		(void)add_gid(table, &gid);
	}
}

static void scan_device(struct tw_verbs_table *table, struct ibv_device *device,
			struct ibv_gid_entry *entries)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr;
	if (context == NULL) {
		return; /* of another namespace, or going away */
	}
	if (ibv_query_device(context, &attr) == 0) {
		const ssize_t n = ibv_query_gid_table(context, entries, TW_VERBS_GIDS_MAX, 0);
		for (unsigned int port = 1; port <= attr.phys_port_cnt; port++) {
			scan_port(table, context, (uint8_t)port, entries, n);
		}
	}
	ibv_close_device(context);
}

int tw_verbs_scan(struct tw_verbs_table *table, struct tw_error *err)
{
	*table = (struct tw_verbs_table){ 0 };
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (list == NULL) {
		/* no RDMA in this kernel at all */
		return errno == ENOSYS || errno == ENOENT
			       ? TW_OK
			       : tw_fail_sys(err, TW_ESYS, "verbs: ibv_get_device_list");
	}
	int rc = TW_OK;
	struct ibv_gid_entry *entries = calloc(TW_VERBS_GIDS_MAX, sizeof(entries[0]));
	table->gids = calloc(TW_VERBS_GIDS_MAX, sizeof(table->gids[0]));
	if (entries == NULL || table->gids == NULL) {
		rc = tw_fail(err, TW_ENOMEM, "verbs: GID table: out of memory");
		tw_verbs_table_free(table);
	} else {
		table->devices = count > 0 ? (uint32_t)count : 0;
		for (int i = 0; i < count; i++) {
			scan_device(table, list[i], entries);
		}
	}
	free(entries);
	ibv_free_device_list(list);
	return rc;
}

void tw_verbs_table_free(struct tw_verbs_table *table)
{
	free(table->gids);
	*table = (struct tw_verbs_table){ 0 };
}

/* --- what a line's interface says of itself ---------------------------------------------------- */

static bool read_attribute(const char *interface, const char *name, char *out, size_t size)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "/sys/class/net/%.15s/%s", interface, name);
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		return false;
	}
	const bool ok = fgets(out, (int)size, f) != NULL;
	(void)fclose(f);
	return ok;
}

/* An IPoIB hardware address: 4 bytes of flags and QP number, then the port GID. */
static bool parse_hw_gid(const char *text, uint8_t gid[16])
{
	for (unsigned int i = 0; i < 20; i++) {
		char *end;
		const unsigned long byte = strtoul(text, &end, 16);
		if (end != text + 2 || byte > 255 || (i < 19 && *end != ':')) {
			return false;
		}
		if (i >= 4) {
			gid[i - 4] = (uint8_t)byte;
		}
		text = end + 1;
	}
	return true;
}

void tw_verbs_want(struct tw_verbs_want *want, const struct tw_fabric_line *line)
{
	char text[128];
	*want = (struct tw_verbs_want){ .address = line->address, .pkey = TW_VERBS_PKEY };
	copy_name(want->interface, sizeof(want->interface), line->interface);
	if (line->interface[0] == '\0') {
		return;
	}
	want->has_hw_gid = read_attribute(line->interface, "address", text, sizeof(text)) &&
			   parse_hw_gid(text, want->hw_gid);
	if (want->has_hw_gid && read_attribute(line->interface, "pkey", text, sizeof(text))) {
		const unsigned long pkey = strtoul(text, NULL, 16);
		want->pkey = (uint16_t)(pkey != 0 && pkey <= 0xffff ? pkey : TW_VERBS_PKEY);
	}
}

/* --- querying -------------------------------------------------------------------------------- */

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static uint32_t positive(int value)
{
	return value > 0 ? (uint32_t)value : 0;
}

static void query_pkey(struct tw_verbs_facts *facts, struct ibv_context *context, unsigned int n)
{
	for (unsigned int i = 0; i < n && !facts->pkey_there; i++) {
		__be16 be;
		if (ibv_query_pkey(context, facts->port, (int)i, &be) == 0 &&
		    ((__builtin_bswap16((uint16_t)be) ^ facts->pkey) & 0x7fffu) == 0) {
			facts->pkey_index = (uint16_t)i;
			facts->pkey_there = true;
		}
	}
}

static void query_clock(struct tw_verbs_facts *facts, struct ibv_context *context)
{
	struct ibv_device_attr_ex ex = { 0 };
	if (ibv_query_device_ex(context, NULL, &ex) != 0) {
		return;
	}
	facts->timestamp_mask = ex.completion_timestamp_mask;
	facts->clock_khz = ex.hca_core_clock;
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	facts->clock_readable = ibv_query_rt_values_ex(context, &values) == 0 &&
				(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0;
}

static void take_port(struct tw_verbs_facts *facts, const struct ibv_port_attr *port)
{
	facts->link = link_of(port);
	facts->state = port->state <= IBV_PORT_ACTIVE ? (enum tw_verbs_port_state)port->state
						      : TW_VERBS_PORT_NOP;
	facts->active_mtu_bytes = mtu_bytes(port->active_mtu);
	facts->max_mtu_bytes = mtu_bytes(port->max_mtu);
}

int tw_verbs_refresh(struct tw_verbs_facts *facts, struct ibv_context *context,
		     struct tw_error *err)
{
	struct ibv_port_attr port;
	const int cause = ibv_query_port(context, facts->port, &port);
	if (cause != 0) {
		errno = cause;
		return tw_fail_sys(err, TW_ESYS, "%s port %u: ibv_query_port", facts->device,
				   facts->port);
	}
	take_port(facts, &port);
	return TW_OK;
}

int tw_verbs_query(struct tw_verbs_facts *facts, struct ibv_context *context,
		   const struct tw_verbs_gid *gid, uint16_t pkey, struct tw_error *err)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	int cause = ibv_query_device(context, &device);
	const char *call = "ibv_query_device";
	if (cause == 0) {
		cause = ibv_query_port(context, gid->port, &port);
		call = "ibv_query_port";
	}
	if (cause != 0) {
		errno = cause;
		return tw_fail_sys(err, TW_ESYS, "%s port %u: %s", gid->device, gid->port, call);
	}
	*facts = (struct tw_verbs_facts){
		.transport = transport_of(context->device),
		.port = gid->port,
		.gid_index = gid->index,
		.max_qp_wr = positive(device.max_qp_wr),
		.max_cqe = positive(device.max_cqe),
		.max_sge = positive(device.max_sge),
		.max_qp = positive(device.max_qp),
		.max_rd_atomic = positive(device.max_qp_rd_atom),
		.max_init_rd_atomic = positive(device.max_qp_init_rd_atom),
		.max_srq = positive(device.max_srq),
		.max_srq_wr = positive(device.max_srq_wr),
		.max_mr_bytes = device.max_mr_size,
		.max_mcast_grp = positive(device.max_mcast_grp),
		.max_mcast_qp_attach = positive(device.max_mcast_qp_attach),
		.max_mcast_attach = positive(device.max_total_mcast_qp_attach),
		.pkey = pkey,
	};
	take_port(facts, &port);
	copy_name(facts->device, sizeof(facts->device), gid->device);
	copy_name(facts->interface, sizeof(facts->interface), gid->interface);
	copy_name(facts->firmware, sizeof(facts->firmware), device.fw_ver);
	memcpy(facts->gid, gid->raw, sizeof(facts->gid));
	query_pkey(facts, context, port.pkey_tbl_len);
	query_clock(facts, context);
	return TW_OK;
}

/* --- opening --------------------------------------------------------------------------------- */

static int open_named(struct tw_verbs_device *device, const char *name, struct tw_error *err)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (list == NULL) {
		return tw_fail_sys(err, TW_ESYS, "verbs: ibv_get_device_list");
	}
	struct ibv_device **d = list;
	while (*d != NULL && strcmp(ibv_get_device_name(*d), name) != 0) {
		d++;
	}
	int rc = TW_OK;
	if (*d == NULL) {
		rc = tw_fail(err, TW_ENOTFOUND, "verbs: %s: it is gone", name);
	} else {
		device->context = ibv_open_device(*d);
		if (device->context == NULL) {
			rc = tw_fail_sys(err,
					 errno == EACCES || errno == EPERM ? TW_EPERM : TW_ESYS,
					 "verbs: %s: ibv_open_device (may this user open "
					 "/dev/infiniband/uverbs*?)",
					 name);
		}
	}
	ibv_free_device_list(list);
	return rc;
}

int tw_verbs_open(struct tw_verbs_device *device, const struct tw_fabric_line *line,
		  const struct tw_verbs_need *need, struct tw_error *err)
{
	struct tw_verbs_table table;
	struct tw_verbs_want want;

	*device = (struct tw_verbs_device){ 0 };
	int rc = tw_verbs_scan(&table, err);
	if (rc < 0) {
		return rc;
	}
	tw_verbs_want(&want, line);
	rc = tw_verbs_choose(&table, &want, err);
	if (rc < 0 || table.gids == NULL) {
		goto undo_table;
	}
	const struct tw_verbs_gid *gid = &table.gids[rc];
	rc = open_named(device, gid->device, err);
	if (rc < 0 || device->context == NULL) {
		goto undo_table;
	}
	rc = tw_verbs_query(&device->facts, device->context, gid, want.pkey, err);
	if (rc == TW_OK) {
		rc = tw_verbs_check(&device->facts, need, err);
	}
	if (rc < 0) {
		tw_verbs_close(device);
	}
undo_table:
	tw_verbs_table_free(&table);
	return rc;
}

void tw_verbs_close(struct tw_verbs_device *device)
{
	if (device->context != NULL) {
		ibv_close_device(device->context);
	}
	*device = (struct tw_verbs_device){ 0 };
}

int tw_verbs_probe(struct tw_verbs_facts *facts, const struct tw_fabric_line *line,
		   const struct tw_verbs_need *need, struct tw_error *err)
{
	struct tw_verbs_device device;
	int rc = tw_verbs_open(&device, line, need, err);
	if (rc == TW_OK) {
		*facts = device.facts;
		tw_verbs_close(&device);
	}
	return rc;
}

int tw_verbs_inspect(struct tw_verbs_facts *facts, const struct tw_verbs_gid *gid,
		     struct tw_error *err)
{
	struct tw_verbs_device device = { .context = NULL };
	int rc = open_named(&device, gid->device, err);
	if (rc == TW_OK && device.context != NULL) {
		rc = tw_verbs_query(facts, device.context, gid, TW_VERBS_PKEY, err);
		tw_verbs_close(&device);
	}
	return rc;
}
