/* A good site file becomes the struct that it says; the sample, finding entries, and input that is cut
 * off or damaged anywhere. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rundir.h"
#include "config/config.h"
#include "config/node.h"
#include "config/schema.h"
#include "tests/unit/config_text.h"

TestSuite(config, .timeout = 120);

#define IP(a, b, c, d) \
	((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

static const char minimal[] = "site: s\n"
			      "hosts: { h: { address: 10.0.0.1, lines: { a: e0 } } }\n"
			      "channels:\n  - { id: 1, name: c, groups: { a: 239.1.1.1 } }\n";

static struct tw_site *parse(const char *path, const char *text, size_t len)
{
	struct tw_site *site;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_site_parse(&site, path, text, len, &err), TW_OK, "%s", err.text);
	cr_assert_not_null(site);
	return site;
}

/* What a FILE writer writes. */
static char *written(void (*write)(FILE *out), size_t *len_p)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, len_p);
	cr_assert_not_null(out);
	write(out);
	cr_assert_eq(fclose(out), 0);
	return text;
}

static char *shown(const struct tw_site *site, int host)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	cr_assert_not_null(out);
	cr_assert_eq(host < 0 ? tw_site_show(site, out) : tw_site_show_host(site, host, out),
		     TW_OK);
	cr_assert_eq(fclose(out), 0);
	return text;
}

static void check_head(const struct tw_site *s)
{
	cr_expect_str_eq(s->path, "/srv/s.yaml");
	cr_expect_str_eq(s->name, "demo");
	cr_expect_not(s->production);
	cr_expect_str_eq(s->run_dir, "/tmp/tw-test");
	cr_expect_eq(s->idle, TW_IDLE_YIELD);
	cr_expect_eq(s->slow_turn_us, 250);
	cr_expect_eq(s->fabric.transport, TW_TRANSPORT_UDP);
	cr_expect_eq(s->fabric.mtu_bytes, 2048);
	cr_expect_eq(s->fabric.ttl, 3);
	cr_expect_eq(s->fabric.receive_buffer_kbytes, 2048);
	cr_expect_eq(s->fabric.gso, TW_GSO_OFF);
	cr_expect_eq(s->fabric.partition_key, 0xffff);
	cr_expect_eq(s->fabric.live.dscp, 46);
	cr_expect_eq(s->fabric.live.priority, 5);
	cr_expect(s->fabric.live.pfc);
	cr_expect_not(s->fabric.live.ecn);
	cr_expect_eq(s->fabric.repair.dscp, 10);
	cr_expect_eq(s->fabric.repair.priority, 2);
	cr_expect_not(s->fabric.repair.pfc);
	cr_expect_not(s->fabric.repair.ecn);
}

static void check_lists(const struct tw_site *s)
{
	cr_assert_eq(s->host_count, 2);
	cr_expect_str_eq(s->hosts[0].name, "md1");
	cr_expect_eq(s->hosts[0].address, IP(10, 0, 0, 1));
	cr_expect_str_eq(s->hosts[0].lines[0], "eth2");
	cr_expect_str_eq(s->hosts[0].lines[1], "eth3");
	cr_expect_eq(s->hosts[0].cpu_publisher, 2);
	cr_expect_eq(s->hosts[0].cpu_repair, 3);
	cr_expect_eq(s->hosts[0].cpu_feedhandler, 4);
	cr_expect_eq(s->hosts[0].cpu_subscriber, 5);
	cr_expect_str_eq(s->hosts[1].name, "ts1");
	cr_expect_eq(s->hosts[1].address, IP(10, 0, 0, 2));
	cr_expect_str_eq(s->hosts[1].lines[0], "eth0");
	cr_expect_str_eq(s->hosts[1].lines[1], "eth0");
	cr_expect_eq(s->hosts[1].cpu_publisher, -1);
	cr_expect_eq(s->hosts[1].cpu_repair, -1);
	cr_expect_eq(s->hosts[1].cpu_feedhandler, -1);
	cr_expect_eq(s->hosts[1].cpu_subscriber, -1);
	cr_assert_eq(s->venue_count, 2);
	cr_expect_eq(s->venues[0].id, 1);
	cr_expect_str_eq(s->venues[0].mic, "IEXG");
	cr_expect_eq(s->venues[1].id, 7);
	cr_expect_str_eq(s->venues[1].mic, "XNAS");
	cr_assert_eq(s->channel_count, 2);
	const struct tw_site_channel *c = s->channels;
	cr_expect_eq(c[0].id, 1);
	cr_expect_str_eq(c[0].name, "iex-quotes");
	cr_expect_eq(c[0].depth, TW_DEPTH_QUOTES);
	cr_expect_eq(c[0].lines, 2);
	cr_expect_eq(c[0].groups[0], IP(239, 192, 1, 1));
	cr_expect_eq(c[0].groups[1], IP(239, 192, 129, 1));
	cr_expect_str_eq(c[0].symbols[0], "*");
	cr_expect_null(c[0].symbols[1]);
	cr_expect_eq(c[1].id, 2);
	cr_expect_str_eq(c[1].name, "iex-levels");
	cr_expect_eq(c[1].depth, TW_DEPTH_LEVELS);
	cr_expect_eq(c[1].levels, 5);
	cr_expect_eq(c[1].lines, 1);
	cr_expect_eq(c[1].groups[0], IP(239, 192, 2, 1));
	cr_expect_eq(c[1].groups[1], 0);
	cr_expect_str_eq(c[1].symbols[0], "AAPL"); /* sorted */
	cr_expect_str_eq(c[1].symbols[1], "BRK.B");
	cr_expect_str_eq(c[1].symbols[2], "ZVZZT");
	cr_expect_null(c[1].symbols[3]);
}

