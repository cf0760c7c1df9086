#!/usr/bin/env python3
"""Two builds beside each other: results of `make bench JSON=FILE`, and of benches/gpu/threads.c.

    python3 benches/compare.py BEFORE AFTER [--all]

A row is shown where the later median lies outside the earlier runs' lowest and
highest, where a count differs, or where a replay differs; --all shows every one.
A ratio below 1 is faster, or less. What one file has alone, and lines that hold
nothing to compare, are told below.

Exit status: 0 compared, 2 wrong arguments.
"""
import argparse
import collections
import json


KINDS = {
    "cpu": [("ns", "median_ns", "low_ns", "high_ns")],
    "threads": [("ns", "median_ns", "low_ns", "high_ns")],
    "count": [("instructions",) * 4],
    "loss": [("lost_events",) * 4],
    "replay": [(f"{profile}_{what}",) * 4 for profile in ("native", "segments", "async") for what in ("bytes", "driver_time_rate")],
}


def figures(path, left_out):
    """What is compared, by what it is of: (value, lowest, highest). The last line of one counts; lines
    that hold none are counted in `left_out`."""
    found = {}
    with open(path) as lines:
        for line in lines:
            if not line.startswith("{"):
                continue
            one = json.loads(line)
            known = one.get("schema") == "memcuda.bench/1"
            if not known or one.get("kind") not in KINDS:
                left_out[f"of kind {one.get('kind')}" if known else "of another schema"] += 1
                continue
            key = (one["kind"], one.get("what"), one.get("size", 0), one.get("threads", 0), one.get("live", 0))
            found.update(((*key, name), (one[value], one[low], one[high]))
                         for name, value, low, high in KINDS[one["kind"]] if value in one)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--all", action="store_true", help="what did not change, too")
    options = parser.parse_args()
    left_out = collections.Counter()
    before, after = figures(options.before, left_out), figures(options.after, left_out)
    print(f"{'what':46} {'bytes':>12} {'threads':>7} {'live':>8} {'before':>14} {'after':>14} {'ratio':>6}")
    for key, (old, low, high) in before.items():
        if key not in after:
            continue
        _, what, size, threads, live, name = key
        new = after[key][0]
        if options.all or not low <= new <= high:
            label = what if name == "ns" else f"{what} {name}"
            ratio = new / old if old else float("nan")
            print(f"{label:46} {size:>12} {threads:>7} {live:>8} {old:>14,} {new:>14,} {ratio:6.2f}")
    for key in before.keys() ^ after.keys():
        print(f"only {'before' if key in before else 'after'}: {key}")
    if left_out:
        print("not compared:", ", ".join(f"{count} {which}" for which, count in left_out.items()))


if __name__ == "__main__":
    main()
