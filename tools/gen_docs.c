/* tw-gen-docs: writes what is generated from tables in the code and committed beside it, or says
 * whether the committed files are current. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/app.h"
#include "base/counters.h"
#include "base/fail.h"
#include "base/options.h"
#include "config/config.h"

static const char usage[] =
	"usage: tw-gen-docs [--check] [--root DIR]\n"
	"Writes docs/CONFIG.md, docs/COUNTERS.md and config/sample.yaml under DIR (the current "
	"folder).\n"
	"--check writes nothing, names the files that are not current and exits with status 1.\n";

static const struct {
	const char *path;
	void (*write)(FILE *out);
} files[] = {
	{ "docs/CONFIG.md", tw_config_document },
	{ "docs/COUNTERS.md", tw_counters_document },
	{ "config/sample.yaml", tw_config_sample },
};

/* The generated text; NULL where there is no memory. */
static char *generate(void (*write)(FILE *out), size_t *len_p)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, len_p);
	if (out == NULL) {
		return NULL;
	}
	write(out);
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* 0: the same, 1: differs or missing. */
static int compare(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		return 1;
	}
	size_t at = 0;
	int c;
	while ((c = fgetc(f)) != EOF && at < len && (unsigned char)text[at] == c) {
		at++;
	}
	bool same = c == EOF && ferror(f) == 0 && at == len;
	(void)fclose(f);
	return same ? 0 : 1;
}

/* By rename, so that nobody ever reads half a file. */
static int replace(const char *path, const char *text, size_t len)
{
	char draft[4096 + 8];
	(void)snprintf(draft, sizeof(draft), "%s.new", path);
	FILE *f = fopen(draft, "we");
	if (f == NULL) {
		return -1;
	}
	bool ok = fwrite(text, 1, len, f) == len;
	ok = fclose(f) == 0 && ok;
	if (!ok || rename(draft, path) != 0) {
		int saved = errno;
		(void)remove(draft);
		errno = saved;
		return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "check", no_argument, NULL, 'c' },
						 { "root", required_argument, NULL, 'r' },
						 { "help", no_argument, NULL, 'h' },
						 { "version", no_argument, NULL, 'V' },
						 { NULL, 0, NULL, 0 } };
	const char *root = ".";
	bool check = false;
	int stale = 0;
	int option;
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 'c':
			check = true;
			break;
		case 'r':
			root = optarg;
			break;
		case 'h':
			(void)fputs(usage, stdout);
			return EX_OK;
		case 'V':
			(void)printf("tw-gen-docs %s\n", TW_VERSION);
			return EX_OK;
		default:
			return tw_usage_error("tw-gen-docs", NULL);
		}
	}
	if (optind != argc) {
		struct tw_error err;
		(void)tw_fail(&err, TW_EARG, "unexpected argument '%s'", argv[optind]);
		return tw_usage_error("tw-gen-docs", &err);
	}
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[4096];
		size_t len = 0;
		if (snprintf(path, sizeof(path), "%s/%s", root, files[i].path) >=
		    (int)sizeof(path)) {
			(void)fprintf(stderr, "tw-gen-docs: %s: path too long\n", root);
			return EX_USAGE;
		}
		char *text = generate(files[i].write, &len);
		if (text == NULL) {
			(void)fprintf(stderr, "tw-gen-docs: %s: out of memory\n", files[i].path);
			return EX_OSERR;
		}
		int differs = compare(path, text, len);
		if (differs != 0 && check) {
			(void)printf("%s is not current: run tw-gen-docs\n", files[i].path);
			stale = 1;
		} else if (differs != 0 && replace(path, text, len) != 0) {
			(void)fprintf(stderr, "tw-gen-docs: %s: %s\n", path, strerror(errno));
			free(text);
			return EX_IOERR;
		}
		free(text);
	}
	return stale;
}
