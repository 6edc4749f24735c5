/* Heads of repair over TCP: writing and validating them.  See repair_wire.h. */
#include "fabric/repair_wire.h"

#include <string.h>

static struct tw_rw_lead lead_of(enum tw_rw_kind kind)
{
	return (struct tw_rw_lead){ .magic = TW_RW_WIRE_MAGIC,
				    .version_major = TW_RW_WIRE_MAJOR,
				    .version_minor = TW_RW_WIRE_MINOR,
				    .kind = (uint8_t)kind };
}

void tw_rw_put_login(struct tw_rw_login_head *head, uint16_t environment, const char *name)
{
	memset(head, 0, sizeof(*head));
	head->lead = lead_of(TW_RW_LOGIN);
	head->lead.environment = environment;
	memcpy(head->name, name, strnlen(name, sizeof(head->name)));
}

void tw_rw_put_login_reply(struct tw_rw_login_head *head, uint16_t environment,
			   enum tw_rw_login result)
{
	memset(head, 0, sizeof(*head));
	head->lead = lead_of(TW_RW_LOGIN_REPLY);
	head->lead.environment = environment;
	head->lead.status = (uint8_t)result;
}

void tw_rw_put_read(struct tw_rw_read_head *head, const struct tw_read *read)
{
	memset(head, 0, sizeof(*head));
	head->lead = lead_of(TW_RW_READ);
	head->lead.channel = read->channel;
	head->id = read->id;
	head->session = read->session;
	head->publisher = read->by_seq ? 0 : read->publisher;
	head->flags = read->by_seq ? TW_RW_BY_SEQ : 0;
	head->begin = read->begin;
	head->end = read->end;
}

void tw_rw_put_reply(struct tw_rw_read_head *head, uint64_t id, enum tw_read_status status,
		     uint32_t bytes)
{
	memset(head, 0, sizeof(*head));
	head->lead = lead_of(TW_RW_READ_REPLY);
	head->lead.status = (uint8_t)status;
	head->lead.bytes = bytes;
	head->id = id;
}

/* It goes into logs and JSON as it is. */
static bool is_name(const char *name, size_t max_bytes, size_t *len_bytes)
{
	size_t len = strnlen(name, max_bytes);
	for (size_t i = 0; i < len; i++) {
		if (name[i] <= ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\') {
			return false;
		}
	}
	*len_bytes = len;
	return len > 0;
}

bool tw_rw_name_holds(const char *name)
{
	size_t len;
	return is_name(name, TW_READ_NAME_BYTES, &len) && len < TW_READ_NAME_BYTES;
}

bool tw_rw_read_holds(const struct tw_read *read)
{
	if (read->session == 0 || read->end <= read->begin) {
		return false;
	}
	if (read->by_seq) {
		return read->begin != 0;
	}
	return read->end - read->begin <= TW_READ_MAX_BYTES / TW_RW_UNIT_BYTES;
}

static bool all_zero(const void *data, size_t len_bytes)
{
	const uint8_t *bytes = data;
	uint8_t any = 0;
	for (size_t i = 0; i < len_bytes; i++) {
		any |= bytes[i];
	}
	return any == 0;
}

/* Magic and major first: whoever speaks another protocol or version is told apart from who lies. */
static enum tw_rw_verdict check_lead(const void *data, size_t len_bytes, enum tw_rw_kind kind)
{
	struct tw_rw_lead lead;
	if (len_bytes < TW_RW_HEAD_BYTES) {
		return TW_RW_SHORT;
	}
	memcpy(&lead, data, sizeof(lead));
	if (lead.magic != TW_RW_WIRE_MAGIC) {
		return TW_RW_MAGIC;
	}
	if (lead.version_major != TW_RW_WIRE_MAJOR) {
		return TW_RW_VERSION;
	}
	return lead.kind == kind ? TW_RW_WELL_FORMED : TW_RW_KIND;
}

