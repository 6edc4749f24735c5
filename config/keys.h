/* The one table of configuration keys.  The parser, its errors, `tw-config show`, the commented sample
 * and docs/CONFIG.md are made from it; adding a key is adding a line here and a struct member.
 *
 * SECTION(path, help)                                             a mapping of keys
 * ELEMENTS(path, kind, struct, array, count, min, max, help)      a list or mapping of structs
 * KEY(path, kind, struct, member, default, example, help)         what needs no range
 * NUM(path, kind, struct, member, default, example, min, max, help)
 * SET(path, kind, struct, member, default, "a|b", help)           one of a set, in enum order
 * REFS(path, kind, struct, array, count, default, example, help)  a list of references
 *
 * default    as it would stand in a file; REQUIRED: there is none; "": the key may be left out
 * example    for the sample, where the default is REQUIRED or ""
 * Order      a section's keys follow it, and what is referred to comes before who refers to it.
 * Units      are the suffix of the name, never part of a value. */
#ifndef TW_CONFIG_KEYS_H
#define TW_CONFIG_KEYS_H

#define TW_CONFIG_REQUIRED ((const char *)0)

#define TW_CONFIG_TOP(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                                     \
	KEY("site", NAME, tw_site, name, TW_CONFIG_REQUIRED, "demo",                              \
	    "Name of the site. With `environment` it makes the environment id that every "        \
	    "datagram carries; datagrams of another id are dropped and counted.")                 \
	SET("environment", ENUM, tw_site, production, "test", "test|production",                  \
	    "What the site is for. `production` refuses `fault` and `accept_replay`. Two "        \
	    "sites whose environments differ never have the same environment id.")                \
	KEY("run_dir", RUN_DIR, tw_site, run_dir, "", "/dev/shm/tidewire-0",                      \
	    "Folder where the processes of a host meet: counters, buses, session numbers. "       \
	    "Made with mode 0700. Left out, it is /dev/shm/tidewire- and the user id.")           \
	SET("idle", ENUM, tw_site, idle, "auto", "auto|spin|yield|event",                         \
	    "What a hot loop does when there is nothing to do. `auto` spins, but yields where "   \
	    "this host has more hot threads than CPUs; `event` sleeps in the kernel.")            \
	NUM("slow_turn_us", UINT, tw_site, slow_turn_us, "100", "", 1, 10000000,                  \
	    "Turns of a hot loop that take longer are counted as slow: on a pinned core, a sign " \
	    "that something else ran on it.")

