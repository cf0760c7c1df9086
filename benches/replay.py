#!/usr/bin/env python3
"""Recorded jobs played through the pool, beside what torch's own allocator held
when they were recorded (the segment events of the trace). Nothing is run on a
GPU: bytes are the pool's own, driver time is by the cost of each call on an H200.

    make build && python3 benches/replay.py [TRACE ...]        all of tests/traces

`physical` is the most that is held from the driver, efficiency is peak live /
that; driver time is a share of the trace's.

Exit status: 0 done, 1 a replay failed, 2 wrong arguments.
"""
import argparse
import glob
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROFILES = ["native", "segments", "async"]
MIB = 1 << 20


def replay(memcuda, profile, trace):
    command = [memcuda, "replay", "--json", "--profile", profile, trace]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAIL: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def own_peak(memcuda, trace):
    """What torch held, or None for a trace without segments."""
    command = [memcuda, "replay", "--json", "--profile", "recorded", trace]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "without any segment_alloc" in done.stderr:
        return None
    if done.returncode:
        sys.exit(f"FAIL: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)["peak_live_bytes"]


def row(memcuda, trace):
    name = os.path.basename(trace).split(".")[0]
    played = {profile: replay(memcuda, profile, trace) for profile in PROFILES}
    found = {"schema": "memcuda.bench/1", "kind": "replay", "what": name,
             "live_bytes": played["async"]["peak_live_bytes"], "torch_bytes": own_peak(memcuda, trace)}
    for profile, one in played.items():
        found[f"{profile}_bytes"] = one["peak_physical_bytes"]
        found[f"{profile}_efficiency"] = round(one["efficiency"], 5)
        found[f"{profile}_driver_time_rate"] = round(one["driver_time_s"] / max(one["trace_time_s"], 1e-9), 5)
        found[f"{profile}_hit_rate"] = round(one["hit_rate"], 5)
        found[f"{profile}_median_ns"] = one["median_alloc_ns"]
        found[f"{profile}_p99_ns"] = one["p99_alloc_ns"]
    return found


def held(found, key):
    """Physical MiB and efficiency."""
    physical = found[f"{key}_bytes"]
    if not physical:
        return "- |"
    return f"{physical // MIB:,} | {100 * found['live_bytes'] / physical:.2f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", help="else all of tests/traces")
    parser.add_argument("--memcuda", default=os.path.join(ROOT, "target/release/memcuda"), help="the command")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    traces = options.traces or sorted(glob.glob(os.path.join(ROOT, "tests/traces/*.csv.zst")))
    if not os.path.exists(options.memcuda):
        sys.exit(f"FAIL: {options.memcuda} is missing: make build")
    if not options.json:
        print("| trace | live, MiB | torch's own | eff. | memcuda native | eff. | memcuda segments | eff. "
              "| memcuda async | eff. | driver time native | segments | async |")
        print("|" + "---|" * 13)
    for trace in traces:
        found = row(options.memcuda, trace)
        if options.json:
            print(json.dumps(found), flush=True)
            continue
        times = " | ".join(f"{100 * found[f'{profile}_driver_time_rate']:.2f} %" for profile in PROFILES)
        print(f"| {found['what']} | {found['live_bytes'] // MIB:,} | {held(found, 'torch')} "
              f"| {' | '.join(held(found, profile) for profile in PROFILES)} | {times} |", flush=True)


if __name__ == "__main__":
    main()
