/* The one table of counter sets.  Enum, file layout and docs/COUNTERS.md are generated from it.
 *
 * TW_COUNTERS_<set>(C, H): C(set, SET, name, kind, unit, help) a counter, H(set, SET, name, help) a
 * latency histogram in ns.  Adding a counter is adding a line here. */
#ifndef TW_BASE_COUNTERS_TABLE_H
#define TW_BASE_COUNTERS_TABLE_H

#define TW_COUNTER_SETS(S)                                      \
	S(loop, "a hot loop")                                   \
	S(fh, "a feedhandler")                                  \
	S(fh_line, "a line of a venue's live feed")             \
	S(fh_channel, "a channel as the feedhandler writes it") \
	S(pub_channel, "a channel as the publisher sends it")   \
	S(pub_line, "one line of a channel at the publisher")   \
	S(sub, "a subscriber handle")                           \
	S(sub_channel, "a channel as a subscriber receives it") \
	S(sub_line, "one line of a channel at a subscriber")    \
	S(verbs_line, "an RDMA device as a line of a process")  \
	S(read_server, "the repair service of a publisher")     \
	S(read_client, "a client of a repair service")          \
	S(reader, "a repair server as a subscriber sees it")

#define TW_COUNTERS_loop(C, H)                                                    \
	C(loop, LOOP, turns, COUNTER, "", "turns of the loop")                    \
	C(loop, LOOP, empty_turns, COUNTER, "", "turns that found nothing to do") \
	C(loop, LOOP, max_turn_ns, MAX, "ns", "longest turn")                     \
	C(loop, LOOP, slow_turns, COUNTER, "", "turns over the threshold")

#define TW_COUNTERS_fh(C, H)                                                                     \
	C(fh, FH, packets, COUNTER, "", "packets or records read from the input")                \
	C(fh, FH, input_bytes, COUNTER, "bytes", "bytes read from the input")                    \
	C(fh, FH, foreign_packets, COUNTER, "", "packets of no configured group or protocol")    \
	C(fh, FH, malformed_packets, COUNTER, "", "packets whose framing does not hold")         \
	C(fh, FH, truncated_packets, COUNTER, "", "packets that the capture cut short")          \
	C(fh, FH, heartbeats, COUNTER, "", "session-layer heartbeats")                           \
	C(fh, FH, duplicate_messages, COUNTER, "", "messages that were already seen")            \
	C(fh, FH, gaps, COUNTER, "", "gaps in the venue's sequence")                             \
	C(fh, FH, missing_messages, COUNTER, "", "messages inside those gaps")                   \
	C(fh, FH, packets_held, COUNTER, "", "packets held back behind a gap, of live lines")    \
	C(fh, FH, held_packets, GAUGE, "", "packets that are held back")                         \
	C(fh, FH, held_max, MAX, "", "most packets ever held back at once")                      \
	C(fh, FH, store_full, COUNTER, "", "packets that found the store for them full")         \
	C(fh, FH, rerequests, COUNTER, "", "requests for missing messages sent to servers")      \
	C(fh, FH, rerequests_outstanding, MAX, "", "most of them outstanding at once")           \
	C(fh, FH, rerequest_replies, COUNTER, "", "replies that brought messages")               \
	C(fh, FH, rerequest_refused, COUNTER, "", "replies that nobody needs or asked for")      \
	C(fh, FH, rerequest_timeouts, COUNTER, "", "requests that no server answered in time")   \
	C(fh, FH, rerequest_given_up, COUNTER, "", "requests given up: no server has answered")  \
	C(fh, FH, unsequenced_packets, COUNTER, "", "packets without a number: no gap can show") \
	C(fh, FH, ended_sessions, COUNTER, "", "sessions that the venue has ended")              \
	C(fh, FH, session_changes, COUNTER, "", "venue session changes")                         \
	C(fh, FH, venue_messages, COUNTER, "", "venue messages decoded")                         \
	C(fh, FH, unknown_messages, COUNTER, "", "messages of an unknown type, passed over")     \
	C(fh, FH, unknown_values, COUNTER, "", "fields with a value the protocol does not list") \
	C(fh, FH, malformed_messages, COUNTER, "", "messages too short for their type")          \
	C(fh, FH, id_collisions, COUNTER, "", "instruments refused: their hash id is taken")     \
	C(fh, FH, instruments_refused, COUNTER, "", "instruments refused: the table is full")    \
	C(fh, FH, instruments_unlisted, COUNTER, "", "instruments that the directory lacks")     \
	C(fh, FH, instruments, GAUGE, "", "instruments known")                                   \
	C(fh, FH, unnamed_messages, COUNTER, "", "messages of an instrument not yet named")      \
	C(fh, FH, other_markets, COUNTER, "", "statuses of a market that is not this venue")     \
	C(fh, FH, orders, GAUGE, "", "live orders that are followed")                            \
	C(fh, FH, orders_refused, COUNTER, "", "orders not followed: the table is full")         \
	C(fh, FH, orders_repeated, COUNTER, "", "new orders with the id of a live one, dropped") \
	C(fh, FH, unknown_executed, COUNTER, "", "executions of an unknown order")               \
	C(fh, FH, unknown_priced, COUNTER, "", "executions with a price of an unknown order")    \
	C(fh, FH, unknown_cancelled, COUNTER, "", "partial cancels of an unknown order")         \
	C(fh, FH, unknown_deleted, COUNTER, "", "deletes of an unknown order")                   \
	C(fh, FH, unknown_replaced, COUNTER, "", "replaces of an unknown order")                 \
	H(fh, FH, exchange_to_feedhandler, "exchange timestamp to feedhandler")

