#!/usr/bin/env python3
"""Instructions of the hot paths, counted by valgrind (callgrind), beside a bar 5 % above what they were.

usage: tests/instructions/run.py BUILD_DIR [--renew] [--mutant]
       BUILD_DIR is that of PROFILE=release, with what `make counts` builds
       --renew    makes the present figures those that the bars stand above
       --mutant   builds the paths anew with a tenth more instructions in four of them, and expects each bar of these
                  four to be broken

What counts is the project's own code alone, which the compiler makes from the source whatever the machine: functions of
libc choose their variant by the CPU, and the fabric and the clocks are the test's.  So that work does not hide
there, the calls that the project's code makes out of itself have a bar of their own.  The figures belong to one version
of the compiler: with another there is nothing to compare, which is a skip.  Ends with `N passed, N failed, N skipped`.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIGURES = os.path.join(TOP, "tests", "instructions", "figures.txt")
MARGIN = 0.05
MORE = 0.10
OURS = "tests/instructions/"    # files of the test itself
LIMIT_S = 120
# case, file, where the instructions go: once for each of the case's units
MUTANTS = [
    ("publish_full", "publisher/channel.c", "\tuint64_t wall_ns = tw_wall_ns();\n\tint n = tw_pack_poll("),
    ("poll_full", "subscriber/sub_give.c", "\tenum tw_dgram_verdict verdict = tw_dgram_parse("),
    ("parse", "core/wire/datagram.c", "\tconst struct tw_wire_hdr *hdr = data;\n"),
    ("arb_in_order", "core/protocol/arb.c", "\tenum tw_arb_result origin = tw_arb_judge_origin(arb, hdr);\n"),
]


class Unavailable(Exception):
    pass


def output(argv, **kw):
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=LIMIT_S, **kw).stdout


def compiler():
    cc = os.environ.get("CC", "gcc")
    try:
        return " ".join((os.path.basename(cc), output([cc, "-dumpfullversion"]).strip(), output([cc, "-dumpmachine"]).strip()))
    except (OSError, subprocess.CalledProcessError) as e:
        raise Unavailable(f"no compiler {cc}: {e}") from e


def read_profile(path, program):
    """Instructions of our own functions, and calls from them to what is not."""
    ob = fl = called_ob = called_fl = ""
    instructions = calls = 0
    inclusive = False               # the next line of costs is that of a call

    def own(ob, fl):
        return os.path.realpath(ob) == program and OURS not in fl

    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            key, _, value = line.rstrip("\n").partition("=")
            if key == "ob":
                ob = value
            elif key == "fl":
                fl = value
            elif key == "fn":
                called_ob, called_fl = ob, fl
            elif key == "cob":
                called_ob = value
            elif key in ("cfi", "cfl"):
                called_fl = value
            elif key == "calls":
                inclusive = True
                if own(ob, fl) and not own(called_ob, called_fl):
                    calls += int(value.split()[0])
                called_ob, called_fl = ob, fl
            elif re.match(r"\d+ \d+$", line):
                if not inclusive and own(ob, fl):
                    instructions += int(line.split()[1])
                inclusive = False
    return instructions, calls


def count(program):
    """{case: (per, instructions, calls, messages)}, the figures for each of what `per` says."""
    program = os.path.realpath(program)
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "profile")
        argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=region",
                "--dump-after=case_over", "--compress-strings=no", "--compress-pos=no", "--dump-line=no", program]
        try:
            p = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                               env=dict(os.environ, LD_BIND_NOW="1"))
        except FileNotFoundError as e:
            raise Unavailable("no valgrind") from e
        if p.returncode != 0:
            raise SystemExit(f"{program}: exit {p.returncode}\n{p.stdout}{p.stderr}")
        figures = {}
        for i, m in enumerate(re.finditer(r"^case (\S+) (\S+) (\d+) (\d+)$", p.stdout, re.M), 1):
            instructions, calls = read_profile(f"{out}.{i}", program)
            if m[1] != "warm":
                units = int(m[3])
                figures[m[1]] = (m[2], instructions / units, calls / units, int(m[4]) / units)
    if not figures or not all(f[1] > 0 for f in figures.values()):
        raise SystemExit(f"{program}: nothing was counted: {figures}")
    return figures


def read_figures():
    """The compiler, and {case: (instructions, calls)}."""
    made_by, figures = None, {}
    with open(FIGURES, encoding="ascii") as f:
        for line in f:
            word = line.split()
            if word and word[0] == "compiler":
                made_by = " ".join(word[1:])
            elif word and not line.startswith("#"):
                figures[word[0]] = (float(word[1]), float(word[2]))
    return made_by, figures


def renew(figures, by):
    with open(FIGURES, "w", encoding="ascii") as f:
        f.write("# What `make instructions-renew` counted: instructions and calls out of the project's code, for each datagram\n"
                "# or turn.  The bars of tests/instructions/run.py are 5 % above.\n"
                f"compiler {by}\n")
        for case, (_, instructions, calls, _) in figures.items():
            f.write(f"{case:<16} {instructions:10.2f} {calls:8.2f}\n")


def judge(figures, bars):
    """Prints the table.  {case: what is wrong}"""
    wrong = {}
    print(f"{'':<16} {'instructions':>12}  {'for each':<8} {'a message':>9} {'calls out':>9} {'bar':>9}")
    for case, (per, instructions, calls, messages) in figures.items():
        of_message = f"{instructions / messages:9.1f}" if messages else f"{'-':>9}"
        bar, calls_bar = ((1 + MARGIN) * x for x in bars.get(case, (0, 0)))
        print(f"{case:<16} {instructions:12.1f}  {per:<8} {of_message} {calls:9.2f} {bar:9.1f}")
        if case not in bars:
            wrong[case] = "has no bar: make instructions-renew"
        elif instructions > bar:
            wrong[case] = f"{instructions:.1f} instructions, {instructions / bars[case][0] - 1:+.1%}"
        elif calls > calls_bar + 0.01:   # what the file rounds off
            wrong[case] = f"{calls:.2f} calls out of the project's code, were {bars[case][1]:.2f}"
        elif instructions < bars[case][0] * (1 - MARGIN):
            print(f"  {case}: {1 - instructions / bars[case][0]:.1%} fewer than they were: make instructions-renew keeps that")
    for case in bars:
        if case not in figures:
            wrong[case] = "is not counted any more"
    return wrong


def mutant(build, bars, d):
    """Builds `count` once more with a tenth more in the cases of MUTANTS, and returns its path."""
    sources = [os.path.join(TOP, "tests", "instructions", f) for f in ("count.c", "null_fabric.c")]
    poll_has = 0
    for case, path, anchor in sorted(MUTANTS, key=lambda m: m[0] == "poll_full"):
        more = round(MORE * bars[case][0])
        if case == "poll_full":
            more -= poll_has        # the parser and the arbiter are in it
        elif case != "publish_full":
            poll_has += more
        with open(os.path.join(TOP, path), encoding="utf-8") as f:
            text = f.read()
        if text.count(anchor) != 1:
            raise SystemExit(f"mutant: {path}: not once: {anchor!r}")
        sources.append(os.path.join(d, os.path.basename(path)))
        with open(sources[-1], "w", encoding="utf-8") as f:
            f.write(text.replace(anchor, f'\t__asm__ volatile(".rept {more}\\n\\tnop\\n\\t.endr");\n' + anchor))
    program = os.path.join(d, "count_mutant")
    subprocess.run(["make", "--no-print-directory", "-C", TOP, "O=" + os.path.dirname(os.path.realpath(build)), "PROFILE=release",
                    "count-mutant", "OUT=" + program, "MUTANT_SRCS=" + " ".join(sources)], check=True, timeout=LIMIT_S)
    return program


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    ap.add_argument("build")
    ap.add_argument("--renew", action="store_true")
    ap.add_argument("--mutant", action="store_true")
    opt = ap.parse_args()
    program = os.path.join(opt.build, "tests", "instructions", "count")
    made_by, bars = read_figures() if os.path.exists(FIGURES) else (None, {})
    try:
        by = compiler()
        if not opt.renew and by != made_by:
            raise Unavailable(f"the figures are those of {made_by}, this is {by}")
        if opt.mutant:
            with tempfile.TemporaryDirectory() as d:
                wrong = judge(count(mutant(opt.build, bars, d)), bars)
            missed = [m[0] for m in MUTANTS if m[0] not in wrong]
            for case, why in wrong.items():
                print(f"  found: {case}: {why}")
            for case in missed:
                print(f"  NOT found: {case}")
            print(f"mutant: {len(MUTANTS) - len(missed)} passed, {len(missed)} failed")
            return 1 if missed else 0
        figures = count(program)
    except Unavailable as e:
        print(f"skip: {e}\ninstructions: 0 passed, 0 failed, 1 skipped")
        return 0
    if opt.renew:
        renew(figures, by)
        bars = read_figures()[1]
    wrong = judge(figures, bars)
    for case, why in wrong.items():
        print(f"  FAILED {case}: {why}")
    print(f"instructions: {len(figures.keys() - wrong.keys())} passed, {len(wrong)} failed")
    return 1 if wrong else 0


sys.exit(main())
