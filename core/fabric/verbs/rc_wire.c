/* Writing and validating what repair over RC has beyond TCP's heads.  See rc_wire.h. */
#include "fabric/verbs/rc_wire.h"

#include <string.h>

void tw_rc_put_hello(struct tw_rc_hello_head *head, uint16_t channel)
{
	*head = (struct tw_rc_hello_head){ .magic = TW_RC_HELLO_MAGIC,
					   .version_major = TW_RW_WIRE_MAJOR,
					   .version_minor = TW_RC_HELLO_MINOR,
					   .channel = channel };
}

/* The connection manager pads private data with zeros: more bytes than a hello are no mistake. */
enum tw_rw_verdict tw_rc_parse_hello(const void *data, size_t len_bytes, struct tw_rc_hello *out)
{
	struct tw_rc_hello_head head;
	if (data == NULL || len_bytes < sizeof(head)) {
		return TW_RW_SHORT;
	}
	memcpy(&head, data, sizeof(head));
	if (head.magic != TW_RC_HELLO_MAGIC) {
		return TW_RW_MAGIC;
	}
	if (head.version_major != TW_RW_WIRE_MAJOR) {
		return TW_RW_VERSION;
	}
	if (head.reserved != 0) {
		return TW_RW_FIELDS;
	}
	*out = (struct tw_rc_hello){ .channel = head.channel,
				     .takes_probes = head.version_minor >= TW_RC_HELLO_MINOR };
	return TW_RW_WELL_FORMED;
}

uint32_t tw_rc_put_login_reply(void *out, uint16_t environment, enum tw_rw_login result,
			       const struct tw_rc_grant *grants, uint32_t count)
{
	struct tw_rw_login_head head;
	tw_rw_put_login_reply(&head, environment, result);
	head.lead.bytes = count * TW_RC_GRANT_BYTES;
	memcpy(out, &head, sizeof(head));
	for (uint32_t i = 0; i < count; i++) {
		const struct tw_rc_grant *from = &grants[i];
		struct tw_rc_grant_head grant = {
			.channel = from->channel,
			.flags = from->one_sided ? TW_RC_GRANT_ONESIDED : 0,
			.publisher = from->publisher,
			.session = from->session,
			.control_addr = from->control_addr,
			.log_addr = from->log_addr,
			.units = from->units,
			.rkey = from->rkey,
		};
		memcpy((uint8_t *)out + TW_RW_HEAD_BYTES + (size_t)i * TW_RC_GRANT_BYTES, &grant,
		       sizeof(grant));
	}
	return TW_RW_HEAD_BYTES + head.lead.bytes;
}

/* Addresses are the server's: all that can be said here is that what they span does not wrap around. */
static bool place_holds(const struct tw_rc_grant_head *head)
{
	uint64_t unit = TW_RW_UNIT_BYTES;
	return (head->session != 0 || head->publisher == 0) && head->units != 0 &&
	       head->units <= TW_RC_UNITS_MAX && head->control_addr % unit == 0 &&
	       head->log_addr % unit == 0 && head->control_addr <= UINT64_MAX - unit &&
	       head->log_addr <= UINT64_MAX - head->units * unit;
}

static bool take_grant(const uint8_t *data, struct tw_rc_grant *out)
{
	static const struct tw_rc_grant_head nothing = { 0 };
	struct tw_rc_grant_head head;
	memcpy(&head, data, sizeof(head));
	*out = (struct tw_rc_grant){ .channel = head.channel,
				     .one_sided = head.flags == TW_RC_GRANT_ONESIDED,
				     .publisher = head.publisher,
				     .rkey = head.rkey,
				     .session = head.session,
				     .control_addr = head.control_addr,
				     .log_addr = head.log_addr,
				     .units = head.units };
	if (out->one_sided) {
		return head.reserved == 0 && head.more[0] == 0 && head.more[1] == 0 &&
		       place_holds(&head);
	}
	head.channel = 0;
	return memcmp(&head, &nothing, sizeof(head)) == 0; /* and no flag that we do not know */
}

static bool has_channel(const struct tw_rc_grant *grants, uint32_t count, uint16_t channel)
{
	for (uint32_t i = 0; i < count; i++) {
		if (grants[i].channel == channel) {
			return true;
		}
	}
	return false;
}

enum tw_rw_verdict tw_rc_parse_login_reply(const void *data, size_t len_bytes, uint16_t environment,
					   enum tw_rw_login *result, struct tw_rc_grant *grants,
					   uint32_t *count)
{
	struct tw_rw_login_head head;
	if (len_bytes < sizeof(head)) {
		return TW_RW_SHORT;
	}
	memcpy(&head, data, sizeof(head));
	uint32_t bytes = head.lead.bytes;
	head.lead.bytes = 0; /* over TCP there are none */
	enum tw_rw_verdict verdict =
		tw_rw_parse_login_reply(&head, sizeof(head), environment, result);
	if (verdict != TW_RW_WELL_FORMED) {
		return verdict;
	}
	uint32_t n = bytes / TW_RC_GRANT_BYTES;
	if (bytes % TW_RC_GRANT_BYTES != 0 || n > TW_RC_CHANNELS_MAX ||
	    len_bytes != sizeof(head) + bytes || (n == 0) != (*result != TW_LOGIN_OK)) {
		return TW_RW_FIELDS;
	}
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *at =
			(const uint8_t *)data + sizeof(head) + (size_t)i * TW_RC_GRANT_BYTES;
		if (!take_grant(at, &grants[i]) || has_channel(grants, i, grants[i].channel)) {
			return TW_RW_FIELDS;
		}
	}
	*count = n;
	return TW_RW_WELL_FORMED;
}