static void check_processes(const struct tw_site *s)
{
	cr_assert_eq(s->feedhandler_count, 1);
	const struct tw_site_feedhandler *f = s->feedhandlers;
	cr_expect_str_eq(f->name, "iex");
	cr_expect_eq(f->host, 0);
	cr_expect_eq(f->venue_id, 7);
	cr_expect_str_eq(f->protocol, "tops16");
	cr_expect_str_eq(f->session, "iextp");
	cr_expect_str_eq(f->files[0], "/srv/caps/a.pcap.gz");
	cr_expect_null(f->files[1]);
	cr_expect_not(f->restamp);
	cr_expect_eq(f->speed_pct, 400);
	cr_expect_eq(f->rate_msgs, 1000);
	cr_expect_str_eq(f->directory, "/etc/iex.symbols");
	cr_expect_eq(f->bus_kbytes, 1024);
	cr_expect_eq(f->wait_publisher_ms, 5);
	cr_assert_eq(f->channel_count, 2);
	cr_expect_eq(f->channels[0], 1);
	cr_expect_eq(f->channels[1], 0);
	cr_assert_eq(s->publisher_count, 1);
	const struct tw_site_publisher *p = s->publishers;
	cr_expect_str_eq(p->name, "pub1");
	cr_expect_eq(p->host, 0);
	cr_assert_eq(p->channel_count, 2);
	cr_expect_eq(p->channels[0], 0);
	cr_expect_eq(p->channels[1], 1);
	cr_expect_eq(p->history_ms, 500);
	cr_expect_eq(p->peak_mbps, 40);
	/* 0.5 s at 40 Mbit/s, in whole units of 64 bytes */
	cr_expect_eq(p->history_bytes, 2500032);
	cr_expect_eq(p->heartbeat_min_us, 300);
	cr_expect_eq(p->heartbeat_ms, 50);
	cr_expect_eq(p->repair_port, 5000);
	cr_expect_eq(p->repair_clients, 9);
	cr_expect_eq(p->repair_max_mbps, 300);
	cr_expect_eq(p->repair_client_max_mbps, 30);
	cr_expect(p->repairs);
}

