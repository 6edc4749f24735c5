#!/usr/bin/env python3
"""Proves that the checks of the simulation and of the unit tests can fail.

Breaks the arbiter, the repair ladder, the publisher's channel or the subscriber's table in one place at a time, in a copy, and expects the
simulation (--seeds N; it has its own publisher) and, where criterion is installed, the unit tests to say so.  Prints a
table; exit status 1 where a mutant that should have been caught was not, or where a mutant no longer applies.  A mutant
that hangs is killed with everything that it started, and dies of its own processor time where nobody is left to do so.

usage: tests/sim/mutants.py BUILD_DIR [--seeds N] [--only WORD] [--quick]
       tests/sim/mutants.py --check
       BUILD_DIR holds lib/libtw-internal.a of any profile without sanitizers; --check only says, at once, which
       mutants no longer apply or apply in more than one place
"""
import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROTOCOL = ["core/protocol/arb.c", "core/protocol/arb_line.c", "core/protocol/arb_segs.c",
            "core/protocol/arb_repair.c", "core/protocol/repair.c", "core/protocol/repair_reply.c",
            "core/protocol/repair_state.c", "core/protocol/arb_memory.c", "publisher/channel.c",
            "core/protocol/arb_latest.c", "subscriber/sub_late.c", "core/protocol/arb_take.c"]
CHANNEL, LATE, TAKE = 8, 10, 11
SIM = ["tests/sim/sim_protocol.c", "tests/sim/world.c", "tests/sim/world_pub.c",
       "tests/sim/world_sub.c", "tests/sim/world_repair.c", "tests/sim/ledger.c"]
ARB_UNIT = ["tests/unit/arb_scene.c", "tests/sim/ledger.c"]
REPAIR_UNIT = ["tests/unit/repair_bed.c", "tests/sim/ledger.c"]
PROBE = ["tests/support/probe_alloc.c"]
WRAP = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free"
# name, what it is linked with, flags
UNIT = [("test_arb", ARB_UNIT, []), ("test_arb_session", ARB_UNIT, []),
        ("test_arb_world", ARB_UNIT, []), ("test_arb_repair", ARB_UNIT, []), ("test_arb_latest", ARB_UNIT, []),
        ("test_repair", REPAIR_UNIT + PROBE, [WRAP]), ("test_repair_trust", REPAIR_UNIT, [])]
# who judges what the simulation does not run
OWN_UNIT = {CHANNEL: [("test_publisher_channel", [], []), ("test_pub_sends", [], [])],
            LATE: [("test_sub_late", PROBE + ["tests/support/pub_bed.c"], [WRAP])]}
LIMIT_S = 120
BOTH, UNIT_ONLY = "both", "unit"