#define TW_COUNTERS_fh_line(C, H)                                                                  \
	C(fh_line, FH_LINE, packets, COUNTER, "", "packets received")                              \
	C(fh_line, FH_LINE, bytes, COUNTER, "bytes", "bytes of them")                              \
	C(fh_line, FH_LINE, truncated, COUNTER, "", "packets longer than the buffer, dropped")     \
	C(fh_line, FH_LINE, kernel_drops, COUNTER, "", "packets that the socket's buffer refused") \
	C(fh_line, FH_LINE, unstamped, COUNTER, "", "packets without the kernel's receive time")   \
	C(fh_line, FH_LINE, joins, COUNTER, "", "joins of the group, the first one too")           \
	C(fh_line, FH_LINE, joins_failed, COUNTER, "", "joins that failed, or were found undone")  \
	C(fh_line, FH_LINE, silent_ms, GAUGE, "ms", "time since the last packet, or the start")    \
	C(fh_line, FH_LINE, receive_buffer_bytes, GAUGE, "bytes", "receive buffer granted")

#define TW_COUNTERS_fh_channel(C, H)                                                               \
	C(fh_channel, FH_CHANNEL, messages, COUNTER, "", "messages written to the bus")            \
	C(fh_channel, FH_CHANNEL, bytes, COUNTER, "bytes", "bytes written to the bus")             \
	C(fh_channel, FH_CHANNEL, stalls, COUNTER, "", "times the input waited for the publisher") \
	C(fh_channel, FH_CHANNEL, session, GAUGE, "", "session number")                            \
	C(fh_channel, FH_CHANNEL, next_seq, GAUGE, "", "number of the next message")