static void check_tail(const struct tw_site *s)
{
	cr_assert_eq(s->subscriber.repair_count, 1);
	cr_expect_eq(s->subscriber.repair[0], 0);
	cr_expect_eq(s->subscriber.wait_us, 77);
	cr_expect_eq(s->subscriber.start, TW_START_LIVE);
	cr_expect_eq(s->subscriber.mode, TW_SITE_LATEST);
	cr_expect(s->channels[0].latest, "as the site says");
	cr_expect_not(s->channels[1].latest, "as it says itself");
	cr_expect(s->subscriber.accept_replay);
	cr_expect_eq(s->subscriber.store_dgrams, 64);
	cr_expect_eq(s->subscriber.session_takeover_ms, 900);
	cr_expect_eq(s->subscriber.give_up_ms, 250);
	cr_expect_eq(s->subscriber.retry_min_ms, 3);
	cr_expect_eq(s->subscriber.retry_max_ms, 40);
	cr_expect_eq(s->subscriber.max_mbps, 70);
	cr_expect_eq(s->subscriber.attempts, 6);
	cr_expect_eq(s->subscriber.read_kbytes, 32);
	cr_expect_eq(s->fault.seed, 16);
	cr_expect_eq(s->fault.correlated_loss_ppm, 2500);
	cr_expect_eq(s->fault.reorder_ns, 30000);
	cr_expect_eq(s->fault.lines[0].loss_ppm, 15000);
	cr_expect_eq(s->fault.lines[0].duplicate_ppm, 1);
	cr_expect_eq(s->fault.lines[0].reorder_ppm, 1000000);
	cr_expect_eq(s->fault.lines[0].delay_ns, 4000);
	cr_expect_eq(s->fault.lines[0].cut_begin_seq, 7);
	cr_expect_eq(s->fault.lines[0].cut_end_seq, UINT64_MAX);
	cr_expect_eq(s->fault.lines[1].loss_ppm, 20000);
	cr_expect_eq(s->fault.lines[1].duplicate_ppm, 30000);
	cr_expect_eq(s->fault.lines[1].reorder_ppm, 40500);
	cr_expect_eq(s->fault.lines[1].delay_ns, 5000);
}

Test(config, every_field)
{
	struct tw_site *site = parse("/srv/s.yaml", full_site, sizeof(full_site) - 1u);
	check_head(site);
	check_lists(site);
	check_processes(site);
	check_tail(site);
	tw_site_free(site);
	/* with the line ends of another system, and a byte order mark, it is the same file */
	char *crlf = malloc(2u * sizeof(full_site) + 3u);
	cr_assert_not_null(crlf);
	char *end = stpcpy(crlf, "\xef\xbb\xbf");
	for (const char *c = full_site; *c != '\0'; c++) {
		if (*c == '\n') {
			*end++ = '\r';
		}
		*end++ = *c;
	}
	site = parse("/srv/s.yaml", crlf, (size_t)(end - crlf));
	check_head(site);
	check_lists(site);
	check_processes(site);
	check_tail(site);
	cr_expect_eq(tw_origin_line(site, &site->fault.reorder_ns), 50);
	tw_site_free(site);
	free(crlf);
	tw_site_free(NULL);
	NO_LEAKS();
}

Test(config, defaults)
{
	char run_dir[TW_PATH_BYTES];
	struct tw_site *s = parse("s.yaml", minimal, sizeof(minimal) - 1u);
	tw_rundir_default(run_dir);
	cr_expect_not(s->production);
	cr_expect_str_eq(s->run_dir, run_dir);
	cr_expect_eq(s->idle, TW_IDLE_AUTO);
	cr_expect_eq(s->fabric.transport, TW_TRANSPORT_AUTO);
	cr_expect_eq(s->fabric.mtu_bytes, 1024);
	cr_expect_eq(s->fabric.live.dscp, 34);
	cr_expect_eq(s->fabric.repair.dscp, 26);
	cr_expect_eq(s->hosts[0].cpu_publisher, -1);
	cr_expect_eq(s->hosts[0].lines[1][0], '\0');
	cr_expect_eq(s->channels[0].lines, 1);
	cr_expect_str_eq(s->channels[0].symbols[0], "*");
	cr_expect_eq(s->subscriber.start, TW_START_SESSION);
	cr_expect_eq(s->subscriber.mode, TW_SITE_ORDERED);
	cr_expect_not(s->channels[0].latest);
	cr_expect_eq(s->subscriber.give_up_ms, 2000);
	cr_expect_eq(s->subscriber.read_kbytes, 64);
	cr_expect_not(s->subscriber.accept_replay);
	cr_expect_not(tw_fault_active(&s->fault));
	cr_expect_eq(s->venue_count + s->feedhandler_count + s->publisher_count, 0);
	tw_site_free(s);
	/* a file of the largest size is read, comments and all */
	char *large = malloc(TW_NODE_MAX_FILE_BYTES);
	cr_assert_not_null(large);
	memset(large, '#', TW_NODE_MAX_FILE_BYTES);
	memcpy(large, minimal, sizeof(minimal) - 1u);
	tw_site_free(parse("s.yaml", large, TW_NODE_MAX_FILE_BYTES));
	free(large);
	NO_LEAKS();
}

