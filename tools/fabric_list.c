/* What RDMA devices this machine has; see fabric_tool.h. */
#include <arpa/inet.h>
#include <string.h>

#include "fabric/verbs/device.h"
#include "tools/fabric_tool.h"
#include "wire/format.h"

static bool same_port(const struct tw_verbs_gid *a, const struct tw_verbs_gid *b)
{
	return a->port == b->port && strcmp(a->device, b->device) == 0;
}

static bool multicast(const struct tw_verbs_facts *f)
{
	return f->transport == TW_VERBS_IB && f->max_mcast_grp > 0 && f->max_mcast_qp_attach > 0;
}

static void port_text(FILE *out, const struct tw_verbs_facts *f)
{
	fprintf(out, "%s port %u: %s, %s, MTU %u of %u", f->device, f->port,
		tw_verbs_port_state_name(f->state), tw_verbs_link_name(f->link),
		f->active_mtu_bytes, f->max_mtu_bytes);
	if (f->firmware[0] != '\0') {
		fprintf(out, ", firmware %s", f->firmware);
	}
	if (multicast(f)) {
		fprintf(out, "\n  multicast: %u groups, %u queue pairs on a group",
			f->max_mcast_grp, f->max_mcast_qp_attach);
	} else {
		fprintf(out, "\n  no multicast%s: use fabric.transport: udp",
			f->transport == TW_VERBS_IWARP ? " (iWARP)" : "");
	}
	fprintf(out, "\n  receive queues up to %u, completion queues up to %u\n", f->max_qp_wr,
		f->max_cqe);
	if (f->timestamp_mask != 0) {
		fprintf(out, "  hardware timestamps: clock of %llu kHz%s\n",
			(unsigned long long)f->clock_khz,
			f->clock_readable ? "" : ", which cannot be read: not used");
	} else {
		fputs("  no hardware timestamps\n", out);
	}
}

static void port_json(FILE *out, const struct tw_verbs_facts *f)
{
	fputs("{\"device\":", out);
	tw_format_json_text(out, f->device);
	fputs(",\"firmware\":", out);
	tw_format_json_text(out, f->firmware);
	fprintf(out,
		",\"port\":%u,\"state\":\"%s\",\"link\":\"%s\","
		"\"transport\":\"%s\",\"active_mtu_bytes\":%u,"
		"\"max_mtu_bytes\":%u,\"multicast\":%s,\"max_mcast_grp\":%u,"
		"\"max_mcast_qp_attach\":%u,\"max_qp_wr\":%u,\"max_cqe\":%u,\"timestamps\":%s,"
		"\"clock_khz\":%llu,\"gids\":[",
		f->port, tw_verbs_port_state_name(f->state), tw_verbs_link_name(f->link),
		tw_verbs_transport_name(f->transport), f->active_mtu_bytes, f->max_mtu_bytes,
		multicast(f) ? "true" : "false", f->max_mcast_grp, f->max_mcast_qp_attach,
		f->max_qp_wr, f->max_cqe,
		f->timestamp_mask != 0 && f->clock_readable ? "true" : "false",
		(unsigned long long)f->clock_khz);
}

static void gid_line(FILE *out, const struct tw_verbs_gid *gid, bool json, bool first)
{
	char raw[INET6_ADDRSTRLEN] = "?", text[192];
	if (gid->empty) {
		fputs(json ? "" : "  no GID\n", out);
		return;
	}
	(void)inet_ntop(AF_INET6, gid->raw, raw, sizeof(raw));
	if (json) {
		fprintf(out, "%s{\"index\":%u,\"gid\":\"%s\",\"type\":\"%s\",\"interface\":",
			first ? "" : ",", gid->index, raw, tw_verbs_gid_type_name(gid->type));
		tw_format_json_text(out, gid->interface);
		fputc('}', out);
	} else {
		tw_verbs_gid_text(gid, text, sizeof(text));
		const char *index = strstr(text, "index ");
		fprintf(out, "  GID %s\n", index != NULL ? index : text);
	}
}

/* The entries of a port are neighbours in the table. */
static void list_port(FILE *out, const struct tw_verbs_table *table, uint32_t first, bool json,
		      const char *comma)
{
	struct tw_verbs_facts facts;
	struct tw_error err;
	const struct tw_verbs_gid *port = &table->gids[first];
	if (tw_verbs_inspect(&facts, port, &err) != TW_OK) {
		fprintf(stderr, "tw-fabric: %s\n", err.text);
		return;
	}
	if (json) {
		fputs(comma, out);
		port_json(out, &facts);
	} else {
		port_text(out, &facts);
	}
	for (uint32_t i = first; i < table->count && same_port(&table->gids[i], port); i++) {
		gid_line(out, &table->gids[i], json, i == first);
	}
	fputs(json ? "]}" : "", out);
}

int tw_fabric_list(FILE *out, bool json, struct tw_error *err)
{
	struct tw_verbs_table table;
	int rc = tw_verbs_scan(&table, err);
	if (rc != TW_OK) {
		return rc;
	}
	fputs(json ? "{\"ports\":[" : "", out);
	for (uint32_t i = 0; i < table.count; i++) {
		if (i == 0 || !same_port(&table.gids[i], &table.gids[i - 1])) {
			list_port(out, &table, i, json, i == 0 ? "" : ",");
		}
	}
	if (json) {
		fputs("]}\n", out);
	} else if (table.devices == 0) {
		fputs("no RDMA device: fabric.transport: udp is the way here\n", out);
	}
	tw_verbs_table_free(&table);
	return TW_OK;
}
