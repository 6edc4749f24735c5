#!/usr/bin/env python3
"""Latency of `verbs` beside perftest's, in one virtual machine with Soft-RoCE; information, nothing is judged.

usage: tests/rdma/bench.py BIN_DIR [--pairs N] [--rounds N]

Half a round trip of a datagram by UD multicast beside `ib_send_lat -c UD`, and a range of a history by RDMA READ beside
`ib_read_lat`: the same bytes, two processes on one device, pinned alike, both polling.  The two alternate; a figure is
the ratio of a pair of runs: the median over all pairs with the lowest and the highest.  The machine may be emulated, and is
never a NIC: microseconds are shown to tell what a ratio is made of.

A read needs one CPU at a time: of each run its median counts.  A round trip needs both, and where others use this
machine they come in turns, a time slice each.  So of each of these runs the lower decile counts, and one whose lower decile is
a time slice is done again; how often is printed.
"""
import argparse
import contextlib
import os
import re
import statistics
import sys

import bed

LIMIT_S = 600
SLICE_US = 500.0                # less than a scheduler's, far more than any round trip here
TRIES = 20


def ours(guest, program, *args):
    """Microseconds of each round, sorted, and what else it says."""
    r = guest.run(f"ulimit -l unlimited; exec {program} {' '.join(map(str, args))}", timeout=LIMIT_S)
    return sorted(map(float, re.findall(r"^us (\S+)$", r.out, re.M))), dict(re.findall(r"^(lost|bytes) (\d+)", r.out, re.M))


def perftest(guest, name, size, rounds, *options):
    out = bed.perftest(guest, guest, "a", name, "-F", "-H", "-s", size, "-n", rounds, *options, pin=True, timeout=LIMIT_S)
    samples = sorted(map(float, re.findall(r"^\d+, (\S+)$", out, re.M)))
    if len(samples) < rounds // 2:
        raise SystemExit(f"{name}: not understood:\n{out}")
    return samples


class Case:
    def __init__(self, name, quantile):
        self.name, self.quantile = name, quantile
        self.pairs, self.again = [], 0

    def figure(self, run):
        for _ in range(TRIES):
            samples = run()
            value = samples[int(len(samples) * self.quantile)]
            if self.quantile == 0.5 or value < SLICE_US:
                return value
            self.again += 1
        raise SystemExit(f"{self.name}: the two CPUs never ran at once in {TRIES} runs: this machine is too busy")

    def pair(self, run, beside):
        self.pairs.append((self.figure(run), self.figure(beside)))

    def show(self):
        for who, column in zip(("verbs", "perftest"), zip(*self.pairs)):
            print(f"  {self.name + ', ' + who:<44} {statistics.median(column):10.1f} us  ({min(column):.1f} to {max(column):.1f})")
        ratios = [a / b for a, b in self.pairs]
        print(f"ratio {self.name:<40} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
              + (f"  {self.again} runs done again" if self.again else ""), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    ap.add_argument("bin")
    ap.add_argument("--pairs", type=int, default=7)
    ap.add_argument("--rounds", type=int, default=500)
    opt = ap.parse_args()
    program = os.path.join(os.path.realpath(opt.bin), "..", "tests", "rdma", "bench_lat")
    bed.require()
    with contextlib.closing(bed.one_guest(cpus=2)) as guest:
        address = guest.address("a")

        def ud(size):
            samples, said = ours(guest, program, "ud", address, size, opt.rounds)
            if said["lost"] != "0":
                print(f"  {said['lost']} datagrams of {size} bytes did not come")
            return samples

        def read(dgrams):
            return ours(guest, program, "read", address, dgrams, opt.rounds)[0]

        uds = {size: Case(f"UD, {size} bytes, to ib_send_lat", 0.1) for size in (64, 1024)}
        reads = {}
        for dgrams in (1, 60):
            size = int(ours(guest, program, "read", address, dgrams, 1)[1]["bytes"])
            reads[dgrams, size] = Case(f"READ, {size} bytes, to ib_read_lat", 0.5)
        print(f"{opt.pairs} pairs, {opt.rounds} rounds a run; {guest.run('uname -sr').out.strip()}, 2 virtual CPUs", flush=True)
        for _ in range(opt.pairs):
            for size, case in uds.items():
                case.pair(lambda: ud(size), lambda: perftest(guest, "ib_send_lat", size, opt.rounds, "-c", "UD"))
            for (dgrams, size), case in reads.items():
                case.pair(lambda: read(dgrams), lambda: perftest(guest, "ib_read_lat", size, opt.rounds))
        for case in (*uds.values(), *reads.values()):
            case.show()
    return 0


sys.exit(main())