Test(config, environment_ids)
{
	static const char *const names[] = { "a", "b", "demo", "lo", "nyc4", "ld4", "ty3" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		uint16_t ids[2];
		for (int production = 0; production < 2; production++) {
			char text[256];
			int n = snprintf(text, sizeof(text), "site: %s\nenvironment: %s\n%s",
					 names[i], production != 0 ? "production" : "test",
					 minimal + 8);
			struct tw_site *s = parse("s.yaml", text, (size_t)n);
			ids[production] = s->environment_id;
			cr_expect_eq(s->production, production != 0);
			tw_site_free(s);
		}
		cr_expect_eq(ids[0] & 1, 0);
		cr_expect_neq(ids[0], 0);
		cr_expect_eq(ids[1], ids[0] | 1);
	}
	/* the wire depends on it: FNV-1a 64 of "demo", folded as docs/CONFIG.md says */
	struct tw_site *s = parse("s.yaml", full_site, sizeof(full_site) - 1u);
	cr_expect_eq(s->environment_id, 0x2b8c);
	tw_site_free(s);
	NO_LEAKS();
}

/* Lines of `show` without where their values came from. */
static void strip_origins(char *text)
{
	char *to = text;
	for (const char *line = text; *line != '\0';) {
		size_t all = strcspn(line, "\n") + 1u;
		const char *origin = memmem(line, all, "  # ", 4);
		cr_assert_not_null(origin);
		size_t n = (size_t)(origin - line);
		memmove(to, line, n);
		to += n;
		*to++ = '\n';
		line += all;
	}
	*to = '\0';
}

/* The sample with every "#key:" in the first column made a key. */
static char *uncommented(const char *sample, const char *but)
{
	char *text = strdup(sample), *to = text;
	cr_assert_not_null(text);
	for (const char *line = sample; *line != '\0';) {
		size_t n = strcspn(line, "\n") + 1u;
		bool prose = line[0] == '#' && line[1] == ' ' && line[2] != ' ';
		const char *skip = memmem(line, n, but, strlen(but));
		size_t drop = line[0] == '#' && !prose && skip == NULL ? 1u : 0u;
		memcpy(to, line + drop, n - drop);
		to += n - drop;
		line += n;
	}
	*to = '\0';
	return text;
}

Test(config, sample)
{
	/* what the sample gives as examples, and nothing else */
	static const char examples[] =
		"site: demo\n"
		"hosts: { md1: { address: 10.0.0.1, lines: { a: eth2, b: eth3 } } }\n"
		"venues: [ { id: 1, mic: IEXG } ]\n"
		"channels: [ { id: 1, name: iex-quotes,\n"
		"              groups: { a: 239.192.1.1, b: 239.192.129.1 } } ]\n"
		"feedhandlers: [ { name: iex, host: md1, venue: IEXG, protocol: tops16,\n"
		"    input: { files: /var/lib/tidewire/tops16.pcap.gz }, channels: [1] } ]\n"
		"publishers: [ { name: pub1, host: md1, channels: [1] } ]\n";
	size_t len;
	char *sample = written(tw_config_sample, &len);
	struct tw_site *a = parse("a.yaml", sample, len);
	struct tw_site *b = parse("b.yaml", examples, sizeof(examples) - 1u);
	char *shown_a = shown(a, -1), *shown_b = shown(b, -1);
	strip_origins(shown_a);
	strip_origins(shown_b);
	cr_expect_str_eq(shown_a, shown_b);
	cr_expect_not_null(strstr(shown_a, "\nfabric.partition_key: 0xffff\n"));
	cr_expect_not_null(strstr(shown_a, "\nfault.lines.b.delay_us: 0\n"));
	char *all = uncommented(sample, "levels: 10");
	char *files = strstr(all, " files: "); /* one input alone is allowed */
	cr_assert_not_null(files);
	files[0] = '#';
	struct tw_site *c = parse("c.yaml", all, strlen(all));
	cr_expect_eq(c->hosts[0].cpu_subscriber, 5);
	cr_expect_str_eq(c->feedhandlers[0].directory, "/etc/tidewire/iex.symbols");
	cr_expect_neq(tw_origin_line(c, &c->fault.lines[1].delay_ns), 0);
	/* every key of the table stands in the sample */
	for (size_t i = 0; i < tw_key_count; i++) {
		char name[64];
		(void)snprintf(name, sizeof(name), "%s:", tw_key_leaf(&tw_keys[i]));
		cr_expect_not_null(strstr(sample, name), "%s", name);
	}
	tw_site_free(a);
	tw_site_free(b);
	tw_site_free(c);
	free(shown_a);
	free(shown_b);
	free(all);
	free(sample);
	NO_LEAKS();
}