#define TW_COUNTERS_pub_channel(C, H)                                                             \
	C(pub_channel, PUB_CHANNEL, messages, COUNTER, "", "messages packed")                     \
	C(pub_channel, PUB_CHANNEL, datagrams, COUNTER, "", "datagrams packed, heartbeats apart") \
	C(pub_channel, PUB_CHANNEL, bytes, COUNTER, "bytes", "datagram bytes with padding")       \
	C(pub_channel, PUB_CHANNEL, heartbeats, COUNTER, "", "heartbeats sent")                   \
	C(pub_channel, PUB_CHANNEL, holes, COUNTER, "", "times the bus lapped the publisher")     \
	C(pub_channel, PUB_CHANNEL, hole_messages, COUNTER, "", "messages inside holes")          \
	C(pub_channel, PUB_CHANNEL, malformed_messages, COUNTER, "", "bus records refused")       \
	C(pub_channel, PUB_CHANNEL, history_stalls, COUNTER, "",                                  \
	  "turns that waited for sends to complete")                                              \
	C(pub_channel, PUB_CHANNEL, rate_stalls, COUNTER, "", "turns that max_mbps made wait")    \
	C(pub_channel, PUB_CHANNEL, session, GAUGE, "", "session number")                         \
	C(pub_channel, PUB_CHANNEL, publisher, GAUGE, "", "this life's publisher number")         \
	C(pub_channel, PUB_CHANNEL, next_seq, GAUGE, "", "number of the next message")            \
	C(pub_channel, PUB_CHANNEL, history_bytes, GAUGE, "bytes", "size of the history log")     \
	H(pub_channel, PUB_CHANNEL, feedhandler_to_sent,                                          \
	  "feedhandler to sent, first message of a datagram")

#define TW_COUNTERS_pub_line(C, H)                                                        \
	C(pub_line, PUB_LINE, datagrams, COUNTER, "", "datagrams posted, heartbeats too") \
	C(pub_line, PUB_LINE, bytes, COUNTER, "bytes", "datagram bytes posted")           \
	C(pub_line, PUB_LINE, skipped, COUNTER, "",                                       \
	  "datagrams that a full or broken send queue skipped")                           \
	C(pub_line, PUB_LINE, errors, COUNTER, "", "sends that failed")

#define TW_COUNTERS_sub(C, H)                                                             \
	C(sub, SUB, foreign_datagrams, COUNTER, "", "datagrams of no subscribed channel") \
	C(sub, SUB, clock_steps, COUNTER, "", "steps of the wall clock")

