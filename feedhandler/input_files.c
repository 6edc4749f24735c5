/* Several recordings as one input: the next begins where the one before ends.
 *
 * Threads   one.  Between two recordings the hot thread opens the next one: there, and nowhere else, it
 *           allocates and enters the kernel for more than reading. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "feedhandler/input.h"

struct files {
	struct tw_input input;
	char *const *paths; /* the caller's; NULL-terminated */
	size_t next_idx;
	uint32_t trading_date;
	struct tw_input *current;
	struct tw_input_counts before; /* of the files that have ended */
};

static void add_up(struct files *files)
{
	const struct tw_input_counts *now = &files->current->counts;
	files->input.counts = (struct tw_input_counts){
		.packets = files->before.packets + now->packets,
		.bytes = files->before.bytes + now->bytes,
		.foreign = files->before.foreign + now->foreign,
		.malformed = files->before.malformed + now->malformed,
		.truncated = files->before.truncated + now->truncated,
	};
}

/* TW_OK, which is 0; on failure the file before stays. */
static int switch_to(struct files *files, const char *path, struct tw_error *err)
{
	struct tw_input *next;
	int rc = tw_input_recording_open(&next, path, files->trading_date, err);
	if (rc != TW_OK) {
		return rc;
	}
	const char *session = next->session != NULL ? next->session : "";
	if (files->current == NULL) {
		files->input.session = next->session;
	} else if (strcmp(session, files->input.session != NULL ? files->input.session : "") != 0) {
		tw_input_close(next);
		return tw_fail(err, TW_EFORMAT,
			       "%s: captures and BinaryFILEs cannot be played as one stream", path);
	}
	tw_input_close(files->current);
	files->current = next;
	return TW_OK;
}

static int files_next(struct tw_input *input, struct tw_packet *packet, struct tw_error *err)
{
	struct files *files = (struct files *)input; /* input is its first member */
	files->current->unpaced = input->unpaced;
	files->current->show = input->show;
	files->current->show_ctx = input->show_ctx;
	int rc = tw_input_next(files->current, packet, err);
	add_up(files);
	if (rc != TW_ECLOSED) {
		return rc;
	}
	if (input->warning.code == TW_OK) { /* the first one stands */
		input->warning = files->current->warning;
	}
	if (files->paths[files->next_idx] == NULL) {
		return rc;
	}
	files->before = input->counts;
	input->parts++;
	return switch_to(files, files->paths[files->next_idx++], err);
}

static void files_close(struct tw_input *input)
{
	struct files *files = (struct files *)input;
	tw_input_close(files->current);
	free(files);
}

static const struct tw_input_ops files_ops = { .next = files_next, .close = files_close };

int tw_input_files_open(struct tw_input **input_p, char *const *paths, uint32_t trading_date,
			struct tw_error *err)
{
	*input_p = NULL;
	struct files *files = calloc(1, sizeof(*files));
	if (files == NULL) {
		return tw_fail(err, TW_ENOMEM, "%s: out of memory", paths[0]);
	}
	files->input = (struct tw_input){ .ops = &files_ops, .waits = true, .parts = 1 };
	files->paths = paths;
	files->trading_date = trading_date;
	/* All of them, so that a wrong name shows at once and not after hours of replay. */
	size_t count = 0;
	int rc = TW_OK;
	while (rc == TW_OK && paths[count] != NULL) {
		rc = switch_to(files, paths[count++], err);
	}
	if (rc == TW_OK && count > 1) {
		rc = switch_to(files, paths[0], err);
	}
	if (rc != TW_OK) {
		files_close(&files->input);
		return rc;
	}
	files->next_idx = 1;
	*input_p = &files->input;
	return TW_OK;
}