Test(config, show)
{
	struct tw_site *site = parse("s.yaml", full_site, sizeof(full_site) - 1u);
	char *text = shown(site, -1);
	static const char *const lines[] = {
		"site: demo  # s.yaml:1\n",
		"\nfabric.gso: off  # s.yaml:11\n",
		"\nfabric.qos.live.pfc: true  # s.yaml:14\n",
		"\nhosts.md1.cpus.publisher: 2  # s.yaml:18\n",
		"\nhosts.ts1.cpus.publisher:  # default\n",
		"\nchannels[0].depth: quotes  # default\n",
		"\nchannels[1].symbols: [\"AAPL\", \"BRK.B\", \"ZVZZT\"]  # s.yaml:29\n",
		"\nfeedhandlers[0].venue: XNAS  # s.yaml:34\n",
		"\nfeedhandlers[0].channels: [2, 1]  # s.yaml:41\n",
		"\nsubscriber.repair: [pub1]  # s.yaml:45\n",
		"\nfault.lines.a.loss_pct: 1.5  # s.yaml:52\n",
		"\nfault.lines.a.duplicate_pct: 0.0001  # s.yaml:52\n",
		"\nfault.lines.a.reorder_pct: 100  # s.yaml:52\n",
		"\nfault.lines.b.reorder_pct: 4.05  # s.yaml:53\n",
		"\nenvironment_id: 0x2b8c  # derived\n",
		"\nchannels[0].groups.b.mac: 01:00:5e:40:81:01  # derived\n",
		"\npublishers[0].history_bytes: 2500032  # derived, of each channel\n",
		"\nhosts.md1.hot_threads: 3  # derived\n",
	};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		cr_expect_not_null(strstr(text, lines[i]), "%s", lines[i]);
	}
	free(text);
	text = shown(site, 1);
	cr_expect_not_null(strstr(text, "\nhosts.ts1.address: 10.0.0.2  # s.yaml:19\n"));
	cr_expect_null(strstr(text, "md1"));
	cr_expect_null(strstr(text, "publishers["));
	cr_expect_null(strstr(text, "feedhandlers["));
	free(text);
	tw_site_free(site);
	NO_LEAKS();
}

Test(config, documentation)
{
	size_t len;
	char *text = written(tw_config_document, &len);
	for (size_t i = 0; i < tw_key_count; i++) {
		char row[96];
		(void)snprintf(row, sizeof(row),
			       tw_key_is_branch(&tw_keys[i]) ? "## `%s" : "| `%s` |",
			       tw_keys[i].path);
		cr_expect_not_null(strstr(text, row), "%s", row);
	}
	for (const char *row = strchr(text, '|'); row != NULL; row = strstr(row, "\n|")) {
		row += row[0] == '\n';
		int bars = 0;
		for (const char *c = row; *c != '\n'; c++) {
			bars += *c == '|' ? 1 : 0;
		}
		cr_expect_eq(bars, 5, "%.60s", row);
	}
	free(text);
	NO_LEAKS();
}