#define TW_COUNTERS_sub_channel(C, H)                                                              \
	C(sub_channel, SUB_CHANNEL, messages, COUNTER, "", "messages delivered")                   \
	C(sub_channel, SUB_CHANNEL, bytes, COUNTER, "bytes", "message bytes delivered")            \
	C(sub_channel, SUB_CHANNEL, unknown_messages, COUNTER, "",                                 \
	  "messages of an unknown template")                                                       \
	C(sub_channel, SUB_CHANNEL, unstamped, COUNTER, "",                                        \
	  "latency samples left out because TS_BAD was set")                                       \
	C(sub_channel, SUB_CHANNEL, gaps, COUNTER, "", "gaps seen")                                \
	C(sub_channel, SUB_CHANNEL, repaired_by_line, COUNTER, "",                                 \
	  "messages of a gap that another line or a late datagram filled")                         \
	C(sub_channel, SUB_CHANNEL, repaired_by_history, COUNTER, "",                              \
	  "messages repaired from history")                                                        \
	C(sub_channel, SUB_CHANNEL, repaired_by_snapshot, COUNTER, "",                             \
	  "messages covered by a snapshot")                                                        \
	C(sub_channel, SUB_CHANNEL, late_messages, COUNTER, "",                                    \
	  "messages delivered after a later one of their instrument")                              \
	C(sub_channel, SUB_CHANNEL, repair_reads, COUNTER, "", "reads from history asked for")     \
	C(sub_channel, SUB_CHANNEL, repair_bytes, COUNTER, "bytes", "bytes that came of them")     \
	C(sub_channel, SUB_CHANNEL, repair_retries, COUNTER, "",                                   \
	  "reads of a range that had been asked for before")                                       \
	C(sub_channel, SUB_CHANNEL, repair_failed, COUNTER, "",                                    \
	  "reads that ended without bytes: gone, refused, too early, broken")                      \
	C(sub_channel, SUB_CHANNEL, repair_one_sided, COUNTER, "",                                 \
	  "repair reads done by RDMA READ")                                                        \
	C(sub_channel, SUB_CHANNEL, lost_ranges, COUNTER, "", "LOST ranges")                       \
	C(sub_channel, SUB_CHANNEL, lost_messages, COUNTER, "", "messages inside LOST ranges")     \
	C(sub_channel, SUB_CHANNEL, holes, COUNTER, "", "holes that the publisher announced")      \
	C(sub_channel, SUB_CHANNEL, held_datagrams, GAUGE, "", "datagrams in the reorder store")   \
	C(sub_channel, SUB_CHANNEL, held_max, MAX, "", "most datagrams ever in the reorder store") \
	C(sub_channel, SUB_CHANNEL, store_full, COUNTER, "",                                       \
	  "gaps given up because the reorder store was full")                                      \
	C(sub_channel, SUB_CHANNEL, set_aside, COUNTER, "",                                        \
	  "datagrams that found the reorder store full and were left to repair")                   \
	C(sub_channel, SUB_CHANNEL, contradictions, COUNTER, "",                                   \
	  "datagrams that contradict an announced end of session")                                 \
	C(sub_channel, SUB_CHANNEL, session, GAUGE, "", "session number")                          \
	C(sub_channel, SUB_CHANNEL, session_changes, COUNTER, "", "sessions begun")                \
	C(sub_channel, SUB_CHANNEL, sessions_ended, COUNTER, "", "ends of session")                \
	C(sub_channel, SUB_CHANNEL, first_seq, GAUGE, "",                                          \
	  "number of the session's first message that counts here")                                \
	C(sub_channel, SUB_CHANNEL, next_seq, GAUGE, "",                                           \
	  "one past the highest number delivered or lost")                                         \
	H(sub_channel, SUB_CHANNEL, exchange_to_feedhandler, "exchange timestamp to feedhandler")  \
	H(sub_channel, SUB_CHANNEL, feedhandler_to_sent, "feedhandler to sent")                    \
	H(sub_channel, SUB_CHANNEL, sent_to_received,                                              \
	  "sent to received (carries the clock error between hosts)")                              \
	H(sub_channel, SUB_CHANNEL, received_to_consumed,                                          \
	  "received to the poll that releases the batch")                                          \
	H(sub_channel, SUB_CHANNEL, repair, "gap seen to gap filled")