#define TW_CONFIG_FABRIC(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                                   \
	SECTION("fabric", "The network.")                                                          \
	SET("fabric.transport", ENUM, tw_site, fabric.transport, "auto", "auto|verbs|udp|shm",     \
	    "How a host reaches the network; both ways share a group. `verbs`: the RDMA devices "  \
	    "of "                                                                                  \
	    "the host's lines. `udp`: a socket on UDP port 4791. `auto` takes `verbs` where a "    \
	    "device can carry each line, else `udp` where that port can be bound and no device "   \
	    "takes RoCE for itself, and says what it chose. `shm` is refused when a process "      \
	    "starts.")                                                                             \
	SET("fabric.mtu_bytes", UINT, tw_site, fabric.mtu_bytes, "1024", "256|512|1024|2048|4096", \
	    "Largest datagram, RoCE headers aside; the path MTUs of InfiniBand. 1024 fits "        \
	    "1500-byte Ethernet, 4096 needs jumbo frames on every link.")                          \
	NUM("fabric.ttl", UINT, tw_site, fabric.ttl, "8", "", 1, 255,                              \
	    "Time to live of multicast: it passes one router less than that.")                     \
	NUM("fabric.receive_buffer_kbytes", UINT, tw_site, fabric.receive_buffer_kbytes, "4096",   \
	    "", 64, 1048576,                                                                       \
	    "Socket receive buffer to ask for, per group (`udp`). What the kernel granted is "     \
	    "printed and counted; more than net.core.rmem_max needs CAP_NET_ADMIN. On `verbs`, "   \
	    "memory of the receive queue where `receive_depth` is 0.")                             \
	NUM("fabric.receive_depth", UINT, tw_site, fabric.receive_depth, "0", "", 0, 1048576,      \
	    "Datagrams that a receive queue holds, per group (`verbs`): the burst that it "        \
	    "survives while nobody polls, within what the device takes. Small datagrams take a "   \
	    "place each, as large ones do. 0: as many of `mtu_bytes` as `receive_buffer_kbytes` "  \
	    "holds.")                                                                              \
	SET("fabric.gso", ENUM, tw_site, fabric.gso, "auto", "auto|on|off",                        \
	    "Whether `udp` hands runs of datagrams to the kernel in one call (UDP GSO). `auto`: "  \
	    "on lo and veth, elsewhere not, because a NIC that segments in hardware may number "   \
	    "IP headers in a way that breaks the ICRC.")                                           \
	NUM("fabric.partition_key", HEX, tw_site, fabric.partition_key, "0xffff", "", 0, 0xffff,   \
	    "Partition of an InfiniBand fabric: that of the lines' interfaces. On RoCE anything "  \
	    "but 0xffff is an error.")                                                             \
	SECTION("fabric.qos", "Traffic classes.")                                                  \
	SECTION("fabric.qos.live", "Live multicast.")                                              \
	NUM("fabric.qos.live.dscp", UINT, tw_site, fabric.live.dscp, "34", "", 0, 63,              \
	    "DSCP of live multicast; the ToS byte on the wire is four times that.")                \
	NUM("fabric.qos.live.priority", UINT, tw_site, fabric.live.priority, "4", "", 0, 7,        \
	    "Priority that switches and NICs map the DSCP to. Takes effect with a later version "  \
	    "(RoCE set-up plans); no process of this one sets it.")                                \
	SET("fabric.qos.live.pfc", BOOL, tw_site, fabric.live.pfc, "false", "",                    \
	    "Lossless live traffic: the slowest receiver can then pause everybody's. Takes "       \
	    "effect with a later version (RoCE set-up plans).")                                    \
	SET("fabric.qos.live.ecn", BOOL, tw_site, fabric.live.ecn, "false", "",                    \
	    "Must be false: multicast is sent Not-ECT, because nobody answers a mark on it.")      \
	SECTION("fabric.qos.repair",                                                               \
		"Repair. Over TCP the sockets of both ends have the ToS byte and the priority.")   \
	NUM("fabric.qos.repair.dscp", UINT, tw_site, fabric.repair.dscp, "26", "", 0, 63,          \
	    "DSCP of repair; with ECN the ToS byte is 106.")                                       \
	NUM("fabric.qos.repair.priority", UINT, tw_site, fabric.repair.priority, "3", "", 0, 7,    \
	    "Priority that switches and NICs map the DSCP to.")                                    \
	SET("fabric.qos.repair.pfc", BOOL, tw_site, fabric.repair.pfc, "true", "",                 \
	    "Priority flow control on that priority. Takes effect with a later version (RoCE "     \
	    "set-up plans).")                                                                      \
	SET("fabric.qos.repair.ecn", BOOL, tw_site, fabric.repair.ecn, "true", "",                 \
	    "ECN marking for that class. Takes effect with a later version (RoCE set-up plans); "  \
	    "for TCP the kernel's own setting counts.")

