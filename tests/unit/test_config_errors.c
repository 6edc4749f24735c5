/* Site files that must be refused, and exactly what is said about them. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/node.h"
#include "tests/unit/config_text.h"

TestSuite(config_errors, .timeout = 60);

static void expect_error(const char *name, const char *text, size_t len, const char *expected)
{
	struct tw_site *site = (struct tw_site *)&site;
	struct tw_error err = { 0 };
	int rc = tw_site_parse(&site, "s.yaml", text, len, &err);
	cr_expect_eq(rc, TW_ECONFIG, "%s: returned %d", name, rc);
	cr_expect_eq(err.code, TW_ECONFIG, "%s", name);
	cr_expect_null(site, "%s", name);
	cr_expect_str_eq(err.text, expected, "%s:\n got      %s\n expected %s", name, err.text,
			 expected);
	tw_site_free(rc < 0 ? NULL : site);
	/* without a place for the text it is refused all the same */
	cr_expect_eq(tw_site_parse(&site, "s.yaml", text, len, NULL), TW_ECONFIG, "%s", name);
}

/* One edit of the full site: `find` occurs once. */
struct edit {
	const char *find, *replace, *expected;
};

static void expect_edits(const struct edit *edits, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct edit *e = &edits[i];
		const char *at = strstr(full_site, e->find);
		cr_assert_not_null(at, "'%s' is not in the site", e->find);
		cr_assert_null(strstr(at + 1, e->find), "'%s' is in the site twice", e->find);
		char *text = NULL;
		int len = asprintf(&text, "%.*s%s%s", (int)(at - full_site), full_site, e->replace,
				   at + strlen(e->find));
		cr_assert_gt(len, 0);
		expect_error(e->replace, text, (size_t)len, e->expected);
		free(text);
	}
}
#define EXPECT_EDITS(edits) expect_edits(edits, sizeof(edits) / sizeof((edits)[0]))

