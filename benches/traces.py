#!/usr/bin/env python3
"""What recording costs an allocation or a free (MEMCUDA_TRACE), and whether any
is lost at a rate of events. Over the simulated GPU, or a real one by --cuda.
Needs a C compiler.

    make build && python3 benches/traces.py

The cost of an event is half of the difference between pairs with a recording and
without, of one thread, in processor time; the variants take turns. Without
--json a table; with it an object a line.

Exit status: 0 measured, 1 an event cost more than 150 ns or one was lost at
200,000 a second, 2 wrong arguments.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_NS = 150
RATE = 200_000


def run(command, library, path, trace):
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("MEMCUDA_")}
    environment.update(LD_PRELOAD=library, MEMCUDA_FREE="ordered", MEMCUDA_KEEPER="off")
    if path:
        environment["LD_LIBRARY_PATH"] = path
    if trace:
        environment["MEMCUDA_TRACE"] = trace
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


def header(trace):
    """Frames that were begun, and events that were lost."""
    with open(trace, "rb") as file:
        return struct.unpack("<8Q", file.read(64))[3:5]


def costs(arguments, folder, trace, report):
    hooks = os.path.join(folder, "hooks")
    failed = False
    for call in ("async", "malloc"):
        found = {True: [], False: []}
        for _ in range(arguments.rounds):
            for recorded in found:
                command = [hooks, arguments.cuda, call, str(1 << 20), "1", "200000", "5"]
                words = run(command, arguments.library, arguments.path, trace if recorded else None)
                assert words[0] == "pool", words
                found[recorded].append(statistics.median(map(float, words[1:])))
        with_it, without = statistics.median(found[True]), statistics.median(found[False])
        event = (with_it - without) / 2
        failed |= event > MOST_NS
        each = [(recorded - plain) / 2 for recorded, plain in zip(found[True], found[False])]
        report({"kind": "cpu", "what": f"trace: an event, {call}", "median_ns": event, "low_ns": min(each), "high_ns": max(each),
                "pair_ns": without, "recorded_pair_ns": with_it})
    return failed


def losses(arguments, folder, trace, report):
    failed = False
    for rate, threads in ((RATE, 1), (RATE, 4), (5 * RATE, 4)):
        command = [os.path.join(folder, "traces"), arguments.cuda, str(rate), str(arguments.seconds), str(threads)]
        events, seconds = map(float, run(command, arguments.library, arguments.path, trace))
        begun, lost = header(trace)
        assert begun + lost >= events, (begun, lost, events)
        failed |= rate == RATE and lost > 0
        report({"kind": "loss", "what": f"trace: {rate:,} events a second", "threads": threads, "events": int(events),
                "events_per_s": events / seconds, "lost_events": lost})
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default=os.path.join(ROOT, "target/release"))
    parser.add_argument("--cuda", help="libcuda.so.1 of a real GPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--folder", help="where to record; the default is that of temporary files")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.library = os.path.join(arguments.release, "libmemcuda.so")
    arguments.path = None if arguments.cuda else os.path.join(arguments.release, "sim")
    arguments.cuda = arguments.cuda or os.path.join(arguments.path, "libcuda.so.1")

    def report(result):
        if arguments.json:
            print(json.dumps({"schema": "memcuda.bench/1", **result}), flush=True)
        elif result["kind"] == "cpu":
            print("{what:22}  {pair_ns:6.1f} ns a pair, recorded {recorded_pair_ns:6.1f}: {median_ns:5.1f} ns an event".format(**result))
        else:
            print("{threads} threads, {events_per_s:,.0f} events a second: {lost_events} of {events} lost".format(**result))

    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name in ("hooks", "traces"):
            source = os.path.join(ROOT, f"benches/{name}.c")
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-Wall", "-o", os.path.join(folder, name), source, "-ldl", "-lpthread"],
                           check=True)
        trace = os.path.join(folder, "trace")
        failed = costs(arguments, folder, trace, report)
        failed |= losses(arguments, folder, trace, report)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