# name, file, what, by what, who must catch it (the simulation sees no statistics and no mere delay)
MUTANTS = [
    ("trim: keeps one delivered message", 0, "max_seq(dgram->hdr->first_msg_seq, arb->next_seq)",
     "max_seq(dgram->hdr->first_msg_seq, arb->next_seq - (arb->next_seq > 1))", BOTH),
    ("trim: drops one new message", 0, "max_seq(dgram->hdr->first_msg_seq, arb->next_seq)",
     "max_seq(dgram->hdr->first_msg_seq + 1, arb->next_seq)", BOTH),
    ("trim: bytes one message too early", 2, "while (tw_seq_before(cursor->seq, seq))",
     "while (tw_seq_before(cursor->seq + 1, seq))", BOTH),
    ("give up: no deadline", 0, "if (arb->conf.repair || arb->now_ns - gap->seen_ns < arb->conf.wait_ns) {",
     "if (arb->conf.repair) {", BOTH),
    ("give up: waits for no line", 0, "if (!line_is_past(arb, &arb->lines[i], gap)) {",
     "if (0) {", BOTH),
    ("give up: idle before the deadline counts", 0, "line->idle_ns - gap->seen_ns >= wait_ns",
     "line->idle_ns >= gap->seen_ns", BOTH),
    ("give up: idle never counts", 0, "(line->idle_ns >= gap->seen_ns &&",
     "(false && line->idle_ns >= gap->seen_ns &&", BOTH),
    ("give up: waits for a line that is down", 0, "line->state == TW_ARB_LINE_DOWN ||", "",
     UNIT_ONLY),
    ("give up: before the datagram in hand", 0,
     "if (arb->hand.held) {\n\t\t/* one from history was let in because it has room */\n"
     "\t\tif (arb->hand.repair || arb->hand.giving ||\n\t\t    tw_arb_has_room(arb, arb->hand.dgram.hdr)) {",
     "if (arb->hand.held && !arb->hand.repair && !tw_arb_has_room(arb, arb->hand.dgram.hdr)) {\n\t\tif (false) {", BOTH),
    ("give up: never", 0, "for (uint32_t i = 0; i < arb->conf.lines; i++) {\n\t\tif (!line_is_past",
     "return false;\n\tfor (uint32_t i = 0; i < arb->conf.lines; i++) {\n\t\tif (!line_is_past", BOTH),
    ("full store: claims what is in hand", 0,
     "end_seq = tw_min_seq(end_seq, arb->hand.dgram.hdr->first_msg_seq);", ";", BOTH),
    ("full store: one more than its size", TAKE, "arb->slots.used < arb->conf.store_dgrams",
     "arb->slots.used <= arb->conf.store_dgrams", BOTH),
    ("full store: reuses what is lent", 2, "slots->free_ids[slots->free_count + slots->released_count++] = slot;",
     "slots->free_ids[slots->free_count++] = slot;", BOTH),
    ("store: the caller's bytes instead of a copy", TAKE, "cursor.at = copy;\n\t\tcursor.end = copy + dgram->msgs_bytes;",
     "", BOTH),
    ("store: a released slot never comes back", 0, "\ttw_arb_slots_recycle(&arb->slots);\n", "", BOTH),
    ("list: insertion shifts one too few", 2, "for (uint32_t i = segs->count; i > index; i--)",
     "for (uint32_t i = segs->count; i > index + 1; i--)", BOTH),
    ("list: finds the one after", 2, "low = mid + 1;\n\t\t}\n\t}\n\treturn low;",
     "low = mid + 1;\n\t\t}\n\t}\n\treturn low + 1 < segs->count ? low + 1 : low;", BOTH),
    ("gap: its left part forgotten", 2, "if (tw_seq_before(gap->first_seq, first_seq)) {\n\t\tstruct",
     "gap->first_seq = first_seq;\n\tif (tw_seq_before(gap->first_seq, first_seq)) {\n\t\tstruct", BOTH),
    ("gap: not reported", TAKE, "arb->gap_end_seq = end_seq;", "arb->gap_end_seq = arb->known_end;", BOTH),
    ("gap: what fills it does not say so", 0, ".fills_gap = seg->in_gap,",
     ".fills_gap = false,", BOTH),
    ("held: taken for a duplicate", 0,
     "return tw_arb_any_missing(arb, first_seq, end_seq) ? TW_ARB_HELD : TW_ARB_DUPLICATE;",
     "return TW_ARB_DUPLICATE;", BOTH),
    ("heartbeat: reveals nothing", TAKE, "\t\treveal(arb, end_seq, place);\n",
     "\n", BOTH),
    ("END: does not wait", 0, "!arb->end_reported && arb->next_seq == arb->final_seq",
     "!arb->end_reported", BOTH),
    ("END: comes again", 0, "arb->end_reported = true;", "", BOTH),
    ("END: never", TAKE, "arb->final_seq = end_seq;\n", "\n", BOTH),
    ("hole: takes back what is held", TAKE, "i = seg->kind != TW_ARB_SEG_GAP",
     "i = seg->kind != TW_ARB_SEG_GAP && like->kind != TW_ARB_SEG_LOST", UNIT_ONLY),
    ("hole: ignored", TAKE, "like.kind = TW_ARB_SEG_LOST;", "return;", UNIT_ONLY),
    ("session: no flush", 0, "if (hand_is_new_session(arb)) {\n\t\treturn true;\n\t}\n\tif (arb->hand.held)",
     "if (hand_is_new_session(arb)) {\n\t\ttw_arb_segs_pop(&arb->segs);\n\t\treturn false;\n\t}\n\tif (arb->hand.held)", BOTH),
    ("session: an older one is taken", 0, "if (new_session && is_stale(arb, hdr->session) && !takes_over(arb))",
     "if (false && is_stale(arb, hdr->session) && !takes_over(arb))", BOTH),
    ("session: no takeover", 0, "return arb->conf.session_takeover_ns != 0 &&", "return false &&", BOTH),
    ("session: the one left comes back", 0, "(session == arb->left_session && session != arb->session)",
     "false", UNIT_ONLY),
    ("session: END of the old one stays", 0, "\tarb->final_seq = 0;\n", "", BOTH),
    ("session: lines keep their place", 1, "\tline->end_seq = 0;\n", "", UNIT_ONLY),
    ("session: a line has no time to come", 1,
     "line->heard_ns = line->state == TW_ARB_LINE_UP ? now_ns : line->heard_ns;", "(void)now_ns;", UNIT_ONLY),
    ("line: never down", 1, "line->state == TW_ARB_LINE_DOWN ||", "true ||", UNIT_ONLY),
    ("line: up twice", 0, "if (tw_arb_line_heard(line, arb->now_ns)) {", "if (tw_arb_line_heard(line, arb->now_ns) || true) {", BOTH),
    ("line: an open number is not looked at again", 1, "\tline->check_ns = 0; /* a number may be open now */\n", "", BOTH),
    ("line: looked at too late", 1, "} else if (settle_ns < line->check_ns) {", "} else if (settle_ns > line->check_ns) {", BOTH),
    ("line: figures change unsaid", 1, "return line->missing + line->reordered != before;", "return false;", BOTH),
    ("figures: a held datagram is unsaid", TAKE, "\t\tarb->figures_changed = true;\n\t\tuint8_t *copy", "\t\tuint8_t *copy", BOTH),
    ("figures: a slot given back is unsaid", 0, "seg->slot);\n\t\tarb->figures_changed = true;", "seg->slot);", BOTH),
    ("figures: a session is unsaid", 0, "arb->now_ns);\n\tarb->figures_changed = true;", "arb->now_ns);", UNIT_ONLY),
    ("empty: a gap that waits is not asked about", 0, "return arb->segs.count != 0;", "return false;", BOTH),
    ("in order: of any session", 0, " && hdr->session == arb->session &&", " &&", BOTH),
    ("in order: a heartbeat, or a hole", 0, "(hdr->flags & (TW_WIRE_HEARTBEAT | TW_WIRE_HOLE)) == 0", "true", BOTH),
    ("in order: passes what is to be said", 0, "arb->segs.count == 0 && !arb->notice_due &&", "arb->segs.count == 0 &&", BOTH),
    ("in order: passes what waits", 0, "return arb->segs.count == 0 && !arb->notice_due &&", "return !arb->notice_due &&", BOTH),
    ("in order: the line is not past it", 0, "\tline->end_seq = tw_max_seq(line->end_seq, dgram->end_seq);\n\tarb->next_seq = arb",
     "\t(void)line;\n\tarb->next_seq = arb", UNIT_ONLY),
    ("in order: the next gap begins nowhere", 0, "\tarb->tail = tw_arb_end_place(hdr);\n", "", UNIT_ONLY),
    ("line: missing counted twice", 1, "life->seen = TW_ARB_SEEN_ALL;\n}", "}", UNIT_ONLY),
    ("line: a restart is missing packets", 1, "life->publisher == hdr->publisher", "true", UNIT_ONLY),
    ("history: decides what was not asked for", 0, "if (repair) {\n", "if (false) {\n", UNIT_ONLY),
    ("history: decides what nobody has shown", 0, "tw_min_seq(arb->asked_end_seq, arb->known_end)",
     "arb->asked_end_seq", UNIT_ONLY),
    ("history: moves a line on", TAKE, "if (!hand->repair) {", "if (true) {", UNIT_ONLY),
    ("history: does not say so", 0, ".repaired = seg->repaired,", ".repaired = false,", BOTH),
    ("history: of another session", 3, "hdr->session != arb->session ||", "", UNIT_ONLY),
    ("history: heartbeats are taken", 3, "(hdr->flags & TW_WIRE_HEARTBEAT) != 0 ||", "", UNIT_ONLY),
    ("history: longer than the store's slots", 3, "dgram->len_bytes > arb->conf.mtu_bytes", "false",
     UNIT_ONLY),
    ("history: the store grows", 3, "arb->slots.used >= arb->conf.store_dgrams", "false", BOTH),
    ("give up: more than was said", 3, "uint64_t stop_seq = tw_min_seq(seg->end_seq, end_seq);",
     "uint64_t stop_seq = seg->end_seq;", UNIT_ONLY),
    ("give up: cuts without end", 3, "!tw_arb_segs_have_room(arb, 2))) {",
     "false)) {", UNIT_ONLY),
    ("due: never before the wait is over", 3, "!tw_seq_before(tw_arb_shown_seq(arb), gap->end_seq)",
     "false", UNIT_ONLY),
    ("place: after a datagram that was cut", 2, "end_seq == cursor->end_seq ? cursor->end_place : nowhere",
     "cursor->end_place", UNIT_ONLY),
    ("place: of two lives", 3, "begin->publisher == end->publisher &&", "", UNIT_ONLY),
    ("place: whatever the lines say", 3, "(end->pos - begin->pos) / (2 * dgram_units) <= msgs",
     "true", UNIT_ONLY),
    ("place: heartbeats say nothing", TAKE, "arb->tail = *place;", "", UNIT_ONLY),
    ("gaps: the walker stays where none is", 2, "if (segs->walker == id) {", "if (false) {", UNIT_ONLY),
    ("gaps: one that is filled stays in the list", 2,
     "unlink_gap(segs, id);\n\t\tfill_seg", "fill_seg", BOTH),
    ("latest: pieces of what is done stay apart", 9, "\ttw_arb_segs_merge(&arb->segs, index);\n", "", BOTH),
    ("latest: pieces of what is done lose their end", 2, "seg->end_seq = after->end_seq;", "", BOTH),
    ("latest: what is done stays at the front", 9, "index);\n\ttw_arb_pop_done(arb);", "index);", BOTH),
    ("latest: LOST leaves what is done at the front", 0,
     "tw_arb_segs_pop(&arb->segs);\n\t\ttw_arb_pop_done(arb);", "tw_arb_segs_pop(&arb->segs);", BOTH),
    ("latest: a datagram fills one gap alone", 9, "give_out(arb, index - 1, run);",
     "give_out(arb, index - 1, run);\n\t\t\tin->end_seq = in->first_seq;", BOTH),
    ("latest: nothing shows that there is a gap", TAKE,
     "reveal(arb, first_seq, &cursor.begin_place);\n\t\tarb->giving", "arb->giving", BOTH),
    ("latest: what was given out comes again", 9, "if (seg->kind == TW_ARB_SEG_GAP) {",
     "if (seg->kind != TW_ARB_SEG_LOST) {", BOTH),
    ("latest: gives up for want of room it has taken", 0, "arb->hand.giving ||", "", BOTH),
    ("latest: what goes on needs room", TAKE, "return true; /* it goes on", "return false; /* it goes on", UNIT_ONLY),
    ("late: by id alone", LATE, "entry->venue_id == msg->venue_id &&", "", UNIT_ONLY),
    ("late: a full set forgets", LATE, "raise(late, found != NULL ? found : &set->rest, seq);",
     "if (found != NULL) {\n\t\traise(late, found, seq);\n\t}", UNIT_ONLY),
    ("late: the rest of a set is not looked at", LATE, "is_later(late, &set->rest, seq) ||", "", UNIT_ONLY),
    ("late: no entry is ever free", LATE, "!current || entry->seq < open_seq", "!current", UNIT_ONLY),
    ("late: frees what matters", LATE, "entry->seq < open_seq)", "entry->seq < open_seq + 8)", UNIT_ONLY),
    ("late: a session knows the one before", LATE, "++late->epoch == 0", "late->epoch == 0", UNIT_ONLY),
    ("late: epochs come round", LATE, "memset(late->sets, 0, late->set_count * sizeof(struct set));", "", UNIT_ONLY),
    ("late: the last one counts, not the highest", LATE, "if (!is_later(late, entry, seq)) {", "if (true) {", UNIT_ONLY),
    ("repair: asks before it is due", 4, "if (!gap.due) {", "if (false) {", UNIT_ONLY),
    ("repair: asks again at once", 4, "if (repair->now_ns < note->retry_ns) {", "if (false) {", BOTH),
    ("repair: back-off does not grow", 6, "ns *= 2;", "ns += 0 * ns + 1;", UNIT_ONLY),
    ("repair: again before a round trip", 4, "(wait_ns < trip_ns ? trip_ns : wait_ns)", "wait_ns",
     UNIT_ONLY),
    ("repair: always the same server", 4, "from = note->rounds == 0 ? 0 : note->server + 1u;",
     "from = note->server;", UNIT_ONLY),
    ("repair: for ever", 4, "note->rounds >= repair->conf.attempts_max", "false", UNIT_ONLY),
    ("repair: no time to give up", 4,
     "if (repair->now_ns >= at_ns) {", "if (false) {", BOTH),
    ("repair: who stood still has no more time", 4,
     "if (repair->now_ns - repair->polled_ns > tw_repair_stall_ns(&repair->conf)) {", "if (false) {", UNIT_ONLY),
    ("repair: trusts who has failed", 6, "return server->strikes == 0 &&", "return", UNIT_ONLY),
    ("repair: trusts for ever", 6, "(server->proven ||", "(true || server->proven ||", UNIT_ONLY),
    ("repair: never hopes", 6, "tw_arb_expect_repair(repair->arb, any);", "tw_arb_expect_repair(repair->arb, any && false);",
     BOTH),
    ("repair: asks for what has no room", 4, "if (!tw_arb_gap_has_room(repair->arb, gap_id)) {", "if (false) {", UNIT_ONLY),
    ("repair: any number of bytes at once", 6, "repair->conf.bytes_max != 0 &&", "false &&", UNIT_ONLY),
    ("repair: want of a slot is an attempt", 5, "repair->stats.reads--;\n\t\twas_no_attempt(repair, &read);",
     "repair->stats.reads--;", UNIT_ONLY),
    ("set aside: never", 0, "if (arb->expects_repair && !new_session", "if (false && !new_session", BOTH),
    ("set aside: though nobody is expected to bring it", 0, "if (arb->expects_repair && !new_session",
     "if (arb->conf.repair && !new_session", UNIT_ONLY),
    ("set aside: each is a gap of its own", TAKE, "if (goes_on) {", "if (false) {", UNIT_ONLY),
    ("set aside: the line is not past it", TAKE,
     "line->end_seq = tw_max_seq(line->end_seq, dgram->end_seq);\n\tarb->set_aside++;", "arb->set_aside++;", UNIT_ONLY),
    ("set aside: room behind what is held", 3, "if (segs->pool[id].first_seq != seq) {\n\t\t\treturn false;",
     "if (false) {\n\t\t\treturn false;", UNIT_ONLY),
    ("repair: gives up before the lines do", 4, "lost_seq != gap.first_seq && gap.passed",
     "lost_seq != gap.first_seq", UNIT_ONLY),
    ("repair: gives up what is on its way", 4,
     "if (!tw_repair_is_outstanding(repair, gap->first_seq, gap->end_seq)) {", "if (true) {", UNIT_ONLY),
    ("repair: a server that is down", 6, "!server->up ||", "", BOTH),
    ("repair: a server that refused", 6, "if (repair->now_ns >= server->blocked_ns) {", "if (true) {",
     UNIT_ONLY),
    ("repair: waits for ever for what is overdue", 6, "are_taken(repair) && repair->overdue > 0",
     "false", UNIT_ONLY),
    ("repair: joins more than a read takes", 4, "ask.end - read->begin > max ||", "", BOTH),
    ("repair: joins nothing", 4, "if (fits) {", "if (false) {", UNIT_ONLY),
    ("repair: joins what is far apart", 4,
     "ask.begin - read->end >= apart ||", "", UNIT_ONLY),
    ("repair: parts without overlap", 4, "ask->begin = note->asked_to - repair->overlap_units;",
     "ask->begin = note->asked_to;", UNIT_ONLY),
    ("repair: parts of any size", 4, "fits || wide ? ask->end : ask->begin + max", "ask->end", BOTH),
    ("repair: no pace", 6, "return due_ns > burst_ns ? due_ns - burst_ns : 0;", "return 0 * due_ns * burst_ns;",
     UNIT_ONLY),
    ("repair: a session outlives itself", 6,
     "repair->session = tw_arb_session(repair->arb);\n\t\tforget_session(repair);",
     "repair->session = tw_arb_session(repair->arb);", UNIT_ONLY),
    ("repair: by number before the begin", 4, "ask->begin = gone_seq;", "", UNIT_ONLY),
    ("repair: waits though it is gone everywhere", 4, "if (!tw_seq_before(gap->first_seq, gone_seq)) {",
     "if (true) {", UNIT_ONLY),
    ("answer: of another place", 5, "hdr->log_pos == walk->read.begin + walk->at_bytes / UNIT", "true",
     UNIT_ONLY),
    ("answer: of another publisher", 5, "hdr->publisher == walk->read.publisher &&", "", UNIT_ONLY),
    ("answer: numbers that do not begin with the gap", 5, "first_seq != read->first_seq) {", "false) {",
     UNIT_ONLY),
    ("answer: a hole without end", 5,
     "return read->by_seq || !tw_seq_before(read->end_seq, dgram->end_seq);", "return true;", UNIT_ONLY),
    ("answer: read past its end", 5, "len_bytes <= walk->len_bytes - walk->at_bytes &&", "", UNIT_ONLY),
    ("answer: to nobody", 6, "return id != 0 && slot->id == id ? slot : NULL;",
     "return slot->id != 0 ? slot : NULL;", UNIT_ONLY),
    ("answer: whatever it brought is good", 5, "if (has_brought_all(repair)) {", "if (true) {", UNIT_ONLY),
    ("answer: a full store is the server's fault", 5,
     "} else if (walk->no_room != tw_arb_repair_no_room(repair->arb)) {", "} else if (false) {", UNIT_ONLY),
    ("answer: want of room is an attempt", 5, "was_no_attempt(repair, &walk->read);", ";", UNIT_ONLY),
    ("answer: never by number", 5, "note->by_seq = true;", "", UNIT_ONLY),
    ("answer: gone is forgotten", 5, "server->gone_seq = read->end;", "", UNIT_ONLY),
    ("answer: the begin of a history is not learnt", 5, "server->gone_seq = walk->got_seq;", "",
     UNIT_ONLY),
    ("answer: the rest of a wide read waits", 5, "go_on(repair, &walk->read, walk->end_seq);",
     "", UNIT_ONLY),
    ("channel: released before it is posted", CHANNEL,
     "\t\ttw_bus_release(channel->bus); /* only now: all of it has been posted */", "\t\t;", UNIT_ONLY),
    ("channel: no rate limit", CHANNEL, "if (tw_bucket_open_ns(bucket, now_ns) > now_ns) {", "if (false) {", UNIT_ONLY),
    ("channel: the rate limit is not charged", CHANNEL, "tw_bucket_charge(&channel->bucket, dgrams[i].len_bytes);",
     ";", UNIT_ONLY),
    ("channel: a batch beyond the rate", CHANNEL,
     "return whole == 0 ? 1 : whole < most ? (unsigned int)whole : most;", "return most + 0 * (unsigned int)whole;", UNIT_ONLY),
    ("channel: the end is said for ever", CHANNEL, "++channel->end_heartbeats == END_SAID", "false", UNIT_ONLY),
    ("channel: the end is said once", CHANNEL, "++channel->end_heartbeats == END_SAID", "true", UNIT_ONLY),
    ("channel: the end is not said", CHANNEL, "\t\t\ttw_pack_end(&channel->pack, now_ns);\n", "", UNIT_ONLY),
    ("channel: an old session is told again", CHANNEL, "rc == TW_OK && tw_bus_is_over(channel->bus)", "false", UNIT_ONLY),
    ("channel: a broken bus is opened again", CHANNEL,
     "tw_bus_reader_session(channel->bus) == channel->broken_session", "false", UNIT_ONLY),
    ("channel: history never comes back", CHANNEL, "tw_history_complete(&channel->history, send->end_pos);", ";", UNIT_ONLY),
    ("channel: history comes back too early", CHANNEL, "if (send->posted > done) {", "if (false) {", UNIT_ONLY),
    ("channel: more sends than it remembers", CHANNEL,
     "+= channel->send_head - channel->send_tail < TW_PUB_SENDS;", "+= 1;", UNIT_ONLY),
    ("channel: a new life over the last one's sends", CHANNEL,
     "if (channel->send_tail != channel->send_head) {\n\t\t/*", "if (false) {\n\t\t/*", UNIT_ONLY),
    ("channel: a new life does not ask for the last one's sends", CHANNEL, "\t\tpost(channel, &last, 1);\n",
     "\t\t(void)last;\n", UNIT_ONLY),
    ("channel: a full history is not said", CHANNEL, "\t\ttw_tx_overtaken(channel->tx, channel->endpoint);\n", "",
     UNIT_ONLY),
    ("channel: a line that broke is not let go of", CHANNEL,
     "\t(void)tw_tx_completed(channel->tx, channel->endpoint);\n\tif", "\tif", UNIT_ONLY),
    ("channel: a life's number comes twice", CHANNEL, "channel->conf.publisher_base | (uint32_t)life",
     "channel->conf.publisher_base | 1u", UNIT_ONLY),
    ("channel: the index is of the last life", CHANNEL, "\ttw_history_index_begin(&channel->index);\n", "", UNIT_ONLY),
    ("channel: nothing is found by number", CHANNEL, "\tnote_first(channel, &dgrams[0]);\n", "", UNIT_ONLY),
    ("channel: nothing is published", CHANNEL, "\ttw_history_publish(&channel->history);\n", "", UNIT_ONLY),
    ("channel: a session that has been left", CHANNEL, "\t\tleave_bus(channel);\n\t\treturn true;\n\tcase TW_BUS_LIVE",
     "\t\treturn false;\n\tcase TW_BUS_LIVE", UNIT_ONLY),
    ("channel: a refusal is noted again", CHANNEL, "!repeated && ", "", UNIT_ONLY),
    ("channel: looks for a bus in every turn", CHANNEL, "if (now_ns < channel->look_again_ns) {", "if (false) {", UNIT_ONLY),
]