#define TW_CONFIG_HOSTS(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                                    \
	ELEMENTS("hosts", MAP, tw_site, hosts, host_count, 1, TW_MAX_HOSTS,                        \
		 "The machines, by name. A process finds its own by `--as NAME` or by the "        \
		 "machine's host name, with or without domain; a single host needs neither.")      \
	KEY("hosts.<name>.address", ADDRESS, tw_site_host, address, TW_CONFIG_REQUIRED,            \
	    "10.0.0.1",                                                                            \
	    "IPv4 address. Where an interface of a line has several, this one is used if it is "   \
	    "among them.")                                                                         \
	SECTION("hosts.<name>.lines",                                                              \
		"Interface of each line on this host; both may be the same one.")                  \
	KEY("hosts.<name>.lines.a", INTERFACE, tw_site_host, lines[0], TW_CONFIG_REQUIRED, "eth2", \
	    "Interface of line A; `lo` keeps everything on the machine.")                          \
	KEY("hosts.<name>.lines.b", INTERFACE, tw_site_host, lines[1], "", "eth3",                 \
	    "Interface of line B; needed where any channel has a group on it.")                    \
	SECTION("hosts.<name>.addresses",                                                          \
		"IPv4 address of each line's interface, where it is not `address`: subscribers "   \
		"on "                                                                              \
		"other hosts take a publisher's datagrams only from these.")                       \
	KEY("hosts.<name>.addresses.a", ADDRESS, tw_site_host, line_addresses[0], "", "10.1.0.1",  \
	    "Address of line A's interface; left out, it is `address`.")                           \
	KEY("hosts.<name>.addresses.b", ADDRESS, tw_site_host, line_addresses[1], "", "10.2.0.1",  \
	    "Address of line B's interface; left out, it is `address`.")                           \
	SECTION("hosts.<name>.cpus",                                                               \
		"CPUs that hot threads are pinned to. What is left out is not pinned.")            \
	NUM("hosts.<name>.cpus.publisher", CPU, tw_site_host, cpu_publisher, "", "2", 0, 1023,     \
	    "CPU of the publisher.")                                                               \
	NUM("hosts.<name>.cpus.repair", CPU, tw_site_host, cpu_repair, "", "3", 0, 1023,           \
	    "CPU of a publisher's repair service; left out, it yields to hot threads.")            \
	NUM("hosts.<name>.cpus.feedhandler", CPU, tw_site_host, cpu_feedhandler, "", "4", 0, 1023, \
	    "CPU of the feedhandler.")                                                             \
	NUM("hosts.<name>.cpus.subscriber", CPU, tw_site_host, cpu_subscriber, "", "5", 0, 1023,   \
	    "CPU of tw-subscribe.")

#define TW_CONFIG_CHANNELS(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                                 \
	ELEMENTS("venues", LIST, tw_site, venues, venue_count, 0, TW_MAX_VENUES,                   \
		 "Numbers of the venues: messages carry the number, people read the MIC.")         \
	NUM("venues[].id", UINT, tw_site_venue, id, TW_CONFIG_REQUIRED, "1", 1, 65535,             \
	    "Number of the venue in every message; never reuse one.")                              \
	KEY("venues[].mic", MIC, tw_site_venue, mic, TW_CONFIG_REQUIRED, "IEXG",                   \
	    "Market identifier code.")                                                             \
	ELEMENTS("channels", LIST, tw_site, channels, channel_count, 1, TW_MAX_CHANNELS,           \
		 "The streams: each has one message sequence, one feedhandler and one publisher.") \
	NUM("channels[].id", UINT, tw_site_channel, id, TW_CONFIG_REQUIRED, "1", 1, 65535,         \
	    "Number of the channel in every datagram.")                                            \
	KEY("channels[].name", NAME, tw_site_channel, name, TW_CONFIG_REQUIRED, "iex-quotes",      \
	    "Name of the channel, for people.")                                                    \
	SET("channels[].depth", ENUM, tw_site_channel, depth, "quotes", "quotes|levels|orders",    \
	    "What the channel carries: best bid and offer, price levels, or orders; trades and "   \
	    "statuses always. A protocol that does not give that depth is refused by its "         \
	    "feedhandler.")                                                                        \
	NUM("channels[].levels", UINT, tw_site_channel, levels, "10", "", 1, 1000,                 \
	    "Price levels a side, with depth `levels` alone.")                                     \
	SET("channels[].mode", ENUM, tw_site_channel, mode, "site", "site|ordered|latest",         \
	    "How subscribers take this channel: as `subscriber.mode` says, or whatever it says.")  \
	KEY("channels[].symbols", SYMBOLS, tw_site_channel, symbols, "*", "",                      \
	    "Instruments of the channel as the venue spells them, or `[\"*\"]` for all.")          \
	SECTION("channels[].groups", "Multicast group of each line.")                              \
	KEY("channels[].groups.a", GROUP, tw_site_channel, groups[0], TW_CONFIG_REQUIRED,          \
	    "239.192.1.1",                                                                         \
	    "Group of line A. No two groups of a site may have the same low 23 bits: they would "  \
	    "share an Ethernet address.")                                                          \
	KEY("channels[].groups.b", GROUP, tw_site_channel, groups[1], "", "239.192.129.1",         \
	    "Group of line B; without it the channel has one line.")

