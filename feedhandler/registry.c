/* The tables of inputs, session layers and protocols; see registry.h. */
#include "feedhandler/registry.h"

#include <string.h>

#include "base/fail.h"
#include "config/config.h"

static const struct tw_protocol *const protocols[] = { &tw_protocol_tops16, &tw_protocol_itch50 };
static const struct tw_session *const sessions[] = { &tw_session_iextp, &tw_session_moldudp64,
						     &tw_session_binaryfile };

static bool file_configured(const struct tw_site_feedhandler *conf)
{
	return conf->files != NULL;
}

static int file_open(struct tw_input **input_p, const struct tw_site *site,
		     const struct tw_site_feedhandler *conf, struct tw_error *err)
{
	(void)site;
	return tw_input_files_open(input_p, conf->files, conf->trading_date, err);
}

static bool multicast_configured(const struct tw_site_feedhandler *conf)
{
	return conf->multicast[0] != 0;
}

/* Interfaces that are not named are the host's own lines. */
static int multicast_open(struct tw_input **input_p, const struct tw_site *site,
			  const struct tw_site_feedhandler *conf, struct tw_error *err)
{
	const struct tw_site_host *host = &site->hosts[conf->host];
	struct tw_input_multicast_conf mc = {
		.lines = conf->multicast[1] != 0 ? 2 : 1,
		.receive_buffer_bytes = site->fabric.receive_buffer_kbytes * 1024u,
	};
	_Static_assert(sizeof(mc.line[0].interface) == sizeof(conf->interfaces[0]), "interface");
	for (uint32_t l = 0; l < mc.lines; l++) {
		const char *interface = conf->interfaces[l];
		if (interface[0] == '\0') {
			interface = host->lines[host->lines[l][0] != '\0' ? l : 0];
		}
		mc.line[l].group = tw_endpoint_address(conf->multicast[l]);
		mc.line[l].port = tw_endpoint_port(conf->multicast[l]);
		memcpy(mc.line[l].interface, interface, strnlen(interface, 15) + 1);
	}
	return tw_input_multicast_open(input_p, &mc, err);
}

static const struct tw_input_kind inputs[] = {
	{ .name = "file",
	  .help = "captures (pcap, pcapng) and Nasdaq BinaryFILEs, or gzip of them",
	  .configured = file_configured,
	  .open = file_open },
	{ .name = "multicast",
	  .help = "a venue's own UDP multicast, one line or two, live",
	  .configured = multicast_configured,
	  .open = multicast_open },
};

#define COUNT_OF(table) (sizeof(table) / sizeof((table)[0]))

/* "a, b, c" of names, cut where the text is full. */
static void append_name(char *text, size_t size, const char *name)
{
	size_t used = strlen(text);
	(void)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ", name);
}

int tw_registry_protocol(const struct tw_protocol **protocol_p, const char *name,
			 struct tw_error *err)
{
	char known[128] = "";
	for (size_t i = 0; i < COUNT_OF(protocols); i++) {
		if (strcmp(protocols[i]->name, name) == 0) {
			*protocol_p = protocols[i];
			return TW_OK;
		}
		append_name(known, sizeof(known), protocols[i]->name);
	}
	return tw_fail(err, TW_ECONFIG, "protocol '%s': not known, there are: %s", name, known);
}

int tw_registry_session(const struct tw_session **session_p, const char *name,
			const struct tw_protocol *protocol, struct tw_error *err)
{
	char known[128] = "";
	if (name == NULL || name[0] == '\0') {
		name = protocol->session;
	}
	for (size_t i = 0; i < COUNT_OF(sessions); i++) {
		if (strcmp(sessions[i]->name, name) == 0) {
			*session_p = sessions[i];
			return TW_OK;
		}
		append_name(known, sizeof(known), sessions[i]->name);
	}
	return tw_fail(err, TW_ECONFIG, "session '%s': not known, there are: %s", name, known);
}

int tw_registry_input(const struct tw_input_kind **kind_p, const struct tw_site_feedhandler *conf,
		      struct tw_error *err)
{
	char known[128] = "";
	for (size_t i = 0; i < COUNT_OF(inputs); i++) {
		if (inputs[i].configured(conf)) {
			*kind_p = &inputs[i];
			return TW_OK;
		}
		append_name(known, sizeof(known), inputs[i].name);
	}
	return tw_fail(err, TW_ECONFIG, "feedhandler %s: no input configured, there are: %s",
		       conf->name, known);
}

void tw_registry_print(FILE *out)
{
	(void)fprintf(out, "protocols:\n");
	for (size_t i = 0; i < COUNT_OF(protocols); i++) {
		(void)fprintf(out, "  %-12s %s (session %s)\n", protocols[i]->name,
			      protocols[i]->help, protocols[i]->session);
	}
	(void)fprintf(out, "sessions:\n");
	for (size_t i = 0; i < COUNT_OF(sessions); i++) {
		(void)fprintf(out, "  %-12s %s\n", sessions[i]->name, sessions[i]->help);
	}
	(void)fprintf(out, "inputs:\n");
	for (size_t i = 0; i < COUNT_OF(inputs); i++) {
		(void)fprintf(out, "  %-12s %s\n", inputs[i].name, inputs[i].help);
	}
}
