#!/usr/bin/env python3
"""Proves that the checks of the simulation and of the arbiter's unit tests can fail.

Breaks the arbiter in one place at a time, in a copy, and expects the simulation (--seeds N) and, where
criterion is installed, the unit tests to say so.  Prints a table; exit status 1 where a mutant that
should have been caught was not, or where a mutant no longer applies.

usage: tests/sim/mutants.py BUILD_DIR [--seeds N] [--only WORD]
       BUILD_DIR holds lib/libtw-internal.a of any profile without sanitizers
"""
import argparse
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROTOCOL = ["core/protocol/arb.c", "core/protocol/arb_line.c", "core/protocol/arb_segs.c"]
SIM = ["tests/sim/sim_protocol.c", "tests/sim/world.c", "tests/sim/world_pub.c",
       "tests/sim/world_sub.c", "tests/sim/ledger.c"]
UNIT = ["test_arb", "test_arb_session", "test_arb_world"]
BOTH, UNIT_ONLY = "both", "unit"

# name, file, what, by what, who must catch it (the simulation sees no statistics and no mere delay)
MUTANTS = [
    ("trim: keeps one delivered message", 0, "max_seq(dgram->hdr->first_msg_seq, arb->next_seq)",
     "max_seq(dgram->hdr->first_msg_seq, arb->next_seq - (arb->next_seq > 1))", BOTH),
    ("trim: drops one new message", 0, "max_seq(dgram->hdr->first_msg_seq, arb->next_seq)",
     "max_seq(dgram->hdr->first_msg_seq + 1, arb->next_seq)", BOTH),
    ("trim: bytes one message too early", 2, "while (tw_seq_before(cursor->seq, seq))",
     "while (tw_seq_before(cursor->seq + 1, seq))", BOTH),
    ("give up: no deadline", 0, "if (arb->now_ns - gap->seen_ns < arb->conf.wait_ns) {",
     "if (0) {", BOTH),
    ("give up: waits for no line", 0, "if (!line_is_past(arb, &arb->lines[i], gap)) {",
     "if (0) {", BOTH),
    ("give up: idle before the deadline counts", 0, "line->idle_ns - gap->seen_ns >= wait_ns",
     "line->idle_ns >= gap->seen_ns", BOTH),
    ("give up: idle never counts", 0, "(line->idle_ns >= gap->seen_ns &&",
     "(false && line->idle_ns >= gap->seen_ns &&", BOTH),
    ("give up: waits for a line that is down", 0, "line->state == TW_ARB_LINE_DOWN ||", "",
     UNIT_ONLY),
    ("give up: before the datagram in hand", 0, "if (arb->hand.held) {\n\t\tif (hand_has_room(arb))",
     "if (arb->hand.held && !hand_has_room(arb)) {\n\t\tif (false)", BOTH),
    ("give up: never", 0, "for (uint32_t i = 0; i < arb->conf.lines; i++) {\n\t\tif (!line_is_past",
     "return false;\n\tfor (uint32_t i = 0; i < arb->conf.lines; i++) {\n\t\tif (!line_is_past", BOTH),
    ("full store: claims what is in hand", 0,
     "end_seq = min_seq(end_seq, arb->hand.dgram.hdr->first_msg_seq);", ";", BOTH),
    ("full store: one more than its size", 0, "arb->slots.used < arb->conf.store_dgrams",
     "arb->slots.used <= arb->conf.store_dgrams", BOTH),
    ("full store: reuses what is lent", 2, "slots->free_ids[slots->free_count + slots->released_count++] = slot;",
     "slots->free_ids[slots->free_count++] = slot;", BOTH),
    ("store: the caller's bytes instead of a copy", 0, "cursor.at = copy;\n\t\tcursor.end = copy + dgram->msgs_bytes;",
     "", BOTH),
    ("store: a released slot never comes back", 2, "slots->free_count += slots->released_count;",
     "", BOTH),
    ("list: insertion shifts one too few", 2, "for (uint32_t i = segs->count; i > index; i--)",
     "for (uint32_t i = segs->count; i > index + 1; i--)", BOTH),
    ("list: finds the one after", 2, "low = mid + 1;\n\t\t}\n\t}\n\treturn low;",
     "low = mid + 1;\n\t\t}\n\t}\n\treturn low + 1 < segs->count ? low + 1 : low;", BOTH),
    ("gap: its left part forgotten", 2, "tw_arb_segs_insert(segs, index, gap)->end_seq = first_seq;\n\t\tgap->first_seq = first_seq;\n\t\tindex++;",
     "gap->first_seq = first_seq;", BOTH),
    ("gap: not reported", 0, "arb->gap_end_seq = gap.end_seq;", "arb->gap_end_seq = gap.first_seq;", BOTH),
    ("gap: what fills it does not say so", 0, "run->fills_gap = seg->in_gap;",
     "run->fills_gap = false;", BOTH),
    ("held: taken for a duplicate", 0,
     "return any_missing(arb, first_seq, end_seq) ? TW_ARB_HELD : TW_ARB_DUPLICATE;",
     "return TW_ARB_DUPLICATE;", BOTH),
    ("heartbeat: reveals nothing", 0, "\t\treveal(arb, end_seq);\n\t\tif ((hdr->flags",
     "\t\tif ((hdr->flags", BOTH),
    ("END: does not wait", 0, "!arb->end_reported && arb->next_seq == arb->final_seq",
     "!arb->end_reported", BOTH),
    ("END: comes again", 0, "arb->end_reported = true;", "", BOTH),
    ("END: never", 0, "arb->final_seq = end_seq;\n", "\n", BOTH),
    ("hole: takes back what is held", 0, "i = seg->kind != TW_ARB_SEG_GAP",
     "i = seg->kind != TW_ARB_SEG_GAP && like->kind != TW_ARB_SEG_LOST", UNIT_ONLY),
    ("hole: ignored", 0, "like.kind = TW_ARB_SEG_LOST;", "return;", UNIT_ONLY),
    ("session: no flush", 0, "if (hand_is_new_session(arb)) {\n\t\treturn true;\n\t}\n\tif (arb->hand.held)",
     "if (hand_is_new_session(arb)) {\n\t\ttw_arb_segs_pop(&arb->segs);\n\t\treturn false;\n\t}\n\tif (arb->hand.held)", BOTH),
    ("session: an older one is taken", 0, "if (is_stale(arb, hdr->session) && !takes_over(arb))",
     "if (false && is_stale(arb, hdr->session) && !takes_over(arb))", BOTH),
    ("session: no takeover", 0, "return arb->conf.session_takeover_ns != 0 &&", "return false &&", BOTH),
    ("session: the one left comes back", 0, "(session == arb->left_session && session != arb->session)",
     "false", UNIT_ONLY),
    ("session: END of the old one stays", 0, "\tarb->final_seq = 0;\n", "", BOTH),
    ("session: lines keep their place", 1, "\tline->end_seq = 0;\n", "", UNIT_ONLY),
    ("line: never down", 1, "line->state == TW_ARB_LINE_DOWN ||", "true ||", UNIT_ONLY),
    ("line: up twice", 1, "bool comes_up = line->state != TW_ARB_LINE_UP;", "bool comes_up = true;", BOTH),
    ("line: missing counted twice", 1, "life->seen = SEEN_ALL;\n}", "}", UNIT_ONLY),
    ("line: a restart is missing packets", 1, "life->publisher == hdr->publisher", "true", UNIT_ONLY),
]