#define TW_CONFIG_FEEDHANDLERS(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                             \
	ELEMENTS("feedhandlers", LIST, tw_site, feedhandlers, feedhandler_count, 0,                \
		 TW_MAX_FEEDHANDLERS, "Processes that read a venue's feed, one for each feed.")    \
	KEY("feedhandlers[].name", NAME, tw_site_feedhandler, name, TW_CONFIG_REQUIRED, "iex",     \
	    "Name, for `--as` and for its counter file.")                                          \
	KEY("feedhandlers[].host", HOST, tw_site_feedhandler, host, TW_CONFIG_REQUIRED, "md1",     \
	    "Host that it runs on.")                                                               \
	KEY("feedhandlers[].venue", VENUE, tw_site_feedhandler, venue_id, TW_CONFIG_REQUIRED,      \
	    "IEXG", "MIC of its venue.")                                                           \
	KEY("feedhandlers[].protocol", NAME, tw_site_feedhandler, protocol, TW_CONFIG_REQUIRED,    \
	    "tops16", "Message protocol of the feed; the feedhandler lists what it knows.")        \
	KEY("feedhandlers[].session", NAME, tw_site_feedhandler, session, "", "iextp",             \
	    "Session layer under the messages; left out, the protocol's usual one.")               \
	SECTION("feedhandlers[].input", "Where the feed comes from.")                              \
	KEY("feedhandlers[].input.files", FILES, tw_site_feedhandler, files, "",                   \
	    "[/var/lib/tidewire/tops16.pcap.gz]",                                                  \
	    "Recordings to play, one after the other as one stream: captures, or Nasdaq "          \
	    "BinaryFILEs. A relative path begins at the folder of the site file. Either this or "  \
	    "`multicast` is required.")                                                            \
	SECTION("feedhandlers[].input.multicast",                                                  \
		"The venue's own multicast, live, instead of files: one line or two that carry "   \
		"the same messages. No process waits for another then: what a publisher is too "   \
		"slow for is a hole in its channel.")                                              \
	KEY("feedhandlers[].input.multicast.a", FEED_GROUP, tw_site_feedhandler, multicast[0], "", \
	    "233.54.12.111:26477", "The venue's line A.")                                          \
	KEY("feedhandlers[].input.multicast.b", FEED_GROUP, tw_site_feedhandler, multicast[1], "", \
	    "233.86.230.111:26477", "The venue's line B.")                                         \
	SECTION("feedhandlers[].input.interfaces",                                                 \
		"Where the groups of `multicast` are joined, by name or IPv4 address of an "       \
		"interface; left out, on the host's own lines. It need not be up at the start.")   \
	KEY("feedhandlers[].input.interfaces.a", INTERFACE, tw_site_feedhandler, interfaces[0],    \
	    "", "eth4", "Interface of the venue's line A.")                                        \
	KEY("feedhandlers[].input.interfaces.b", INTERFACE, tw_site_feedhandler, interfaces[1],    \
	    "", "eth5",                                                                            \
	    "Interface of the venue's line B; left out, that of the host's line b, "               \
	    "else of its line a.")                                                                 \
	NUM("feedhandlers[].input.wait_us", UINT, tw_site_feedhandler, gap_wait_us, "1000", "", 0, \
	    10000000,                                                                              \
	    "With `multicast`: how long a gap in the venue's sequence waits for the other line "   \
	    "or a late packet before it is asked for again or given up.")                          \
	NUM("feedhandlers[].input.store_packets", UINT, tw_site_feedhandler, store_packets,        \
	    "4096", "", 16, 65536,                                                                 \
	    "With `multicast`: packets that can be held back behind a gap; a full store gives "    \
	    "the "                                                                                 \
	    "gap up. Memory: 9 KB for each.")                                                      \
	REFS("feedhandlers[].input.rerequest", ENDPOINTS, tw_site_feedhandler, rerequest,          \
	     rerequest_count, "", "[\"10.0.0.9:17000\"]",                                          \
	     "With `multicast`, for sessions that have it (MoldUDP64): servers to ask by UDP for " \
	     "what no line has brought, in turn.")                                                 \
	NUM("feedhandlers[].input.rerequest_ms", UINT, tw_site_feedhandler, rerequest_ms, "20",    \
	    "", 1, 60000,                                                                          \
	    "How long such a server has to answer before the next one is asked; twice as long "    \
	    "after each round through all of them.")                                               \
	NUM("feedhandlers[].input.rerequest_attempts", UINT, tw_site_feedhandler,                  \
	    rerequest_attempts, "4", "", 1, 255,                                                   \
	    "How often in a row without an answer messages are asked for, all servers together, "  \
	    "before they are given up.")                                                           \
	NUM("feedhandlers[].input.trading_date", UINT, tw_site_feedhandler, trading_date, "0", "", \
	    0, 22611231,                                                                           \
	    "Trading date as YYYYMMDD, for protocols whose times count from midnight. 0: the "     \
	    "date in the name of a BinaryFILE, or the day that a packet was received on.")         \
	SET("feedhandlers[].input.restamp", BOOL, tw_site_feedhandler, restamp, "false", "",       \
	    "Whether the recording happens now: every time in it is moved by one amount, so that " \
	    "its first packet is received when it is read. Latencies of a replay then mean "       \
	    "something, with `speed_pct: 100`; the exchange's own times are changed.")             \
	NUM("feedhandlers[].input.speed_pct", UINT, tw_site_feedhandler, speed_pct, "100", "", 0,  \
	    1000000,                                                                               \
	    "Speed of `files`: 100 as captured, 200 twice as fast, 0 as fast as it goes.")         \
	NUM("feedhandlers[].input.rate", UINT, tw_site_feedhandler, rate_msgs, "0", "", 0,         \
	    100000000, "At most so many messages a second, of `files`; 0: no limit.")              \
	KEY("feedhandlers[].directory", FILE, tw_site_feedhandler, directory, "",                  \
	    "/etc/tidewire/iex.symbols",                                                           \
	    "Directory file, sorted by symbol, that numbers the instruments; left out, the "       \
	    "venue's own numbers or a hash of the symbol. Relative as `input.files`.")             \
	NUM("feedhandlers[].max_orders", UINT, tw_site_feedhandler, max_orders, "3145728", "", 1,  \
	    268435456,                                                                             \
	    "Live orders that a protocol with orders can follow at once; what comes on top is "    \
	    "counted and not sent. Memory: 43 to 85 bytes for each.")                              \
	NUM("feedhandlers[].bus_kbytes", POW2, tw_site_feedhandler, bus_kbytes, "16384", "", 64,   \
	    4194304,                                                                               \
	    "Shared memory of each of its channels between feedhandler and publisher: how far "    \
	    "a publisher may fall behind a live feed.")                                            \
	NUM("feedhandlers[].wait_publisher_ms", UINT, tw_site_feedhandler, wait_publisher_ms,      \
	    "10000", "", 0, 86400000,                                                              \
	    "How long a file input waits for its publisher before it gives up; 0: for ever.")      \
	REFS("feedhandlers[].channels", CHANNELS, tw_site_feedhandler, channels, channel_count,    \
	     TW_CONFIG_REQUIRED, "[1]", "Ids of the channels that it writes.")