def compile_objects(cc, sources, out_dir, tag):
    objects = []
    for src in sources:
        obj = os.path.join(out_dir, tag + os.path.basename(src)[:-2] + ".o")
        subprocess.run(cc + ["-c", src if os.path.isabs(src) else os.path.join(TOP, src), "-o", obj],
                       check=True)
        objects.append(obj)
    return objects


def limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (2 * LIMIT_S, 2 * LIMIT_S))


def caught(argv):
    """Whether the program says that something is wrong: a failure, a crash, or no end.  (Criterion's workers have groups
    of their own, and the kernel ends them with their parent.)"""
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         start_new_session=True, preexec_fn=limit_cpu)
    try:
        return p.wait(LIMIT_S) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()


def source(which):
    with open(os.path.join(TOP, PROTOCOL[which]), encoding="ascii") as f:
        return f.read()


def check():
    bad = 0
    for name, which, old, _, _ in MUTANTS:
        places = source(which).count(old)
        if places != 1:
            print(f"{name:46} applies in {places} places of {PROTOCOL[which]}")
            bad += 1
    print(f"mutants: {len(MUTANTS)}, {bad} of which do not apply in one place")
    return 1 if bad else 0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build", nargs="?")
    ap.add_argument("--check", action="store_true", help="only whether each applies, in one place")
    ap.add_argument("--seeds", type=int, default=6000)
    ap.add_argument("--only", default="", help="mutants whose name has this in it")
    ap.add_argument("--quick", action="store_true", help="runs the simulation only where it must catch the mutant")
    opt = ap.parse_args()
    if opt.check:
        return check()
    if opt.build is None:
        ap.error("BUILD_DIR is missing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    archive = os.path.join(opt.build, "lib", "libtw-internal.a")
    cc = [os.environ.get("CC", "gcc"), "-std=gnu17", "-O2", "-D_GNU_SOURCE", "-I" + os.path.join(TOP, "include"),
          "-I" + os.path.join(TOP, "core"), "-I" + TOP]
    libs = [archive, "-Wl,--as-needed", "-lyaml", "-ldeflate", "-lrdmacm", "-libverbs", "-lm", "-pthread"]
    has_criterion = os.path.exists("/usr/include/criterion/criterion.h")
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        sim = compile_objects(cc, SIM, tmp, "sim_")
        core = compile_objects(cc, PROTOCOL, tmp, "core_")
        units = {}
        if has_criterion:
            units = {u: (compile_objects(cc, [f"tests/unit/{u}.c"] + more, tmp, "u_"), flags)
                     for u, more, flags in sum(OWN_UNIT.values(), UNIT)}
        for name, which, old, new, expected in [("(none)", 0, "", "", "none")] + MUTANTS:
            if opt.only not in name:
                continue
            text = source(which)
            if old and old not in text:
                print(f"{name:46} does not apply")
                bad += 1
                continue
            mutated = os.path.join(tmp, "mutant.c")
            with open(mutated, "w", encoding="ascii") as f:
                f.write(text.replace(old, new, 1) if old else text)
            objects = core[:which] + compile_objects(cc + ["-w"], [mutated], tmp, "core_") + core[which + 1:]
            by_sim_bin = os.path.join(tmp, "sim")
            subprocess.run(cc + ["-o", by_sim_bin] + objects + sim + libs, check=True)
            judges = [u[0] for u in OWN_UNIT.get(which, UNIT)]
            must_see = expected != UNIT_ONLY
            by_sim = which not in OWN_UNIT and (must_see or not opt.quick) and caught([by_sim_bin, "--stop", "--seeds", str(opt.seeds)])
            by_unit = False
            for unit, (unit_objects, flags) in units.items():
                if expected != "none" and unit not in judges:
                    continue
                binary = os.path.join(tmp, unit)
                subprocess.run(cc + ["-o", binary] + flags + objects + unit_objects +
                               libs + ["-lcriterion"], check=True)
                by_unit = by_unit or caught([binary])
            good = not (by_sim or by_unit) if expected == "none" else (
                (by_sim or expected == UNIT_ONLY) and (by_unit or not has_criterion))
            bad += 0 if good else 1
            print(f"{name:46} sim {'caught' if by_sim else '-':7} unit {'caught' if by_unit else '-':7}"
                  f"{'' if good else ' NOT AS EXPECTED'}", flush=True)
    print(f"mutants: {bad} not as expected")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