#define TW_COUNTERS_sub_line(C, H)                                                                \
	C(sub_line, SUB_LINE, datagrams, COUNTER, "", "datagrams accepted, heartbeats too")       \
	C(sub_line, SUB_LINE, bytes, COUNTER, "bytes", "datagram bytes accepted")                 \
	C(sub_line, SUB_LINE, first, COUNTER, "", "datagrams that brought new messages first")    \
	C(sub_line, SUB_LINE, duplicates, COUNTER, "", "datagrams that brought nothing new")      \
	C(sub_line, SUB_LINE, heartbeats, COUNTER, "", "heartbeats")                              \
	C(sub_line, SUB_LINE, missing, COUNTER, "",                                               \
	  "datagrams missing on this line, by packet_seq")                                        \
	C(sub_line, SUB_LINE, reordered, COUNTER, "", "datagrams that came after a later one")    \
	C(sub_line, SUB_LINE, stale, COUNTER, "", "datagrams of an older session")                \
	C(sub_line, SUB_LINE, foreign_source, COUNTER, "",                                        \
	  "datagrams from no configured publisher")                                               \
	C(sub_line, SUB_LINE, foreign_environment, COUNTER, "",                                   \
	  "datagrams of another site or environment")                                             \
	C(sub_line, SUB_LINE, foreign_channel, COUNTER, "", "datagrams of another channel")       \
	C(sub_line, SUB_LINE, foreign_version, COUNTER, "", "datagrams of another major version") \
	C(sub_line, SUB_LINE, foreign_replay, COUNTER, "",                                        \
	  "replay datagrams that are not accepted")                                               \
	C(sub_line, SUB_LINE, malformed, COUNTER, "", "datagrams whose framing does not hold")    \
	C(sub_line, SUB_LINE, icrc_bad, COUNTER, "", "frames with a wrong ICRC")                  \
	C(sub_line, SUB_LINE, foreign_frames, COUNTER, "",                                        \
	  "frames that are not UD SEND to our Q_Key")                                             \
	C(sub_line, SUB_LINE, fault_dropped, COUNTER, "",                                         \
	  "datagrams that the fault layer dropped")                                               \
	C(sub_line, SUB_LINE, fault_duplicated, COUNTER, "",                                      \
	  "datagrams that the fault layer doubled")                                               \
	C(sub_line, SUB_LINE, fault_reordered, COUNTER, "",                                       \
	  "datagrams that the fault layer delayed")                                               \
	C(sub_line, SUB_LINE, downs, COUNTER, "", "times the line went down")                     \
	C(sub_line, SUB_LINE, up, GAUGE, "", "1 while the line is up")                            \
	C(sub_line, SUB_LINE, receive_buffer_bytes, GAUGE, "bytes", "receive buffer granted")     \
	C(sub_line, SUB_LINE, receive_depth, GAUGE, "",                                           \
	  "`verbs`: datagrams that the receive queue holds")                                      \
	C(sub_line, SUB_LINE, receive_free_min, GAUGE, "",                                        \
	  "`verbs`: fewest of them that were free, as far as a backlog showed")                   \
	C(sub_line, SUB_LINE, receive_errors, COUNTER, "",                                        \
	  "`verbs`: receives that ended with an error")                                           \
	C(sub_line, SUB_LINE, stamps_bad, COUNTER, "",                                            \
	  "`verbs`: stamps of the device that were not believed")

#define TW_COUNTERS_verbs_line(C, H)                                                               \
	C(verbs_line, VERBS_LINE, async_events, COUNTER, "", "asynchronous events of the device")  \
	C(verbs_line, VERBS_LINE, cm_events, COUNTER, "", "events of rdma_cm")                     \
	C(verbs_line, VERBS_LINE, port_downs, COUNTER, "", "times the port went down")             \
	C(verbs_line, VERBS_LINE, port_ups, COUNTER, "", "times the port came up again")           \
	C(verbs_line, VERBS_LINE, gid_changes, COUNTER, "",                                        \
	  "changes of the port's GID, LID or partition tables")                                    \
	C(verbs_line, VERBS_LINE, device_errors, COUNTER, "",                                      \
	  "times the device failed or was removed")                                                \
	C(verbs_line, VERBS_LINE, multicast_errors, COUNTER, "", "memberships refused or lost")    \
	C(verbs_line, VERBS_LINE, rebuilds, COUNTER, "", "queue pairs built anew after a failure") \
	C(verbs_line, VERBS_LINE, rebuilds_failed, COUNTER, "", "attempts at that which failed")   \
	C(verbs_line, VERBS_LINE, broken, GAUGE, "", "queue pairs that are not usable now")        \
	C(verbs_line, VERBS_LINE, unaccounted, COUNTER, "",                                        \
	  "work requests that a device never gave back")