#define TW_CONFIG_PUBLISHERS(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                               \
	ELEMENTS("publishers", LIST, tw_site, publishers, publisher_count, 0, TW_MAX_PUBLISHERS,   \
		 "Processes that send channels to their groups, each beside its feedhandlers.")    \
	KEY("publishers[].name", NAME, tw_site_publisher, name, TW_CONFIG_REQUIRED, "pub1",        \
	    "Name, for `--as` and for its counter file.")                                          \
	KEY("publishers[].host", HOST, tw_site_publisher, host, TW_CONFIG_REQUIRED, "md1",         \
	    "Host that it runs on: that of the feedhandlers of its channels.")                     \
	REFS("publishers[].channels", CHANNELS, tw_site_publisher, channels, channel_count,        \
	     TW_CONFIG_REQUIRED, "[1]", "Ids of the channels that it sends.")                      \
	NUM("publishers[].history_ms", UINT, tw_site_publisher, history_ms, "10000", "", 1,        \
	    3600000,                                                                               \
	    "How long a datagram stays in the history log at the peak rate; at least four "        \
	    "heartbeats. The memory that follows is printed by `tw-config check`.")                \
	NUM("publishers[].peak_mbps", UINT, tw_site_publisher, peak_mbps, "100", "", 1, 400000,    \
	    "Peak rate of one channel on one line, in megabits a second, that `history_ms` is "    \
	    "meant for.")                                                                          \
	NUM("publishers[].heartbeat_min_us", UINT, tw_site_publisher, heartbeat_min_us, "200", "", \
	    10, 10000000,                                                                          \
	    "The first heartbeat comes so long after the last datagram; then the interval "        \
	    "doubles.")                                                                            \
	NUM("publishers[].heartbeat_ms", UINT, tw_site_publisher, heartbeat_ms, "100", "", 1,      \
	    10000,                                                                                 \
	    "Longest interval between heartbeats; a line silent for three of them is down.")       \
	NUM("publishers[].max_mbps", UINT, tw_site_publisher, max_mbps, "0", "", 0, 400000,        \
	    "Most that a channel sends on a line, in megabits of datagrams a second: what comes "  \
	    "faster waits on the bus; 0: no limit.")                                               \
	NUM("publishers[].burst_kbytes", UINT, tw_site_publisher, burst_kbytes, "64", "", 4,       \
	    1048576, "What may go out at once under `max_mbps` after a pause.")                    \
	NUM("publishers[].repair_port", UINT, tw_site_publisher, repair_port, "4790", "", 0,       \
	    65535,                                                                                 \
	    "Port of the repair service, on the host's address: of TCP, and with `verbs` of "      \
	    "RDMA's connection manager as well. It runs where `subscriber.repair` names this "     \
	    "publisher; 0: it never does.")                                                        \
	NUM("publishers[].repair_clients", UINT, tw_site_publisher, repair_clients, "64", "", 1,   \
	    4096, "Subscribers that the repair service takes at a time; each has counters.")       \
	NUM("publishers[].repair_max_mbps", UINT, tw_site_publisher, repair_max_mbps, "1000", "",  \
	    0, 400000,                                                                             \
	    "Most that the repair service sends to all subscribers together, in megabits a "       \
	    "second; 0: no limit.")                                                                \
	NUM("publishers[].repair_client_max_mbps", UINT, tw_site_publisher,                        \
	    repair_client_max_mbps, "200", "", 0, 400000,                                          \
	    "Most for one subscriber: beyond it reads wait, and who asks for more without a "      \
	    "pause for half a minute loses its connection; 0: no limit. Of reads by RDMA READ "    \
	    "the server sees nothing: there `subscriber.max_mbps` holds.")                         \
	SET("publishers[].repair_one_sided", BOOL, tw_site_publisher, repair_one_sided, "true",    \
	    "",                                                                                    \
	    "With `verbs`: whether subscribers read the history themselves, by RDMA READ. "        \
	    "`false`: the repair service reads it for them, within its rates.")