Test(config, finds_entries)
{
	static const char text[] = "site: s\n"
				   "hosts:\n"
				   "  md1: { address: 10.0.0.1, lines: { a: e0 } }\n"
				   "  md2: { address: 10.0.0.2, lines: { a: e0 } }\n"
				   "  no.such-machine: { address: 10.0.0.3, lines: { a: e0 } }\n"
				   "venues: [ { id: 3, mic: XNAS } ]\n"
				   "channels:\n"
				   "  - { id: 9, name: a, groups: { a: 239.1.1.1 } }\n"
				   "  - { id: 4, name: b, groups: { a: 239.1.1.2 } }\n"
				   "feedhandlers:\n"
				   "  - { name: f1, host: md1, venue: XNAS, protocol: p, input: { "
				   "files: a }, channels: [9] }\n"
				   "  - { name: f2, host: md1, venue: XNAS, protocol: p, input: { "
				   "files: a }, channels: [4] }\n"
				   "publishers: [ { name: p1, host: md1, channels: [9, 4] } ]\n";
	struct tw_site *s = parse("s.yaml", text, sizeof(text) - 1u);
	struct tw_error err = { 0 };
	char why[128];
	cr_expect_eq(tw_site_find_host(s, "md2", why, &err), 1);
	cr_expect_str_eq(why, "asked for by name");
	cr_expect_eq(tw_site_find_host(s, "p1", why, &err), 0);
	cr_expect_str_eq(why, "p1 runs there");
	cr_expect_eq(tw_site_find_host(s, "f3", why, &err), TW_ENOTFOUND);
	cr_expect_str_eq(err.text, "s.yaml: no host, feedhandler or publisher is called 'f3'");
	cr_expect_eq(tw_site_find_feedhandler(s, "f2", why, &err), 1);
	cr_expect_str_eq(why, "asked for by name");
	cr_expect_eq(tw_site_find_feedhandler(s, "md1", why, &err), TW_ENOTFOUND);
	cr_expect_str_eq(err.text,
			 "s.yaml: host md1 runs more than one feedhandler, f1 and f2: use "
			 "--as NAME");
	cr_expect_eq(tw_site_find_publisher(s, "md1", why, &err), 0);
	cr_expect_str_eq(why, "the only one of host md1 (asked for by name)");
	cr_expect_eq(tw_site_find_publisher(s, "f1", why, &err), 0);
	cr_expect_eq(tw_site_find_publisher(s, "md2", why, &err), TW_ENOTFOUND);
	cr_expect_str_eq(err.text, "s.yaml: host md2 runs no publisher");
	cr_expect_eq(tw_site_find_channel(s, 4), 1);
	cr_expect_eq(tw_site_find_channel(s, 5), TW_ENOTFOUND);
	cr_expect_str_eq(tw_site_mic(s, 3), "XNAS");
	cr_expect_null(tw_site_mic(s, 4));
	cr_expect_eq(tw_site_hot_threads(s, 0), 4);
	cr_expect_eq(tw_site_hot_threads(s, 1), 1);
	/* nobody says which: this machine's name decides, and it is none of them here */
	char name[256] = "";
	cr_assert_eq(gethostname(name, sizeof(name) - 1u), 0);
	if (strncmp(name, "md", 2) != 0) {
		cr_expect_eq(tw_site_find_host(s, NULL, why, &err), TW_ENOTFOUND);
	}
	(void)snprintf(s->hosts[1].name, TW_NAME_BYTES, "%.60s", name);
	cr_expect_eq(tw_site_find_host(s, NULL, why, &err), 1, "%s", err.text);
	cr_expect_str_eq(why, "this machine's name");
	tw_site_free(s);
	s = parse("s.yaml", minimal, sizeof(minimal) - 1u);
	cr_expect_eq(tw_site_find_host(s, NULL, why, &err), 0);
	cr_expect_str_eq(why, "the only host");
	tw_site_free(s);
	NO_LEAKS();
}

Test(config, resolves_lo)
{
	static const char text[] =
		"site: s\nhosts: { h: { address: 127.0.0.1, lines: { a: lo, b: nonexistent0 } } }\n"
		"fabric: { mtu_bytes: 512, ttl: 2, receive_buffer_kbytes: 100, qos: { live: { "
		"dscp: 46 "
		"} } }\n"
		"channels: [ { id: 1, name: c, groups: { a: 239.1.1.1, b: 239.1.1.2 } } ]\n";
	struct tw_site *s = parse("s.yaml", text, sizeof(text) - 1u);
	struct tw_error err = { 0 };
	struct tw_fabric_conf conf;
	cr_expect_eq(tw_site_resolve_lines(s, 0, &err), TW_ECONFIG);
	cr_expect_eq(strncmp(err.text,
			     "s.yaml: hosts.h.lines.b: interface nonexistent0: not there (this "
			     "machine has ",
			     strlen("s.yaml: hosts.h.lines.b: interface nonexistent0: not there")),
		     0, "%s", err.text);
	cr_expect_eq(s->hosts[0].resolved[0].address, 0, "nothing is stored on failure");
	memcpy(s->hosts[0].lines[1], "lo", 3);
	s->hosts[0].line_addresses[1] = INADDR_LOOPBACK + 8;
	cr_expect_eq(tw_site_resolve_lines(s, 0, &err), TW_ECONFIG);
	cr_expect_str_eq(err.text,
			 "s.yaml: hosts.h.addresses.b: found 127.0.0.9, but interface lo has "
			 "127.0.0.1");
	s->hosts[0].line_addresses[1] = INADDR_LOOPBACK;
	cr_assert_eq(tw_site_resolve_lines(s, 0, &err), TW_OK, "%s", err.text);
	for (int line = 0; line < 2; line++) {
		cr_expect_eq(s->hosts[0].resolved[line].address, INADDR_LOOPBACK);
		cr_expect_str_eq(s->hosts[0].resolved[line].interface, "lo");
	}
	tw_site_fabric_conf(s, 0, &conf);
	cr_expect_eq(conf.mtu_bytes, 512);
	cr_expect_eq(conf.tos, 46 << 2);
	cr_expect_eq(conf.ttl, 2);
	cr_expect_eq(conf.rcvbuf_bytes, 102400);
	cr_expect_eq(conf.gso, TW_GSO_AUTO);
	cr_expect_eq(conf.lines[1].address, INADDR_LOOPBACK);
	cr_expect_str_eq(conf.lines[1].interface, "lo");
	tw_site_free(s);
	NO_LEAKS();
}