#define TW_COUNTERS_read_server(C, H)                                                              \
	C(read_server, READ_SERVER, clients, GAUGE, "", "clients logged in")                       \
	C(read_server, READ_SERVER, clients_max, MAX, "", "most clients ever logged in")           \
	C(read_server, READ_SERVER, connections, COUNTER, "", "connections accepted")              \
	C(read_server, READ_SERVER, logins, COUNTER, "", "logins")                                 \
	C(read_server, READ_SERVER, refused_environment, COUNTER, "",                              \
	  "logins of another site or environment")                                                 \
	C(read_server, READ_SERVER, refused_version, COUNTER, "", "logins of another version")     \
	C(read_server, READ_SERVER, refused_full, COUNTER, "", "logins beyond the most clients")   \
	C(read_server, READ_SERVER, reads, COUNTER, "", "reads asked for")                         \
	C(read_server, READ_SERVER, replies, COUNTER, "", "reads answered with datagrams")         \
	C(read_server, READ_SERVER, bytes, COUNTER, "bytes", "datagram bytes in replies")          \
	C(read_server, READ_SERVER, gone, COUNTER, "", "reads of what history has no more")        \
	C(read_server, READ_SERVER, busy, COUNTER, "", "reads of what was not published yet")      \
	C(read_server, READ_SERVER, refused, COUNTER, "", "reads of a channel that is not served") \
	C(read_server, READ_SERVER, paced, COUNTER, "", "reads that waited for the rate limit")    \
	C(read_server, READ_SERVER, malformed, COUNTER, "",                                        \
	  "connections closed for breaking the protocol")                                          \
	C(read_server, READ_SERVER, timeouts, COUNTER, "",                                         \
	  "connections closed for being too slow to log in, to ask or to take a reply")            \
	C(read_server, READ_SERVER, revoked, COUNTER, "",                                          \
	  "connections closed for asking too much for too long")                                   \
	C(read_server, READ_SERVER, broken, COUNTER, "",                                           \
	  "connections whose queue pair failed (RC)")                                              \
	C(read_server, READ_SERVER, registered, COUNTER, "",                                       \
	  "times a history was registered for a life (RC, one-sided)")                             \
	C(read_server, READ_SERVER, device_lost, COUNTER, "",                                      \
	  "times the RDMA device was taken away, or could not be used any more (RC)")              \
	C(read_server, READ_SERVER, device, GAUGE, "", "1 while it has its RDMA device (RC)")      \
	C(read_server, READ_SERVER, async_events, COUNTER, "",                                     \
	  "asynchronous events of the device (RC)")                                                \
	C(read_server, READ_SERVER, port_downs, COUNTER, "",                                       \
	  "times the device's port went down, which connections live through (RC)")                \
	C(read_server, READ_SERVER, address_lost, COUNTER, "",                                     \
	  "connections whose GID, LID or partition had changed (RC)")

#define TW_COUNTERS_read_client(C, H)                                                              \
	C(read_client, READ_CLIENT, connected, GAUGE, "", "1 while it is logged in")               \
	C(read_client, READ_CLIENT, address, GAUGE, "", "its IPv4 address, as one number")         \
	C(read_client, READ_CLIENT, logins, COUNTER, "", "logins")                                 \
	C(read_client, READ_CLIENT, reads, COUNTER, "", "reads asked for")                         \
	C(read_client, READ_CLIENT, replies, COUNTER, "", "reads answered with datagrams")         \
	C(read_client, READ_CLIENT, bytes, COUNTER, "bytes", "datagram bytes in replies")          \
	C(read_client, READ_CLIENT, gone, COUNTER, "", "reads of what history has no more")        \
	C(read_client, READ_CLIENT, busy, COUNTER, "", "reads of what was not published yet")      \
	C(read_client, READ_CLIENT, refused, COUNTER, "", "reads of a channel that is not served") \
	C(read_client, READ_CLIENT, paced, COUNTER, "", "reads that waited for the rate limit")    \
	C(read_client, READ_CLIENT, dropped, COUNTER, "",                                          \
	  "times it was dropped: too slow, or breaking the protocol")                              \
	C(read_client, READ_CLIENT, revoked, COUNTER, "",                                          \
	  "times it was dropped for asking too much for too long")

