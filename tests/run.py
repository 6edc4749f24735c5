#!/usr/bin/env python3
"""Runs the tests tier by tier and ends with one line: N passed, N failed, N skipped.

usage: tests/run.py [--list] [--fuzz-seconds N] [--seeds N] [TIER ...]

Each tier builds what it needs through make and then runs it, bounded in time.  Every skipped test is
listed with its reason.  With TW_REQUIRE_RDMA=1 a skip that is tagged [rdma] is a failure.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TOP, os.environ.get("O", "build"))
JOBS = str(os.cpu_count() or 2)
RDMA_UNAVAILABLE = 69   # of tests/rdma/bed.py: no guest on this machine, for a reason that it says


class Results:
    def __init__(self):
        self.passed, self.failures, self.skips = 0, [], []

    def ok(self, n=1):
        self.passed += n

    def fail(self, name, why=""):
        self.failures.append((name, why))

    def skip(self, name, why):
        if "[rdma]" in why and os.environ.get("TW_REQUIRE_RDMA") == "1":
            self.fail(name, "skipped although TW_REQUIRE_RDMA=1: " + why)
        else:
            self.skips.append((name, why))


def run(argv, timeout, env=None):
    """Runs argv in its own process group; kills the whole group at the time limit."""
    p = subprocess.Popen(argv, cwd=TOP, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        out, _ = p.communicate(timeout=timeout)
        return p.returncode, out.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, _ = p.communicate()
        return -1, out.decode("utf-8", "replace") + f"\n(killed after {timeout} s)"


def make(res, tier, *args, profile="release", cc=None, timeout=1200):
    argv = ["make", "--no-print-directory", "-j" + JOBS, "PROFILE=" + profile, "WERROR=1", *args]
    if cc:
        argv.append("CC=" + cc)
    rc, out = run(argv, timeout)
    if rc != 0:
        res.fail(f"{tier}: make PROFILE={profile} {' '.join(args)}", tail(out, 40))
    return rc == 0


def tail(text, lines=25):
    return "\n".join(text.rstrip().splitlines()[-lines:])


def programs(profile, tier):
    d = os.path.join(BUILD, profile, "tests", tier)
    return sorted(os.path.join(d, f) for f in os.listdir(d)) if os.path.isdir(d) else []


def sanitizer_env(leaks_at_exit=True):
    env = dict(os.environ)
    env["ASAN_OPTIONS"] = f"detect_leaks=1:leak_check_at_exit={int(leaks_at_exit)}:" + env.get("ASAN_OPTIONS", "")
    env["UBSAN_OPTIONS"] = "print_stacktrace=1:" + env.get("UBSAN_OPTIONS", "")
    env["TSAN_OPTIONS"] = "halt_on_error=1:second_deadlock_stack=1:" + env.get("TSAN_OPTIONS", "")
    return env


def criterion(res, tier, program, timeout):
    """One Criterion program; every test of it counts."""
    name = os.path.basename(program)
    # Criterion leaks a little of its own at exit; test bodies look for leaks themselves.
    rc, out = run([program, "--tap", "--jobs", JOBS], timeout, sanitizer_env(leaks_at_exit=False))
    seen = 0
    for line in out.splitlines():
        m = re.match(r"(not ok|ok) - (\S+)\s*(.*)", line)
        if not m:
            continue
        seen += 1
        skip = re.search(r"# SKIP\s*(.*)", m.group(3))
        if m.group(1) == "not ok":
            res.fail(f"{tier}: {m.group(2)}", "")
        elif skip:
            res.skip(f"{tier}: {m.group(2)}", skip.group(1) or "no reason given")
        else:
            res.ok()
    if rc != 0 or seen == 0:
        res.fail(f"{tier}: {name} (exit {rc}, {seen} tests seen)", tail(out, 30))


def counted(res, tier, argv, timeout, env=None, show=False):
    """A program that ends with a line `NAME: N passed, N failed[, N skipped]`."""
    rc, out = run(argv, timeout, env or sanitizer_env())
    if show:
        print("  " + out.rstrip().replace("\n", "\n  "), flush=True)
    name = os.path.basename(argv[0])
    m = None
    for m in re.finditer(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", out):
        pass
    if m is None:
        res.fail(f"{tier}: {name} (exit {rc}, no result line)", tail(out))
        return
    res.ok(int(m.group(1)))
    failed = int(m.group(2))
    if failed or rc != 0:
        for i in range(max(failed, 1)):
            res.fail(f"{tier}: {name}" + (f" #{i + 1}" if i else ""), tail(out) if i == 0 else "")
    for line in re.findall(r"^skip(?:ped)?: (.*)$", out, re.M):
        res.skip(f"{tier}: {name}", line)


def script(res, tier, argv, timeout):
    """A script that succeeds or fails as one test."""
    rc, out = run(argv, timeout)
    if rc == 0:
        res.ok()
    else:
        res.fail(f"{tier}: {' '.join(os.path.relpath(a, TOP) if os.path.isabs(a) else a for a in argv)}",
                 tail(out, 40))


def python_tests(res, tier, path, profile, timeout):
    """One unittest file; every test of it counts."""
    env = sanitizer_env()
    env["TW_BIN"] = os.path.join(BUILD, profile, "bin")
    env["TW_PROFILE"] = profile
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["PYTHONPATH"] = os.pathsep.join(os.path.join(TOP, "tests", d) for d in ("support", "rdma"))
    rc, out = run([sys.executable, "-m", "tw_unittest", path], timeout, env)
    seen = 0
    for line in out.splitlines():
        m = re.match(r"@@ (ok|fail|skip) (\S+) ?(.*)", line)
        if not m:
            continue
        seen += 1
        if m.group(1) == "ok":
            res.ok()
        elif m.group(1) == "skip":
            res.skip(f"{tier}: {m.group(2)}", m.group(3))
        else:
            res.fail(f"{tier}: {m.group(2)}", "")
    if rc != 0 or seen == 0:
        res.fail(f"{tier}: {os.path.basename(path)} (exit {rc}, {seen} tests seen)", tail(out, 60))


# --- the tiers -------------------------------------------------------------------------------------

def tier_unit(res, opt, profile="release", name="unit"):
    if make(res, name, "unit", profile=profile):
        for p in programs(profile, "unit"):
            criterion(res, name, p, 300)


def tier_unit_asan(res, opt):
    tier_unit(res, opt, "asan", "unit-asan")


def tier_unit_ubsan(res, opt):
    tier_unit(res, opt, "ubsan", "unit-ubsan")


def tier_clang(res, opt):
    if make(res, "clang", "all", "unit", profile="debug", cc="clang"):
        res.ok()


def tier_sim(res, opt):
    if make(res, "sim", "sim"):
        for p in programs("release", "sim"):
            counted(res, "sim", [p, "--seeds", str(opt.seeds)], 900)
    if make(res, "sim-asan", "sim", profile="asan"):
        for p in programs("asan", "sim"):
            counted(res, "sim-asan", [p, "--seeds", str(max(opt.seeds // 50, 1))], 900)


def tier_stress(res, opt):
    if make(res, "stress", "stress"):
        for p in programs("release", "stress"):
            counted(res, "stress", [p], 300)
    if make(res, "stress-tsan", "stress", profile="tsan"):
        for p in programs("tsan", "stress"):
            counted(res, "stress-tsan", [p], 600)


def tier_ordering(res, opt):
    counted(res, "ordering", [os.path.join(TOP, "tests/stress/check_ordering.sh"), BUILD], 600)


def tier_system(res, opt):
    if make(res, "system", "all"):
        d = os.path.join(TOP, "tests", "system")
        for f in sorted(os.listdir(d)):
            if f.startswith("test_") and f.endswith(".py"):
                python_tests(res, "system", os.path.join(d, f), "release", 900)


def tier_system_asan(res, opt):
    if make(res, "system-asan", "all", profile="asan"):
        for f in ("test_flow.py",):
            python_tests(res, "system-asan", os.path.join(TOP, "tests", "system", f), "asan", 900)


def tier_rdma(res, opt):
    """The machine is asked first: where there can be no guest, each file is one skip."""
    if not make(res, "rdma", "all", "rdma"):
        return
    d = os.path.join(TOP, "tests", "rdma")
    rc, out = run([sys.executable, os.path.join(d, "bed.py"), "image"], 1800)
    print("  " + tail(out, 1), flush=True)
    if rc not in (0, RDMA_UNAVAILABLE):
        res.fail("rdma: bed.py image", tail(out))
        return
    for f in sorted(os.listdir(d)):
        if f.startswith("test_") and f.endswith(".py"):
            if rc == RDMA_UNAVAILABLE:
                res.skip(f"rdma: {f}", tail(out, 1))
            else:
                python_tests(res, "rdma", os.path.join(d, f), "release", 1200)


def tier_instructions(res, opt):
    """And once more with a tenth more of them, which has to be found."""
    if make(res, "instructions", "counts"):
        argv = [sys.executable, os.path.join(TOP, "tests", "instructions", "run.py"), os.path.join(BUILD, "release")]
        counted(res, "instructions", argv, 300, show=True)
        counted(res, "instructions", [*argv, "--mutant"], 300)


def tier_headers(res, opt):
    if make(res, "headers", "all"):
        script(res, "headers", [os.path.join(TOP, "tests/support/check_headers.sh"), os.path.join(BUILD, "release")], 300)
        script(res, "symbols", [os.path.join(TOP, "tests/support/check_symbols.sh"), os.path.join(BUILD, "release")], 60)


def tier_docs(res, opt):
    if make(res, "docs", "all"):
        script(res, "docs", [os.path.join(BUILD, "release/bin/tw-gen-docs"), "--check"], 60)


def tier_lint(res, opt):
    script(res, "lint", ["make", "--no-print-directory", "lint-quick"], 300)


def tier_fuzz(res, opt):
    if not make(res, "fuzz", "fuzzers", profile="fuzz"):
        return
    for p in programs("fuzz-clang", "fuzz"):
        target = os.path.basename(p)[len("fuzz_"):]
        corpus = os.path.join(BUILD, "fuzz-corpus", target)
        seeds = os.path.join(TOP, "tests", "data", "fuzz", target)
        os.makedirs(corpus, exist_ok=True)
        argv = [p, f"-max_total_time={opt.fuzz_seconds}", "-timeout=10", "-rss_limit_mb=2048",
                "-print_final_stats=1", f"-artifact_prefix={BUILD}/fuzz-corpus/{target}-", corpus]
        if os.path.isdir(seeds):
            argv.append(seeds)
        rc, out = run(argv, opt.fuzz_seconds + 120, sanitizer_env())
        m = re.search(r"number_of_executed_units:\s*(\d+)", out)
        if rc == 0 and m and int(m.group(1)) > 0:
            res.ok()
            print(f"  fuzz {target}: {m.group(1)} executions in {opt.fuzz_seconds} s")
        else:
            res.fail(f"fuzz: {target} (exit {rc})", tail(out, 40))


TIERS = {
    "lint": tier_lint,
    "clang": tier_clang,
    "unit": tier_unit,
    "instructions": tier_instructions,
    "headers": tier_headers,
    "docs": tier_docs,
    "sim": tier_sim,
    "system": tier_system,
    "rdma": tier_rdma,
    "unit-asan": tier_unit_asan,
    "unit-ubsan": tier_unit_ubsan,
    "system-asan": tier_system_asan,
    "stress": tier_stress,
    "ordering": tier_ordering,
    "fuzz": tier_fuzz,
}


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("tiers", nargs="*", metavar="TIER", help=", ".join(TIERS))
    ap.add_argument("--list", action="store_true", help="list the tiers and leave")
    ap.add_argument("--fuzz-seconds", type=int, default=5, help="for each target (default 5)")
    ap.add_argument("--seeds", type=int, default=10000, help="of the simulator (default 10000)")
    opt = ap.parse_args()
    unknown = [t for t in opt.tiers if t not in TIERS]
    if unknown:
        ap.error(f"unknown tier {unknown[0]}: one of {', '.join(TIERS)}")
    if opt.list:
        print("\n".join(TIERS))
        return 0

    total = Results()
    for tier in opt.tiers or TIERS:
        print(f"{tier} ...", flush=True)
        res, t0 = Results(), time.monotonic()
        TIERS[tier](res, opt)
        print(f"{tier}: {res.passed} passed, {len(res.failures)} failed, {len(res.skips)} skipped"
              f" ({time.monotonic() - t0:.0f} s)", flush=True)
        for name, why in res.failures:
            print(f"  FAILED {name}")
            if why:
                print("    " + why.replace("\n", "\n    "), flush=True)
        total.passed += res.passed
        total.failures += res.failures
        total.skips += res.skips
    if total.skips:
        print("skipped:")
        for name, why in total.skips:
            print(f"  {name}: {why}")
    print(f"{total.passed} passed, {len(total.failures)} failed, {len(total.skips)} skipped")
    return 1 if total.failures or not (total.passed or total.skips) else 0


sys.exit(main())