Test(config, transport)
{
	struct tw_site *s = parse("s.yaml", minimal, sizeof(minimal) - 1u);
	struct tw_error err = { 0 };
	char why[128] = "";
	s->fabric.transport = TW_TRANSPORT_VERBS;
	cr_expect_eq(tw_site_transport(s, why, &err), TW_EARG);
	cr_expect_str_eq(err.text, "fabric.transport: verbs: no line has been resolved");
	memcpy(s->hosts[0].lines[0], "lo", sizeof("lo"));
	cr_assert_eq(tw_site_resolve_lines(s, 0, &err), TW_OK, "%s", err.text);
	/* no RDMA device ever carries lo */
	cr_expect_eq(tw_site_transport(s, why, &err), TW_EUNSUPPORTED);
	cr_expect_not_null(strstr(err.text, "verbs: lo, 127.0.0.1: "), "%s", err.text);
	cr_expect_not_null(strstr(err.text, "use fabric.transport: udp"), "%s", err.text);
	s->fabric.transport = TW_TRANSPORT_SHM;
	cr_expect_eq(tw_site_transport(s, why, &err), TW_EUNSUPPORTED);
	/* a group that nobody else uses, held the way the kernel's own socket holds the port */
	s->channels[0].groups[0] = 0xefc00000u | ((uint32_t)getpid() & 0x3ffffu);
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(TW_ROCE_PORT),
				  .sin_addr.s_addr = htonl(s->channels[0].groups[0]) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	cr_assert_geq(fd, 0);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
		(void)close(fd);
		tw_site_free(s);
		cr_skip_test("port %u is taken here", TW_ROCE_PORT);
	}
	static const enum tw_transport both[] = { TW_TRANSPORT_AUTO, TW_TRANSPORT_UDP };
	for (size_t i = 0; i < 2; i++) {
		s->fabric.transport = both[i];
		cr_expect_eq(tw_site_transport(s, why, &err), TW_EUNSUPPORTED);
		cr_expect_eq(err.sys_errno, EADDRINUSE);
		cr_expect_not_null(strstr(err.text, "unload rdma_rxe"), "%s", err.text);
	}
	(void)close(fd);
	cr_expect_eq(tw_site_transport(s, why, &err), TW_TRANSPORT_UDP, "%s", err.text);
	cr_expect_str_eq(why, "udp, as configured");
	s->fabric.transport = TW_TRANSPORT_AUTO;
	cr_expect_eq(tw_site_transport(s, why, &err), TW_TRANSPORT_UDP, "%s", err.text);
	cr_expect_str_eq(why,
			 "udp: port 4791 can be bound and no RDMA device takes RoCE for itself");
	/* not refused by the loader, which cannot know what the device is */
	s->fabric.partition_key = 0x8001;
	cr_expect_eq(tw_site_transport(s, why, &err), TW_ECONFIG);
	cr_expect_not_null(strstr(err.text, "fabric.partition_key: found 0x8001"), "%s", err.text);
	tw_site_free(s);
	NO_LEAKS();
}

