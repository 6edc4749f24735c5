/* The tables of inputs, session layers and protocols; see registry.h. */
#include "feedhandler/registry.h"

#include <string.h>

#include "base/fail.h"
#include "config/config.h"

static const struct tw_protocol *const protocols[] = { &tw_protocol_tops16 };
static const struct tw_session *const sessions[] = { &tw_session_iextp };

static bool file_configured(const struct tw_site_feedhandler *conf)
{
	return conf->files != NULL;
}

static int file_open(struct tw_input **input_p, const struct tw_site_feedhandler *conf,
		     struct tw_error *err)
{
	return tw_input_files_open(input_p, conf->files, err);
}

static const struct tw_input_kind inputs[] = {
	{ .name = "file",
	  .help = "captures: pcap, pcapng, gzip of either",
	  .configured = file_configured,
	  .open = file_open },
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