Test(config_errors, values)
{
	static const struct edit edits[] = {
		{ "heartbeat_ms: 50", "heartbeat_ms: 0",
		  "s.yaml:44: publishers[0].heartbeat_ms: found '0', allowed 1 to 10000" },
		{ "ttl: 3", "ttl: -1", "s.yaml:9: fabric.ttl: found '-1', allowed 1 to 255" },
		{ "cut_begin: 7, cut_end: 18446744073709551615", "cut_begin: 7, cut_end: 7",
		  "s.yaml:52: fault.lines.a.cut_end: found 7, allowed more than cut_begin, which "
		  "is "
		  "7" },
		{ ", cut_end: 18446744073709551615", "",
		  "s.yaml:52: fault.lines.a.cut_end: found 0, allowed more than cut_begin, which "
		  "is "
		  "7" },
		{ "ttl: 3", "ttl: 256", "s.yaml:9: fabric.ttl: found '256', allowed 1 to 255" },
		{ "ttl: 3", "ttl: 18446744073709551617",
		  "s.yaml:9: fabric.ttl: found '18446744073709551617', allowed 1 to 255" },
		{ "ttl: 3", "ttl: eight", "s.yaml:9: fabric.ttl: found 'eight', allowed 1 to 255" },
		{ "ttl: 3", "ttl: 3.0", "s.yaml:9: fabric.ttl: found '3.0', allowed 1 to 255" },
		{ "ttl: 3", "ttl: 0x8", "s.yaml:9: fabric.ttl: found '0x8', allowed 1 to 255" },
		{ "ttl: 3", "ttl: 010",
		  "s.yaml:9: fabric.ttl: found '010', allowed 1 to 255: a leading zero would make "
		  "it "
		  "octal" },
		{ "ttl: 3", "ttl: '3'",
		  "s.yaml:9: fabric.ttl: found '3', allowed 1 to 255: a number, without quotes" },
		{ "ttl: 3", "ttl:", "s.yaml:9: fabric.ttl: found nothing, allowed 1 to 255" },
		{ "ttl: 3", "ttl: [3]", "s.yaml:9: fabric.ttl: found a list, allowed 1 to 255" },
		{ "ttl: 3", "ttl: { hops: 3 }",
		  "s.yaml:9: fabric.ttl: found a mapping, allowed 1 to 255" },
		{ "ttl: 3", "ttl: \"a\\nb\\x01\"",
		  "s.yaml:9: fabric.ttl: found 'a\\x0ab\\x01', allowed 1 to 255" },
		{ "history_ms: 500", "history_ms: 500ms",
		  "s.yaml:43: publishers[0].history_ms: found '500ms', allowed 1 to 3600000: the "
		  "unit is in the key's name" },
		{ "loss_pct: 1.5", "loss_pct: 1.5%",
		  "s.yaml:52: fault.lines.a.loss_pct: found '1.5%', allowed 0 to 100 with up to "
		  "four decimals: the unit is in the key's name" },
		{ "loss_pct: 1.5", "loss_pct: 100.0001",
		  "s.yaml:52: fault.lines.a.loss_pct: found '100.0001', allowed 0 to 100 with up "
		  "to "
		  "four decimals" },
		{ "loss_pct: 1.5", "loss_pct: 0.00001",
		  "s.yaml:52: fault.lines.a.loss_pct: found '0.00001', allowed 0 to 100 with up to "
		  "four decimals" },
		{ "loss_pct: 1.5", "loss_pct: 1.",
		  "s.yaml:52: fault.lines.a.loss_pct: found '1.', allowed 0 to 100 with up to four "
		  "decimals" },
		{ "transport: udp", "transport: upd",
		  "s.yaml:7: fabric.transport: found 'upd', allowed auto, verbs, udp or shm" },
		{ "mtu_bytes: 2048", "mtu_bytes: 1500",
		  "s.yaml:8: fabric.mtu_bytes: found '1500', allowed 256, 512, 1024, 2048 or "
		  "4096" },
		{ "partition_key: 0xFFff", "partition_key: 0x8001",
		  "s.yaml:12: fabric.partition_key: found 0x8001, allowed 0xffff: partitions are "
		  "InfiniBand's, and udp is RoCE" },
		{ "partition_key: 0xFFff", "partition_key: 0x10000",
		  "s.yaml:12: fabric.partition_key: found '0x10000', allowed 0 to 65535, also in "
		  "hex "
		  "(0x)" },
		{ "partition_key: 0xFFff", "partition_key: 0x",
		  "s.yaml:12: fabric.partition_key: found '0x', allowed 0 to 65535, also in hex "
		  "(0x)" },
		{ "pfc: true, ecn: false", "pfc: yes, ecn: false",
		  "s.yaml:14: fabric.qos.live.pfc: found 'yes', allowed true or false" },
		{ "pfc: true, ecn: false", "pfc: 'true', ecn: false",
		  "s.yaml:14: fabric.qos.live.pfc: found 'true', allowed true or false, without "
		  "quotes" },
		{ "pfc: true, ecn: false", "pfc: true, ecn: true",
		  "s.yaml:14: fabric.qos.live.ecn: found true, allowed false: nobody answers a "
		  "mark "
		  "on multicast, so it is sent Not-ECT" },
		{ "bus_kbytes: 1024", "bus_kbytes: 1000",
		  "s.yaml:39: feedhandlers[0].bus_kbytes: found '1000', allowed a power of two "
		  "from 64 "
		  "to 4194304" },
		{ "10.0.0.1", "10.0.0.256",
		  "s.yaml:17: hosts.md1.address: found '10.0.0.256', allowed the IPv4 address of "
		  "one "
		  "host" },
		{ "10.0.0.1", "239.0.0.1",
		  "s.yaml:17: hosts.md1.address: found '239.0.0.1', allowed the IPv4 address of "
		  "one "
		  "host" },
		{ "a: 239.192.1.1", "a: 10.0.0.9",
		  "s.yaml:24: channels[0].groups.a: found '10.0.0.9', allowed an IPv4 multicast "
		  "group, "
		  "224.0.1.0 to 239.255.255.255" },
		{ "a: 239.192.1.1", "a: 224.0.0.5",
		  "s.yaml:24: channels[0].groups.a: found '224.0.0.5', allowed an IPv4 multicast "
		  "group, "
		  "224.0.1.0 to 239.255.255.255" },
		{ "a: eth2", "a: interface-name16",
		  "s.yaml:17: hosts.md1.lines.a: found 'interface-name16', allowed the name of an "
		  "interface, up to 15 characters" },
		{ "a: eth2", "a: e/2",
		  "s.yaml:17: hosts.md1.lines.a: found 'e/2', allowed the name of an interface, up "
		  "to "
		  "15 characters" },
		{ "mic: IEXG", "mic: IEX",
		  "s.yaml:21: venues[0].mic: found 'IEX', allowed four capital letters or digits" },
		{ "site: demo", "site: -demo",
		  "s.yaml:1: site: found '-demo', allowed up to 63 letters, digits, '.', '_' and "
		  "'-', "
		  "the first one a letter or digit" },
		{ "protocol: tops16", "protocol: tops16-tops16-tops16-tops16-tops",
		  "s.yaml:35: feedhandlers[0].protocol: found 'tops16-tops16-tops16-tops16-tops', "
		  "allowed up to 31 letters, digits, '.', '_' and '-', the first one a letter or "
		  "digit" },
		{ "run_dir: /tmp/tw-test", "run_dir: tmp",
		  "s.yaml:3: run_dir: found 'tmp', allowed an absolute path of up to 511 bytes" },
		{ "files: caps/a.pcap.gz", "files: ''",
		  "s.yaml:37: feedhandlers[0].input.files: found nothing, allowed a path of up to "
		  "511 bytes, or a list of them" },
		{ "symbols: [ZVZZT, \"AAPL\", BRK.B]", "symbols: []",
		  "s.yaml:29: channels[1].symbols: found 0 symbols, allowed 1 to 4096" },
		{ "symbols: [ZVZZT, \"AAPL\", BRK.B]", "symbols: [A, B, A]",
		  "s.yaml:29: channels[1].symbols: found 'A' twice, allowed each symbol once" },
		{ "symbols: [ZVZZT, \"AAPL\", BRK.B]", "symbols: [A, '*']",
		  "s.yaml:29: channels[1].symbols: found '*', allowed a list of symbols of up to "
		  "32 "
		  "characters, or [\"*\"]" },
		{ "symbols: [ZVZZT, \"AAPL\", BRK.B]", "symbols: '*'",
		  "s.yaml:29: channels[1].symbols: found '*', allowed a list of symbols of up to "
		  "32 "
		  "characters, or [\"*\"]" },
	};
	EXPECT_EDITS(edits);
	NO_LEAKS();
}