#define TW_CONFIG_SUBSCRIBER(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                               \
	SECTION("subscriber", "All subscribers of the site.")                                      \
	REFS("subscriber.repair", PUBLISHERS, tw_site, subscriber.repair, subscriber.repair_count, \
	     "", "[pub1]",                                                                         \
	     "Names of the publishers to ask for what is missing, in order; their repair "         \
	     "services then run. Empty: what no line brings is reported as LOST.")                 \
	NUM("subscriber.give_up_ms", UINT, tw_site, subscriber.give_up_ms, "2000", "", 1, 600000,  \
	    "A gap that is not repaired for so long, from when it was seen, is LOST; also how "    \
	    "long a repair server may take for one reply.")                                        \
	NUM("subscriber.retry_min_ms", UINT, tw_site, subscriber.retry_min_ms, "5", "", 1, 60000,  \
	    "Shortest time after which a range is asked for again, and a repair server is "        \
	    "connected to again; it doubles with each failure.")                                   \
	NUM("subscriber.retry_max_ms", UINT, tw_site, subscriber.retry_max_ms, "500", "", 1,       \
	    60000, "Longest such time; at least `retry_min_ms`.")                                  \
	NUM("subscriber.max_mbps", UINT, tw_site, subscriber.max_mbps, "100", "", 0, 400000,       \
	    "Most that a channel of a subscriber asks repair servers for, in megabits a second; "  \
	    "0: no limit. A server has a limit of its own.")                                       \
	NUM("subscriber.attempts", UINT, tw_site, subscriber.attempts, "5", "", 1, 255,            \
	    "How often a range is asked for, all servers together, before it is LOST.")            \
	NUM("subscriber.read_kbytes", UINT, tw_site, subscriber.read_kbytes, "64", "", 4, 64,      \
	    "Largest single read.")                                                                \
	NUM("subscriber.wait_us", UINT, tw_site, subscriber.wait_us, "1000", "", 0, 10000000,      \
	    "How long a gap waits for the other line or a late datagram before repair is asked "   \
	    "for, or, without repair, before it is given up.")                                     \
	SET("subscriber.start", ENUM, tw_site, subscriber.start, "session", "session|live",        \
	    "Where a subscriber begins: at message 1 of the session, and reports as LOST what "    \
	    "it came too late for; or with the first message that it hears.")                      \
	SET("subscriber.mode", ENUM, tw_site, subscriber.mode, "ordered", "ordered|latest",        \
	    "Whether what comes ahead of a gap waits until that is repaired or LOST, or comes "    \
	    "at once; what fills the gap later is then marked, and `late` where newer of its "     \
	    "instrument came before. `latest` is for channels of depth `quotes` alone.")           \
	SET("subscriber.accept_replay", BOOL, tw_site, subscriber.accept_replay, "false", "",      \
	    "Whether datagrams that carry the replay flag are taken. Refused in production.")      \
	NUM("subscriber.store_datagrams", UINT, tw_site, subscriber.store_dgrams, "1024", "", 16,  \
	    65536,                                                                                 \
	    "Datagrams of a channel that can be held back behind a gap. With a full store "        \
	    "what comes is set aside and asked for again later; where no repair server may "       \
	    "help, the gap is given up. Memory: so many times `mtu_bytes` a channel.")             \
	NUM("subscriber.session_takeover_ms", UINT, tw_site, subscriber.session_takeover_ms,       \
	    "2000", "", 100, 3600000,                                                              \
	    "A subscriber that hears only a lower session for so long adopts it and says so.")

