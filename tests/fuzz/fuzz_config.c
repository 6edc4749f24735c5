/* A site file of any bytes becomes a site or one line of error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *sink;
	struct tw_site *site;
	struct tw_error err = { 0 };
	char why[128];
	int rc = tw_site_parse(&site, "f.yaml", data, size, &err);
	require((rc == TW_OK) == (site != NULL));
	if (rc < 0) {
		require(rc == TW_ECONFIG && err.code == rc);
		require(strncmp(err.text, "f.yaml:", 7) == 0);
		for (const char *c = err.text; *c != '\0'; c++) {
			require(*c >= ' ' && *c < 0x7f);
		}
		return 0;
	}
	require(site->host_count > 0 && site->channel_count > 0 && site->environment_id != 0);
	(void)tw_site_find_publisher(site, NULL, why, NULL);
	(void)tw_site_find_feedhandler(site, site->hosts[0].name, why, NULL);
	for (uint32_t i = 0; i < site->host_count; i++) {
		require(tw_site_hot_threads(site, i) > 0);
	}
	if (sink == NULL) {
		sink = fopen("/dev/null", "we");
	}
	if (sink != NULL) {
		require(tw_site_show(site, sink) == TW_OK);
	}
	tw_site_free(site);
	return 0;
}