Test(config_errors, keys)
{
	static const struct edit edits[] = {
		{ "  ttl: 3", "  tll: 3",
		  "s.yaml:9: fabric: found unknown key 'tll', nearest is 'ttl'" },
		{ "  mtu_bytes: 2048", "  mtu: 2048",
		  "s.yaml:8: fabric: found unknown key 'mtu', nearest is 'mtu_bytes'" },
		{ "id: 7,", "di: 7,",
		  "s.yaml:22: venues[1]: found unknown key 'di', nearest is 'id'" },
		{ "idle: yield", "mtu_bytes: 1024",
		  "s.yaml:4: top level: found unknown key 'mtu_bytes', allowed as "
		  "fabric.mtu_bytes" },
		{ "idle: yield", "colour_of_the_rack: blue",
		  "s.yaml:4: top level: found unknown key 'colour_of_the_rack', allowed site, "
		  "environment, run_dir, idle, slow_turn_us, fabric, hosts, venues, channels, "
		  "feedhandlers, publishers, subscriber, fault" },
		{ "heartbeat_min_us: 300", "heartbeat_min_ms: 300",
		  "s.yaml:44: publishers[0]: found unknown key 'heartbeat_min_ms', nearest is "
		  "'heartbeat_min_us'" },
		{ "heartbeat_min_us: 300", "auth: { user: u }",
		  "s.yaml:44: publishers[0]: found key 'auth', not supported by this version: "
		  "leave it out, a login to repair is judged by its environment" },
		{ "files: caps/a.pcap.gz", "multicast: { a: 233.1.1.1 }",
		  "s.yaml:37: feedhandlers[0].input.multicast.a: found '233.1.1.1', allowed an "
		  "IPv4 multicast group and a UDP port, as 239.1.2.3:26477" },
		{ "files: caps/a.pcap.gz", "files: a, multicast: { a: \"239.1.2.3:26477\" }",
		  "s.yaml:37: feedhandlers[0].input: found files and multicast, allowed one of "
		  "them" },
		{ "files: caps/a.pcap.gz", "restamp: true, multicast: { a: \"239.1.2.3:26477\" }",
		  "s.yaml:37: feedhandlers[0].input.restamp: found with multicast, allowed with "
		  "'input.files' alone" },
		{ "files: caps/a.pcap.gz, speed_pct: 400, rate: 1000",
		  "multicast: { b: \"239.1.2.3:26477\" }",
		  "s.yaml:37: feedhandlers[0].input: found multicast.b alone, allowed "
		  "multicast.a, or both" },
		{ "files: caps/a.pcap.gz, speed_pct: 400, rate: 1000",
		  "multicast: { a: \"239.1.2.3:26477\", b: \"239.1.2.3:26477\" }",
		  "s.yaml:37: feedhandlers[0].input: found one group and port for both lines, "
		  "allowed with two interfaces that are given here" },
		{ "files: caps/a.pcap.gz, speed_pct: 400, rate: 1000",
		  "multicast: { a: \"239.1.2.3:0\" }",
		  "s.yaml:37: feedhandlers[0].input.multicast.a: found '239.1.2.3:0', allowed an "
		  "IPv4 multicast group and a UDP port, as 239.1.2.3:26477" },
		{ "files: caps/a.pcap.gz, speed_pct: 400, rate: 1000",
		  "multicast: { a: \"10.1.2.3:26477\" }",
		  "s.yaml:37: feedhandlers[0].input.multicast.a: found '10.1.2.3:26477', allowed "
		  "an IPv4 multicast group and a UDP port, as 239.1.2.3:26477" },
		{ "files: caps/a.pcap.gz", "files: a, rerequest: [\"10.0.0.9:17000\"]",
		  "s.yaml:37: feedhandlers[0].input.rerequest: found with files, allowed with "
		  "'input.multicast' alone" },
		{ "files: caps/a.pcap.gz", "files: a, rerequest: [\"239.1.2.3:17000\"]",
		  "s.yaml:37: feedhandlers[0].input.rerequest[0]: found '239.1.2.3:17000', "
		  "allowed a list of up to 8 addresses and UDP ports, as [\"10.0.0.9:17000\"]" },
		{ "mode: ordered,", "mode: site,",
		  "s.yaml:45: subscriber.mode: found 'latest', which channels[1] with 'depth: "
		  "levels' cannot have, allowed ordered, or 'mode: ordered' in that channel" },
		{ "mode: ordered,", "mode: latest,",
		  "s.yaml:27: channels[1].mode: found 'latest' with 'depth: levels', allowed with "
		  "'depth: quotes' alone" },
		{ "mode: ordered,", "mode: fast,",
		  "s.yaml:27: channels[1].mode: found 'fast', allowed site, ordered or latest" },
		{ "mode: latest", "mode: site",
		  "s.yaml:45: subscriber.mode: found 'site', allowed ordered or latest" },
		{ "  ttl: 3", "  mtu_bytes: 1024",
		  "s.yaml:9: fabric: found key 'mtu_bytes' a second time (first: line 8), allowed "
		  "each "
		  "key once" },
		{ "site: demo\n", "",
		  "s.yaml:1: site: found nothing, required is up to 63 letters, digits, '.', '_' "
		  "and "
		  "'-', the first one a letter or digit" },
		{ "id: 7, ", "", "s.yaml:22: venues[1].id: found nothing, required is 1 to 65535" },
		{ "files: caps/a.pcap.gz, ", "",
		  "s.yaml:32: feedhandlers[0].input: found nothing, required is files or "
		  "multicast" },
		{ "a: 239.192.2.1", "b: 239.192.2.1",
		  "s.yaml:30: channels[1].groups.a: found nothing, required is an IPv4 multicast "
		  "group, 224.0.1.0 to 239.255.255.255" },
		{ "  - { id: 7, mic: XNAS }", "  - XNAS",
		  "s.yaml:22: venues[1]: found 'XNAS', allowed a mapping" },
		{ "  ts1: {", "  ts 1: {",
		  "s.yaml:19: hosts.ts 1: found 'ts 1', allowed up to 63 letters, digits, '.', '_' "
		  "and '-', the first one a letter or digit" },
		{ "publishers:\n", "publishers: 5\nx:\n",
		  "s.yaml:43: top level: found unknown key 'x', allowed site, environment, "
		  "run_dir, "
		  "idle, slow_turn_us, fabric, hosts, venues, channels, feedhandlers, publishers, "
		  "subscriber, fault" },
	};
	EXPECT_EDITS(edits);
	NO_LEAKS();
}

