#!/usr/bin/env python3
"""Runs the benches and prints what they measured, with the machine it was measured on.

usage: tests/bench/run.py BIN_DIR BENCH_DIR [NAME ...]
"""
import os
import platform
import subprocess
import sys


def first_line(path, key=None):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                if key is None or line.startswith(key):
                    return line.split(":", 1)[-1].strip()
    except OSError:
        pass
    return "unknown"


def go_first():
    """In the bench's process: before what else runs on the machine, as far as that is allowed.  With a session of its own
    goes a scheduling group of its own, whose weight is what counts (sched(7), "The autogroup feature")."""
    os.setsid()
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as f:
            f.write("-20")
        os.nice(-20)
    except OSError:
        pass


def main():
    bin_dir, bench_dir, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    print(f"CPU {first_line('/proc/cpuinfo', 'model name')}, {os.cpu_count()} CPUs, kernel {platform.release()}, "
          f"governor {first_line('/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor')}")
    failed = 0
    env = dict(os.environ, TW_BIN=bin_dir)
    for name in sorted(os.listdir(bench_dir)):
        if wanted and name not in wanted:
            continue
        print(f"\n== {name}", flush=True)
        try:
            failed += subprocess.run([os.path.join(bench_dir, name)], stdin=subprocess.DEVNULL, env=env,
                                     preexec_fn=go_first, timeout=600, check=False).returncode != 0
        except subprocess.TimeoutExpired:
            print(f"{name}: not done within 600 s")
            failed += 1
    return 1 if failed else 0


sys.exit(main())