static void put(const char *root, const char *path, const char *text)
{
	char full[512];
	(void)snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		cr_assert(mkdir(full, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
	FILE *f = fopen(full, "we");
	cr_assert_not_null(f);
	cr_assert_geq(fputs(text, f), 0);
	cr_assert_eq(fclose(f), 0);
}

/* A RoCE device, and an iWARP device, as sysfs shows them. */
Test(config, roce_devices)
{
	char root[] = "/tmp/tw-config-XXXXXX", device[64] = "", command[64];
	cr_assert_not_null(mkdtemp(root));
	cr_expect_not(tw_machine_roce_device(root, "eth2", device));
	put(root, "class/infiniband/siw0/ports/1/gid_attrs/ndevs/0", "eth4\n");
	put(root, "class/infiniband/siw0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
	put(root, "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2\n");
	put(root, "class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
	put(root, "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1", "eth2\n");
	put(root, "class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "RoCE v2\n");
	put(root, "class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/0", "eth3\n");
	put(root, "class/infiniband/mlx5_0/ports/2/gid_attrs/types/0", "RoCE v2\n");
	cr_expect(tw_machine_roce_device(root, "eth2", device));
	cr_expect_str_eq(device, "mlx5_0");
	cr_expect(tw_machine_roce_device(root, "eth3", device));
	cr_expect_not(tw_machine_roce_device(root, "eth4", device));
	cr_expect_not(tw_machine_roce_device(root, "eth", device));
	(void)snprintf(command, sizeof(command), "rm -r %s", root);
	cr_expect_eq(system(command), 0);
	NO_LEAKS();
}

Test(config, loads_files)
{
	char path[] = "/tmp/tw-config-XXXXXX";
	struct tw_site *site = (struct tw_site *)&site;
	struct tw_error err = { 0 };
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, full_site, sizeof(full_site) - 1u), (ssize_t)sizeof(full_site) - 1);
	cr_assert_eq(tw_site_load(&site, path, &err), TW_OK, "%s", err.text);
	cr_expect_str_eq(site->path, path);
	cr_expect_str_eq(site->feedhandlers[0].files[0], "/tmp/caps/a.pcap.gz");
	check_tail(site);
	tw_site_free(site);
	/* larger than allowed: read no further than needed to see it */
	cr_assert_eq(ftruncate(fd, 1 << 30), 0);
	cr_expect_eq(tw_site_load(&site, path, &err), TW_ECONFIG);
	cr_expect_null(site);
	cr_expect_not_null(strstr(err.text, ":1: top level: found more than 1 MiB"), "%s",
			   err.text);
	(void)close(fd);
	cr_assert_eq(unlink(path), 0);
	cr_expect_eq(tw_site_load(&site, path, &err), TW_ENOTFOUND);
	cr_expect_eq(err.sys_errno, ENOENT);
	cr_expect_eq(tw_site_load(&site, "/tmp", &err), TW_ESYS);
	cr_expect_eq(err.sys_errno, EISDIR);
	cr_expect_null(site);
	NO_LEAKS();
}

/* Either a site or one line that begins with file and line; never both, never neither. */
static void parse_damaged(const char *text, size_t len)
{
	struct tw_site *site;
	struct tw_error err = { 0 };
	int rc = tw_site_parse(&site, "t.yaml", text, len, &err);
	if (rc == TW_OK) {
		cr_assert_not_null(site);
		tw_site_free(site);
		return;
	}
	cr_assert_eq(rc, TW_ECONFIG);
	cr_assert_null(site);
	cr_assert_eq(strncmp(err.text, "t.yaml:", 7), 0, "%s", err.text);
	cr_assert(err.text[7] >= '1' && err.text[7] <= '9', "%s", err.text);
	for (const char *c = err.text; *c != '\0'; c++) {
		cr_assert(*c >= ' ' && *c < 0x7f, "%s", err.text);
	}
}

/* A copy of exactly `len` bytes, so that AddressSanitizer sees a read past it. */
static void parse_damaged_copy(const char *text, size_t len, size_t at, int byte)
{
	char *copy = malloc(len > 0 ? len : 1);
	cr_assert_not_null(copy);
	memcpy(copy, text, len);
	if (at < len) {
		copy[at] = (char)byte;
	}
	parse_damaged(copy, len);
	free(copy);
}

Test(config, truncated_anywhere)
{
	size_t len;
	char *sample = written(tw_config_sample, &len);
	for (size_t n = 0; n < len; n++) {
		parse_damaged_copy(sample, n, len, 0);
	}
	free(sample);
	for (size_t n = 0; n < sizeof(full_site); n++) {
		parse_damaged_copy(full_site, n, sizeof(full_site), 0);
	}
	NO_LEAKS();
}

Test(config, damaged_anywhere)
{
	static const char bytes[] = "\0\t\n \xff:#-[]{}\"'&*!%@,9x";
	for (size_t b = 0; b < sizeof(bytes) - 1u; b++) {
		for (size_t at = 0; at < sizeof(full_site) - 1u; at++) {
			parse_damaged_copy(full_site, sizeof(full_site) - 1u, at, bytes[b]);
		}
	}
	NO_LEAKS();
}