Test(config_errors, references_and_sites)
{
	static const struct edit edits[] = {
		{ "host: md1\n", "host: md2\n",
		  "s.yaml:33: feedhandlers[0].host: found 'md2', allowed the name of a host under "
		  "hosts" },
		{ "venue: XNAS", "venue: XLON",
		  "s.yaml:34: feedhandlers[0].venue: found 'XLON', allowed the mic of a venue "
		  "under "
		  "venues" },
		{ "channels: [2, 1]", "channels: [2, 3]",
		  "s.yaml:41: feedhandlers[0].channels[1]: found '3', allowed a list of ids of "
		  "channels, as [1, 2]" },
		{ "channels: [2, 1]", "channels: [2, 2]",
		  "s.yaml:41: feedhandlers[0].channels: found '2' twice, allowed each of them "
		  "once" },
		{ "channels: [2, 1]", "channels: []",
		  "s.yaml:41: feedhandlers[0].channels: found 0 of them, allowed 1 to 16" },
		{ "channels: [2, 1]", "channels: 2",
		  "s.yaml:41: feedhandlers[0].channels: found '2', allowed a list of ids of "
		  "channels, "
		  "as [1, 2]" },
		{ "repair: [pub1]", "repair: [pub2]",
		  "s.yaml:45: subscriber.repair[0]: found 'pub2', allowed a list of names of "
		  "publishers, as [pub1]" },
		{ "id: 7,", "id: 1,",
		  "s.yaml:22: venues[1].id: found 1, which venues[0] has, allowed an id of its "
		  "own" },
		{ "mic: XNAS }", "mic: XNAS }\n  - { id: 8, mic: IEXG }",
		  "s.yaml:23: venues[2].mic: found 'IEXG', which venues[0] has, allowed each mic "
		  "once" },
		{ "  - { id: 2,\n", "  - { id: 1,\n",
		  "s.yaml:41: feedhandlers[0].channels[0]: found '2', allowed a list of ids of "
		  "channels, as [1, 2]" },
		{ "name: iex-levels", "name: iex-quotes",
		  "s.yaml:26: channels[1].name: found 'iex-quotes', which channels[0] has, allowed "
		  "a "
		  "name of its own" },
		{ "depth: levels", "depth: orders",
		  "s.yaml:28: channels[1].levels: found a number of levels, allowed with 'depth: "
		  "levels' alone" },
		{ "b: 239.192.129.1", "b: 239.192.1.1",
		  "s.yaml:24: channels[0].groups.b: found the group of channels[0].groups.a, "
		  "allowed a "
		  "group of its own" },
		{ "a: 239.192.2.1", "a: 225.64.1.1",
		  "s.yaml:30: channels[1].groups.a: found a group with the Ethernet address "
		  "01:00:5e:40:01:01 of channels[0].groups.a, allowed groups that differ in their "
		  "low "
		  "23 bits" },
		{ "a: 239.192.2.1", "a: 239.128.0.5",
		  "s.yaml:30: channels[1].groups.a: found a group with the Ethernet address "
		  "01:00:5e:00:00:05 of 224.0.0.5, which switches flood, allowed a group that "
		  "differs "
		  "from it in its low 23 bits" },
		{ "lines: { a: eth0, b: eth0 }", "lines: { a: eth0 }",
		  "s.yaml:19: hosts.ts1.lines.b: found nothing, required is an interface: channel "
		  "1 has "
		  "a group on line b" },
		{ "name: pub1", "name: iex",
		  "s.yaml:45: subscriber.repair[0]: found 'pub1', allowed a list of names of "
		  "publishers, as [pub1]" },
		{ "- name: iex\n", "- name: ts1\n",
		  "s.yaml:32: feedhandlers[0].name: found 'ts1', the name of another host than its "
		  "own, allowed a name that means one host" },
		{ "- name: iex\n", "- name: pub1\n",
		  "s.yaml:43: publishers[0].name: found 'pub1', which feedhandlers[0] has, allowed "
		  "a "
		  "name of its own: it names files and the process for --as" },
		{ "pub1, host: md1", "pub1, host: ts1",
		  "s.yaml:43: publishers[0].channels[0]: found channel 1, whose feedhandler 'iex' "
		  "runs "
		  "on host 'md1', allowed channels of feedhandlers on the publisher's own host "
		  "'ts1'" },
		{ "publishers:\n", "publishers:\n  - { name: pub2, host: md1, channels: [2] }\n",
		  "s.yaml:44: publishers[1].channels[1]: found channel 2, which publishers[0] "
		  "sends, "
		  "allowed one publisher for a channel: two on one channel are not supported by "
		  "this "
		  "version" },
		{ "feedhandlers:\n",
		  "feedhandlers:\n  - { name: iex2, host: md1, venue: IEXG, protocol: tops16,\n"
		  "      input: { files: b }, channels: [1] }\n",
		  "s.yaml:43: feedhandlers[1].channels[1]: found channel 1, which feedhandlers[0] "
		  "writes, allowed one feedhandler for a channel" },
		{ "feedhandlers:\n",
		  "feedhandlers:\n  - { name: iex2, host: md1, venue: IEXG, protocol: tops16,\n"
		  "      input: { files: b }, channels: [2] }\n",
		  "s.yaml:43: feedhandlers[1].channels[0]: found channel 2, which feedhandlers[0] "
		  "writes, allowed one feedhandler for a channel" },
		{ "history_ms: 500", "history_ms: 199",
		  "s.yaml:43: publishers[0].history_ms: found 199, allowed at least four times "
		  "heartbeat_ms, 200: a loss may show only with a heartbeat" },
		{ "history_ms: 500, peak_mbps: 40", "history_ms: 3600000, peak_mbps: 400000",
		  "s.yaml:43: publishers[0].history_ms: found 3600000, which at peak_mbps 400000 "
		  "is "
		  "171661376 MiB a channel, allowed 65536 MiB" },
		{ "heartbeat_min_us: 300", "heartbeat_min_us: 50001",
		  "s.yaml:44: publishers[0].heartbeat_min_us: found 50001, allowed at most "
		  "heartbeat_ms, 50000 us" },
		{ "history_ms: 500", "history_ms: 449",
		  "s.yaml:43: publishers[0].history_ms: found 449, allowed at least four times "
		  "heartbeat_ms and subscriber.give_up_ms together, 450: what is asked for must "
		  "still be there" },
		{ "repair_port: 5000", "repair_port: 0",
		  "s.yaml:45: subscriber.repair[0]: found 'pub1', whose repair_port is 0, allowed "
		  "publishers with a repair service" },
		{ "retry_min_ms: 3", "retry_min_ms: 41",
		  "s.yaml:46: subscriber.retry_min_ms: found 41, allowed at most retry_max_ms, "
		  "which is 40" },
		{ "subscriber: 5", "subscriber: 2",
		  "s.yaml:18: hosts.md1.cpus.subscriber: found 2, which cpus.publisher has, "
		  "allowed a "
		  "CPU of its own for each hot thread" },
		{ "environment: test", "environment: production",
		  "s.yaml:45: subscriber.accept_replay: found true, allowed false in production" },
	};
	EXPECT_EDITS(edits);
	NO_LEAKS();
}

