/* A site file that sets every key to something else than its default, with known line numbers. */
#ifndef TW_TESTS_CONFIG_TEXT_H
#define TW_TESTS_CONFIG_TEXT_H

/* Leaks of a test worker are reported only where it asks, and only under AddressSanitizer. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
#define NO_LEAKS()                                            \
	cr_assert(__lsan_do_recoverable_leak_check == NULL || \
		  __lsan_do_recoverable_leak_check() == 0)

static const char full_site[] =
	"site: demo\n" /* 1 */
	"environment: test\n"
	"run_dir: /tmp/tw-test\n"
	"idle: yield\n"
	"slow_turn_us: 250\n" /* 5 */
	"fabric:\n"
	"  transport: udp\n"
	"  mtu_bytes: 2048\n"
	"  ttl: 3\n"
	"  receive_buffer_kbytes: 2048\n" /* 10 */
	"  gso: off\n"
	"  partition_key: 0xFFff\n"
	"  qos:\n"
	"    live: { dscp: 46, priority: 5, pfc: true, ecn: false }\n"
	"    repair: { dscp: 10, priority: 2, pfc: false, ecn: false }\n" /* 15 */
	"hosts:\n"
	"  md1: { address: 10.0.0.1, lines: { a: eth2, b: eth3 },\n"
	"         cpus: { publisher: 2, repair: 3, feedhandler: 4, subscriber: 5 } }\n"
	"  ts1: { address: 10.0.0.2, lines: { a: eth0, b: eth0 } }\n"
	"venues:\n" /* 20 */
	"  - { id: 1, mic: IEXG }\n"
	"  - { id: 7, mic: XNAS }\n"
	"channels:\n"
	"  - { id: 1, name: iex-quotes, groups: { a: 239.192.1.1, b: 239.192.129.1 } }\n"
	"  - { id: 2,\n" /* 25 */
	"      name: iex-levels,\n"
	"      depth: levels, mode: ordered,\n"
	"      levels: 5,\n"
	"      symbols: [ZVZZT, \"AAPL\", BRK.B],\n"
	"      groups: { a: 239.192.2.1 } }\n" /* 30 */
	"feedhandlers:\n"
	"  - name: iex\n"
	"    host: md1\n"
	"    venue: XNAS\n"
	"    protocol: tops16\n" /* 35 */
	"    session: iextp\n"
	"    input: { files: caps/a.pcap.gz, speed_pct: 400, rate: 1000 }\n"
	"    directory: /etc/iex.symbols\n"
	"    bus_kbytes: 1024\n"
	"    wait_publisher_ms: 5\n" /* 40 */
	"    channels: [2, 1]\n"
	"publishers:\n"
	"  - { name: pub1, host: md1, channels: [1, 2], history_ms: 500, peak_mbps: 40,\n"
	"      heartbeat_min_us: 300, heartbeat_ms: 50, repair_port: 5000, repair_clients: 9,"
	" repair_max_mbps: 300, repair_client_max_mbps: 30 }\n"
	"subscriber: { repair: [pub1], wait_us: 77, start: live, mode: latest, accept_replay: "
	"true,\n" /* 45 */
	"              store_datagrams: 64, session_takeover_ms: 900, give_up_ms: 250,"
	" retry_min_ms: 3, retry_max_ms: 40, max_mbps: 70, attempts: 6, read_kbytes: 32 }\n"
	"fault:\n"
	"  seed: 0x10\n"
	"  correlated_loss_pct: 0.25\n"
	"  reorder_us: 30\n" /* 50 */
	"  lines:\n"
	"    a: { loss_pct: 1.5, duplicate_pct: 0.0001, reorder_pct: 100, delay_us: 4, "
	"cut_begin: 7, cut_end: 18446744073709551615 }\n"
	"    b: { loss_pct: 2, duplicate_pct: 3, reorder_pct: 4.05, delay_us: 5 }\n";

#endif
