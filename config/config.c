#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/schema.h"

void tw_site_free(struct tw_site *site)
{
	if (site == NULL) {
		return;
	}
	for (uint32_t i = 0; i < site->channel_count; i++) {
		free(site->channels[i].symbols);
	}
	for (uint32_t i = 0; i < site->feedhandler_count; i++) {
		free(site->feedhandlers[i].files);
	}
	free(site->hosts);
	free(site->venues);
	free(site->channels);
	free(site->feedhandlers);
	free(site->publishers);
	if (site->origins != NULL) {
		free(site->origins->rows);
		free(site->origins);
	}
	free(site);
}

int tw_site_parse(struct tw_site **site_p, const char *path, const void *data, size_t len_bytes,
		  struct tw_error *err)
{
	struct tw_tree tree = { 0 };
	*site_p = NULL;
	if (strlen(path) >= TW_FILE_BYTES) {
		return tw_fail(err, TW_EARG, "site file: a path of more than %u bytes",
			       TW_FILE_BYTES - 1u);
	}
	struct tw_site *site = calloc(1, sizeof(*site));
	int rc = TW_ENOMEM;
	if (site == NULL || (site->origins = calloc(1, sizeof(*site->origins))) == NULL) {
		(void)tw_fail(err, rc, "%s: out of memory", path);
		goto undo_site;
	}
	memcpy(site->path, path, strlen(path) + 1u);
	rc = tw_tree_parse(&tree, path, data, len_bytes, err);
	if (rc < 0) {
		goto undo_site;
	}
	rc = tw_schema_bind(site, tree.root, err);
	if (rc == TW_OK) {
		rc = tw_site_check(site, err);
	}
	tw_tree_free(&tree);
	if (rc < 0) {
		goto undo_site;
	}
	*site_p = site;
	return TW_OK;

undo_site:
	tw_site_free(site);
	return rc;
}

static int fail_file(const char *path, const char *call, struct tw_error *err)
{
	int code = errno == ENOENT || errno == ENOTDIR ? TW_ENOTFOUND
		   : errno == EACCES || errno == EPERM ? TW_EPERM
						       : TW_ESYS;
	return tw_fail_sys(err, code, "%s: %s", path, call);
}

int tw_site_load(struct tw_site **site_p, const char *path, struct tw_error *err)
{
	const size_t room = TW_NODE_MAX_FILE_BYTES + 1u; /* one more shows that it is too long */
	*site_p = NULL;
	int rc;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return fail_file(path, "open", err);
	}
	char *data = malloc(room);
	if (data == NULL) {
		rc = tw_fail(err, TW_ENOMEM, "%s: out of memory", path);
		goto undo_open;
	}
	size_t used = 0;
	ssize_t n = 1;
	/* not by its size: a pipe has none */
	while (used < room && n != 0) {
		n = read(fd, data + used, room - used);
		if (n < 0 && errno != EINTR) {
			rc = fail_file(path, "read", err);
			goto undo_data;
		}
		used += n > 0 ? (size_t)n : 0;
	}
	rc = tw_site_parse(site_p, path, data, used, err);
undo_data:
	free(data);
undo_open:
	(void)close(fd);
	return rc;
}