/* Whole files: what needs more than one edit. */
Test(config_errors, whole_files)
{
	static const char minimal[] =
		"site: s\nhosts: { h: { address: 10.0.0.1, lines: { a: e0 } } }\n"
		"channels:\n  - { id: 1, name: c, groups: { a: 239.1.1.1 } }\n";
	static const struct {
		const char *more, *expected;
	} files[] = {
		{ "environment: production\nfault: { lines: { b: { delay_us: 0 } } }\n",
		  "s.yaml:6: fault: found an injected fault, allowed none in production" },
		{ "  - { id: 1, name: d, groups: { a: 239.1.1.2 } }\n",
		  "s.yaml:5: channels[1].id: found 1, which channels[0] has, allowed an id of its "
		  "own" },
		{ "venues: [ { id: 1, mic: XNAS } ]\n"
		  "feedhandlers:\n"
		  "  - { name: f, host: h, venue: XNAS, protocol: p, input: { files: a }, "
		  "channels: "
		  "[1] }\n"
		  "publishers: [ { name: p, host: h, channels: [1], heartbeat_ms: 9000 } ]\n",
		  "s.yaml:8: publishers[0].history_ms: found 10000, allowed at least four times "
		  "heartbeat_ms, 36000: a loss may show only with a heartbeat" },
		{ "  - { id: 2, name: d, groups: { a: 239.1.1.2 } }\n"
		  "publishers:\n"
		  "  - { name: p, host: h, channels: [1] }\n"
		  "  - { name: q, host: h, channels: [2] }\n"
		  "subscriber: { repair: [p, q] }\n",
		  "s.yaml:8: publishers[1].repair_port: found 4790, which publishers[0] on the "
		  "same host has, allowed a port of its own" },
	};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char *text = NULL;
		int len = asprintf(&text, "%s%s", minimal, files[i].more);
		cr_assert_gt(len, 0);
		expect_error(files[i].more, text, (size_t)len, files[i].expected);
		free(text);
	}
	/* two pinned processes of one role on one host */
	static const char twice[] = "site: s\nhosts:\n  h: { address: 10.0.0.1, lines: { a: e0 }, "
				    "cpus: { publisher: 1 } }\n"
				    "channels:\n  - { id: 1, name: c, groups: { a: 239.1.1.1 } }\n"
				    "  - { id: 2, name: d, groups: { a: 239.1.1.2 } }\n"
				    "publishers:\n  - { name: p, host: h, channels: [1] }\n"
				    "  - { name: q, host: h, channels: [2] }\n";
	expect_error(
		"twice", twice, sizeof(twice) - 1u,
		"s.yaml:3: hosts.h.cpus.publisher: found CPU 1 for both 'p' and 'q', allowed one "
		"pinned process: leave the key out");
	NO_LEAKS();
}