#define TW_CONFIG_FAULT_LINE(line, index, NUM)                                                     \
	NUM("fault.lines." line ".loss_pct", PCT, tw_site, fault.lines[index].loss_ppm, "0", "",   \
	    0, 1000000, "Datagrams lost.")                                                         \
	NUM("fault.lines." line ".duplicate_pct", PCT, tw_site, fault.lines[index].duplicate_ppm,  \
	    "0", "", 0, 1000000, "Datagrams that come twice.")                                     \
	NUM("fault.lines." line ".reorder_pct", PCT, tw_site, fault.lines[index].reorder_ppm, "0", \
	    "", 0, 1000000, "Datagrams that come `reorder_us` later than the rest.")               \
	NUM("fault.lines." line ".delay_us", US_NS, tw_site, fault.lines[index].delay_ns, "0", "", \
	    0, 10000000, "Delay of every datagram.")                                               \
	NUM("fault.lines." line ".cut_begin", UINT, tw_site, fault.lines[index].cut_begin_seq,     \
	    "0", "", 0, UINT64_MAX,                                                                \
	    "Message number from whose datagram on the line is cut: nothing comes, heartbeats "    \
	    "neither. Of every session.")                                                          \
	NUM("fault.lines." line ".cut_end", UINT, tw_site, fault.lines[index].cut_end_seq, "0",    \
	    "", 0, UINT64_MAX,                                                                     \
	    "Message number with whose datagram the line is back; 0: it is never cut.")