#define TW_COUNTERS_reader(C, H)                                                               \
	C(reader, READER, up, GAUGE, "", "1 while logged in")                                  \
	C(reader, READER, connects, COUNTER, "", "attempts to connect")                        \
	C(reader, READER, logins, COUNTER, "", "logins")                                       \
	C(reader, READER, logins_refused, COUNTER, "", "logins that the server refused")       \
	C(reader, READER, failures, COUNTER, "", "connections that failed or broke")           \
	C(reader, READER, timeouts, COUNTER, "",                                               \
	  "connections given up: no connection, login or reply within time")                   \
	C(reader, READER, malformed, COUNTER, "", "replies that break the protocol")           \
	C(reader, READER, reads, COUNTER, "", "reads asked for")                               \
	C(reader, READER, replies, COUNTER, "", "reads answered with datagrams")               \
	C(reader, READER, bytes, COUNTER, "bytes", "datagram bytes in replies")                \
	C(reader, READER, gone, COUNTER, "", "reads of what the server has no more")           \
	C(reader, READER, refused, COUNTER, "", "reads refused, or asked while not logged in") \
	C(reader, READER, busy, COUNTER, "", "reads that came too early")                      \
	C(reader, READER, broken, COUNTER, "", "reads that ended with their connection")       \
	C(reader, READER, one_sided, COUNTER, "", "reads done by RDMA READ (RC)")              \
	C(reader, READER, lapped, COUNTER, "",                                                 \
	  "RDMA READs that the writer lapped under way (RC); among gone")                      \
	C(reader, READER, hung_up, COUNTER, "", "connections that the server ended (RC)")      \
	C(reader, READER, lives_over, COUNTER, "",                                             \
	  "connections ended for a login to a new life (RC)")                                  \
	C(reader, READER, silent, COUNTER, "",                                                 \
	  "connections whose server answered no retransmission (RC)")                          \
	C(reader, READER, stuck, COUNTER, "",                                                  \
	  "connections given up because READs on them neither ended nor failed (RC)")          \
	C(reader, READER, not_ready, COUNTER, "",                                              \
	  "connections whose server had no receive buffer for too long (RC)")                  \
	C(reader, READER, access_errors, COUNTER, "",                                          \
	  "connections that ended because memory could not be read any more (RC)")             \
	C(reader, READER, device_lost, COUNTER, "",                                            \
	  "connections that ended with their RDMA device (RC)")                                \
	C(reader, READER, async_events, COUNTER, "",                                           \
	  "asynchronous events of the device while it had a connection or made one (RC)")      \
	C(reader, READER, queue_errors, COUNTER, "",                                           \
	  "connections whose queues the device gave up (RC)")                                  \
	C(reader, READER, port_downs, COUNTER, "",                                             \
	  "times the port went down below a connection, which lives through it (RC)")          \
	C(reader, READER, address_lost, COUNTER, "",                                           \
	  "connections whose GID, LID or partition had changed (RC)")                          \
	H(reader, READER, round_trip, "read posted to reply whole")

/* Counter and histogram enums of every set. */
#define TW_C_ENUM(set, SET, name, kind, unit, help) TW_##SET##_##name,
#define TW_C_NONE(set, SET, name, kind, unit, help)
#define TW_H_ENUM(set, SET, name, help) TW_##SET##_HIST_##name,
#define TW_H_NONE(set, SET, name, help)
#define TW_SET_ENUMS(set, help)                                                                   \
	enum tw_##set##_counter{ TW_COUNTERS_##set(TW_C_ENUM, TW_H_NONE) TW_N_##set##_counters }; \
	enum tw_##set##_hist{ TW_COUNTERS_##set(TW_C_NONE, TW_H_ENUM) TW_N_##set##_hists };
TW_COUNTER_SETS(TW_SET_ENUMS)
#undef TW_SET_ENUMS
#undef TW_C_ENUM
#undef TW_C_NONE
#undef TW_H_ENUM
#undef TW_H_NONE

#endif