Test(config_errors, yaml)
{
	static const struct {
		const char *text;
		const char *expected;
	} files[] = {
		{ "",
		  "s.yaml:1: top level: found nothing, allowed a mapping that begins with 'site: "
		  "NAME'" },
		{ "# nothing here\n", "s.yaml:1: top level: found nothing, allowed a mapping that "
				      "begins with 'site: NAME'" },
		{ "- site: s\n", "s.yaml:1: top level: found a list, allowed a mapping that begins "
				 "with 'site: NAME'" },
		{ "demo\n",
		  "s.yaml:1: top level: found a single value, allowed a mapping that begins "
		  "with 'site: NAME'" },
		{ "site: s\nhosts:\n\tmd1: {}\n",
		  "s.yaml:3: column 1: found a tab, allowed spaces for indentation" },
		{ "site: s\nidle: @x\n", "s.yaml:2: column 7: found '@' before a value, allowed "
					 "there only inside quotes" },
		{ "site: &x s\n", "s.yaml:1: site: found anchor 'x', allowed plain values without "
				  "anchors, aliases and tags" },
		{ "site: s\nhosts: *x\n", "s.yaml:2: hosts: found an alias, allowed plain values "
					  "without anchors, aliases and tags" },
		{ "site: !!str s\n",
		  "s.yaml:1: site: found tag 'tag:yaml.org,2002:str', allowed plain "
		  "values without anchors, aliases and tags" },
		{ "hosts: !x { a: 1 }\n", "s.yaml:1: hosts: found tag '!x', allowed plain values "
					  "without anchors, aliases and tags" },
		{ "%TAG ! tag:x:\n---\nsite: s\n", "s.yaml:1: top level: found a %TAG directive, "
						   "allowed plain values without tags" },
		{ "site: s\n---\nsite: t\n",
		  "s.yaml:2: top level: found a second document, allowed one document in a file" },
		{ "site: s\nfabric: { ttl: 3, ttl: 4 }\n",
		  "s.yaml:2: fabric: found key 'ttl' a second time (first: line 2), allowed each "
		  "key "
		  "once" },
		{ "site: s\n[a, b]: c\n", "s.yaml:2: top level: found a mapping or list as a key, "
					  "allowed a name as a key" },
		{ "site: s\n'': c\n",
		  "s.yaml:2: top level: found an empty key, allowed a name as a key" },
		{ "site: s\nidle: \"a\\0b\"\n", "s.yaml:2: idle: found a NUL byte, allowed text" },
		{ "site: s\nidle: 'auto\n", "s.yaml:3: column 1: found the end of the file inside "
					    "quotes, allowed the closing "
					    "quote" },
		{ "site: s\nidle: \"\\q\"\n", "s.yaml:2: column 8: found an unknown escape in "
					      "double quotes, allowed the escapes of "
					      "YAML, or single quotes" },
		{ "site: s\nidle\nttl: 3\n",
		  "s.yaml:3: column 1: found a line without ':', allowed 'key: value'" },
		{ "site: s: t\n", "s.yaml:1: column 8: found a ':' where no key can begin, allowed "
				  "one 'key: value' in "
				  "a line, a text with ': ' in quotes" },
		{ "site: s\nfabric: { ttl: 3\n",
		  "s.yaml:3: column 1: found the end of the file, allowed ',' or '}'" },
		{ "site: s\nchannels: [ 1, 2\n",
		  "s.yaml:3: column 1: found the end of the file, allowed ',' or ']'" },
		{ "site: s\nfabric: { ttl: 3 ]\n",
		  "s.yaml:2: column 18: found something else inside { }, allowed ',' or '}'" },
		{ "site: s\nfabric:\n    ttl: 3\n  gso: on\n",
		  "s.yaml:4: column 3: found something else than the next key, allowed a key at "
		  "the "
		  "indentation of its neighbours" },
		{ "site: s\nfabric: { ttl: \xff }\n",
		  "s.yaml:2: column 16: found byte 0xff, allowed "
		  "UTF-8 text" },
		{ "site: \xc0\xaf\n", "s.yaml:1: column 7: found byte 0xc0, allowed UTF-8 text" },
		{ "site: \xed\xa0\x80\n",
		  "s.yaml:1: column 7: found byte 0xed, allowed UTF-8 text" },
		{ "site: s\r\nidle: \x1b[1m\n",
		  "s.yaml:2: column 7: found byte 0x1b, allowed printable "
		  "text, tabs and line ends" },
	};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		expect_error(files[i].text, files[i].text, strlen(files[i].text),
			     files[i].expected);
	}
	static const char nul[] = "site: s\nid\0le: auto\n";
	expect_error("NUL", nul, sizeof(nul) - 1u,
		     "s.yaml:2: column 3: found byte 0x00, allowed printable text, tabs and line "
		     "ends");
	static const char utf16[] = "\xff\xfes\0i\0t\0e\0";
	expect_error("UTF-16", utf16, sizeof(utf16) - 1u,
		     "s.yaml:1: column 1: found byte 0xff, allowed UTF-8 text");
	NO_LEAKS();
}