#define TW_CONFIG_FAULT(SECTION, ELEMENTS, KEY, NUM, SET, REFS)                               \
	SECTION("fault",                                                                      \
		"Faults injected at every subscriber, for tests; printed in every summary. "  \
		"Refused in production. The same seed gives the same faults, whatever the "   \
		"timing.")                                                                    \
	NUM("fault.seed", HEX, tw_site, fault.seed, "1", "", 0, UINT64_MAX, "Seed.")          \
	NUM("fault.correlated_loss_pct", PCT, tw_site, fault.correlated_loss_ppm, "0", "", 0, \
	    1000000, "Datagrams lost on both lines at once.")                                 \
	NUM("fault.reorder_us", US_NS, tw_site, fault.reorder_ns, "200", "", 0, 10000000,     \
	    "How much later a reordered datagram comes, at least.")                           \
	SECTION("fault.lines", "By line.")                                                    \
	SECTION("fault.lines.a", "Line A.")                                                   \
	TW_CONFIG_FAULT_LINE("a", 0, NUM)                                                     \
	SECTION("fault.lines.b", "Line B.")                                                   \
	TW_CONFIG_FAULT_LINE("b", 1, NUM)

#define TW_CONFIG_KEYS(...)                 \
	TW_CONFIG_TOP(__VA_ARGS__)          \
	TW_CONFIG_FABRIC(__VA_ARGS__)       \
	TW_CONFIG_HOSTS(__VA_ARGS__)        \
	TW_CONFIG_CHANNELS(__VA_ARGS__)     \
	TW_CONFIG_FEEDHANDLERS(__VA_ARGS__) \
	TW_CONFIG_PUBLISHERS(__VA_ARGS__)   \
	TW_CONFIG_SUBSCRIBER(__VA_ARGS__)   \
	TW_CONFIG_FAULT(__VA_ARGS__)

/* Keys that the design knows and this version does not: PLANNED(path, what to do instead). */
#define TW_CONFIG_PLANNED(PLANNED)                                              \
	PLANNED("hours", "leave it out, a capture is one day")                  \
	PLANNED("publishers[].auth",                                            \
		"leave it out, a login to repair is judged by its environment") \
	PLANNED("publishers[].role", "leave it out, every publisher sends")     \
	PLANNED("feedhandlers[].hours", "leave it out, a capture is one day")   \
	PLANNED("repair", "use subscriber.repair")

#endif