def compile_objects(cc, sources, out_dir, tag):
    objects = []
    for src in sources:
        obj = os.path.join(out_dir, tag + os.path.basename(src)[:-2] + ".o")
        subprocess.run(cc + ["-c", src if os.path.isabs(src) else os.path.join(TOP, src), "-o", obj],
                       check=True)
        objects.append(obj)
    return objects


def caught(argv):
    """Whether the program says that something is wrong: a failure, a crash, or no end."""
    try:
        return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=120).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--seeds", type=int, default=3000)
    ap.add_argument("--only", default="")
    opt = ap.parse_args()
    archive = os.path.join(opt.build, "lib", "libtw-internal.a")
    cc = [os.environ.get("CC", "gcc"), "-std=gnu17", "-O2", "-D_GNU_SOURCE", "-I" + os.path.join(TOP, "include"),
          "-I" + os.path.join(TOP, "core"), "-I" + TOP]
    has_criterion = os.path.exists("/usr/include/criterion/criterion.h")
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        sim = compile_objects(cc, SIM, tmp, "sim_")
        units = {}
        if has_criterion:
            scene = compile_objects(cc, ["tests/unit/arb_scene.c", "tests/sim/ledger.c"], tmp, "u_")
            units = {u: compile_objects(cc, [f"tests/unit/{u}.c"], tmp, "u_") + scene for u in UNIT}
        for name, which, old, new, expected in [("(none)", 0, "", "", "none")] + MUTANTS:
            if opt.only not in name:
                continue
            with open(os.path.join(TOP, PROTOCOL[which]), encoding="ascii") as f:
                text = f.read()
            if old and old not in text:
                print(f"{name:46} does not apply")
                bad += 1
                continue
            mutated = os.path.join(tmp, "mutant.c")
            with open(mutated, "w", encoding="ascii") as f:
                f.write(text.replace(old, new, 1) if old else text)
            core = [mutated if i == which else os.path.join(TOP, p) for i, p in enumerate(PROTOCOL)]
            objects = compile_objects(cc + ["-w"], core, tmp, "core_")
            by_sim_bin = os.path.join(tmp, "sim")
            subprocess.run(cc + ["-o", by_sim_bin] + objects + sim + [archive, "-lm", "-pthread"], check=True)
            by_sim = caught([by_sim_bin, "--seeds", str(opt.seeds)])
            by_unit = False
            for unit, unit_objects in units.items():
                binary = os.path.join(tmp, unit)
                subprocess.run(cc + ["-o", binary] + objects + unit_objects +
                               [archive, "-lcriterion", "-lm", "-pthread"], check=True)
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