/* `n` times `unit` between `head` and `tail`. */
static char *repeat(const char *head, const char *unit, size_t n, const char *tail, size_t *len_p)
{
	size_t a = strlen(head), u = strlen(unit), z = strlen(tail);
	char *text = malloc(a + u * n + z + 1u);
	cr_assert_not_null(text);
	memcpy(text, head, a);
	for (size_t i = 0; i < n; i++) {
		memcpy(text + a + i * u, unit, u);
	}
	memcpy(text + a + u * n, tail, z + 1u);
	*len_p = a + u * n + z;
	return text;
}

Test(config_errors, limits)
{
	size_t len;
	char *text = repeat("site: s\nidle: ", "[", 16, "\n", &len);
	expect_error(
		"deep", text, len,
		"s.yaml:2: idle[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: found mappings and "
		"lists nested more than 16 deep, allowed 16 levels");
	free(text);
	text = repeat("site: s\nidle: ", "{a: ", 200000, "\n", &len);
	expect_error(
		"very deep", text, len,
		"s.yaml:2: idle.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a: found mappings and lists nested "
		"more than 16 deep, allowed 16 levels");
	free(text);
	text = repeat("site: ", "x", 1025, "\n", &len);
	expect_error(
		"scalar", text, len,
		"s.yaml:1: site: found a text of more than 1024 bytes, allowed up to 1024 bytes");
	free(text);
	text = repeat("site: s\nidle: [", "a,", 110000, "]\n", &len);
	expect_error("nodes", text, len,
		     "s.yaml:2: idle[99995]: found more than 100000 keys and values, "
		     "allowed 100000");
	free(text);
	text = repeat("", "#", TW_NODE_MAX_FILE_BYTES + 1u, "", &len);
	expect_error("large", text, len,
		     "s.yaml:1: top level: found more than 1 MiB, allowed 1 MiB of YAML");
	free(text);
	text = malloc(1025 * 16 + 64);
	cr_assert_not_null(text);
	char *end = stpcpy(text, "site: s\nidle:\n");
	for (unsigned int i = 0; i < 1025; i++) {
		end += snprintf(end, 16, "  k%u: 1\n", i);
	}
	expect_error(
		"keys", text, (size_t)(end - text),
		"s.yaml:1027: idle: found more than 1024 keys in one mapping, allowed 1024 keys");
	free(text);
	NO_LEAKS();
}

/* The path of a long file name keeps its tail, so that what matters stays in the text. */
Test(config_errors, long_path)
{
	char path[TW_FILE_BYTES + 1];
	struct tw_site *site;
	struct tw_error err = { 0 };
	memset(path, 'p', sizeof(path));
	memcpy(path + TW_FILE_BYTES - 9, "/s.yaml\0", 9);
	cr_expect_eq(tw_site_parse(&site, path, "site: _", 7, &err), TW_ECONFIG);
	cr_expect_not_null(strstr(err.text, "/s.yaml:1: site: found '_'"), "%s", err.text);
	cr_expect_eq(strncmp(err.text, "...ppp", 6), 0);
	memset(path, 'p', sizeof(path));
	path[TW_FILE_BYTES] = '\0';
	cr_expect_eq(tw_site_parse(&site, path, "site: s", 7, &err), TW_EARG);
	cr_expect_null(site);
	NO_LEAKS();
}