enum tw_rw_verdict tw_rw_parse_login(const void *data, size_t len_bytes, uint16_t *environment,
				     char name[TW_READ_NAME_BYTES])
{
	struct tw_rw_login_head head;
	size_t len;
	enum tw_rw_verdict verdict = check_lead(data, len_bytes, TW_RW_LOGIN);
	if (verdict != TW_RW_WELL_FORMED) {
		return verdict;
	}
	memcpy(&head, data, sizeof(head));
	if (head.lead.status != 0 || head.lead.bytes != 0 || head.lead.channel != 0 ||
	    head.reserved != 0 || !is_name(head.name, sizeof(head.name), &len) ||
	    !all_zero(head.name + len, sizeof(head.name) - len)) {
		return TW_RW_FIELDS;
	}
	*environment = head.lead.environment;
	memset(name, 0, TW_READ_NAME_BYTES);
	memcpy(name, head.name, len);
	return TW_RW_WELL_FORMED;
}

enum tw_rw_verdict tw_rw_parse_login_reply(const void *data, size_t len_bytes, uint16_t environment,
					   enum tw_rw_login *result)
{
	struct tw_rw_login_head head;
	enum tw_rw_verdict verdict = check_lead(data, len_bytes, TW_RW_LOGIN_REPLY);
	/* a refusal for its version comes from another version */
	if (verdict != TW_RW_WELL_FORMED) {
		return verdict;
	}
	memcpy(&head, data, sizeof(head));
	if (head.lead.status >= TW_LOGIN_RESULTS || head.lead.bytes != 0 ||
	    head.lead.channel != 0 || head.reserved != 0 ||
	    !all_zero(head.name, sizeof(head.name))) {
		return TW_RW_FIELDS;
	}
	if (head.lead.status == TW_LOGIN_OK && head.lead.environment != environment) {
		return TW_RW_FIELDS;
	}
	*result = (enum tw_rw_login)head.lead.status;
	return TW_RW_WELL_FORMED;
}

enum tw_rw_verdict tw_rw_parse_read(const void *data, size_t len_bytes, struct tw_read *out)
{
	struct tw_rw_read_head head;
	enum tw_rw_verdict verdict = check_lead(data, len_bytes, TW_RW_READ);
	if (verdict != TW_RW_WELL_FORMED) {
		return verdict;
	}
	memcpy(&head, data, sizeof(head));
	struct tw_read read = { .id = head.id,
				.channel = head.lead.channel,
				.by_seq = head.flags == TW_RW_BY_SEQ,
				.session = head.session,
				.publisher = head.publisher,
				.begin = head.begin,
				.end = head.end };
	if (head.lead.status != 0 || head.lead.bytes != 0 || head.lead.environment != 0 ||
	    head.flags > TW_RW_BY_SEQ || (read.by_seq && read.publisher != 0) ||
	    head.reserved != 0 || !tw_rw_read_holds(&read)) {
		return TW_RW_FIELDS;
	}
	*out = read;
	return TW_RW_WELL_FORMED;
}

enum tw_rw_verdict tw_rw_parse_reply(const void *data, size_t len_bytes,
				     const struct tw_read *asked, enum tw_read_status *status,
				     uint32_t *bytes)
{
	struct tw_rw_read_head head;
	enum tw_rw_verdict verdict = check_lead(data, len_bytes, TW_RW_READ_REPLY);
	if (verdict != TW_RW_WELL_FORMED) {
		return verdict;
	}
	memcpy(&head, data, sizeof(head));
	uint64_t whole = (asked->end - asked->begin) * TW_RW_UNIT_BYTES;
	bool fits = asked->by_seq
			    ? head.lead.bytes > 0 && head.lead.bytes <= TW_READ_MAX_BYTES &&
				      head.lead.bytes % TW_RW_UNIT_BYTES == 0
			    : head.lead.bytes == whole && head.lead.bytes <= TW_READ_MAX_BYTES;
	if (head.lead.status != TW_READ_OK) {
		fits = head.lead.bytes == 0;
	}
	/* a server has nothing to say about connections */
	if (!fits || head.lead.status >= TW_READ_BROKEN || head.lead.environment != 0 ||
	    head.lead.channel != 0 || head.id != asked->id || head.session != 0 ||
	    head.publisher != 0 || head.flags != 0 || head.begin != 0 || head.end != 0 ||
	    head.reserved != 0) {
		return TW_RW_FIELDS;
	}
	*status = (enum tw_read_status)head.lead.status;
	*bytes = head.lead.bytes;
	return TW_RW_WELL_FORMED;
}
