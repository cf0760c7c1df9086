#!/usr/bin/env python3
"""Two builds beside each other: results of `make bench JSON=FILE`.

    python3 benches/compare.py BEFORE AFTER [--all]

A row is shown where the later median lies outside the earlier runs' lowest and
highest, where a count differs, or where a replay differs; --all shows every one.
A ratio below 1 is faster, or less.

Exit status: 0 compared, 2 wrong arguments.
"""
import argparse
import json


def results(path):
    """By what was measured; the last line of one counts."""
    found = {}
    with open(path) as lines:
        for line in lines:
            if not line.startswith("{"):
                continue
            one = json.loads(line)
            if one.get("schema") == "memcuda.bench/1":
                key = (one["kind"], one.get("what"), one.get("size", 0), one.get("threads", 0), one.get("live", 0))
                found[key] = one
    return found


def figures(one):
    """What is compared: (name, value, lowest, highest)."""
    kind = one["kind"]
    if kind == "cpu":
        yield "ns", one["median_ns"], one["low_ns"], one["high_ns"]
    elif kind == "count":
        yield "instructions", one["instructions"], one["instructions"], one["instructions"]
    elif kind == "replay":
        for profile in ("native", "segments", "async"):
            for name in (f"{profile}_bytes", f"{profile}_driver_time_rate"):
                if name in one:
                    yield name, one[name], one[name], one[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--all", action="store_true", help="what did not change, too")
    options = parser.parse_args()
    before, after = results(options.before), results(options.after)
    print(f"{'what':46} {'bytes':>12} {'threads':>7} {'live':>8} {'before':>14} {'after':>14} {'ratio':>6}")
    for key in before:
        if key not in after:
            continue
        kind, what, size, threads, live = key
        now = {name: value for name, value, _, _ in figures(after[key])}
        for name, old, low, high in figures(before[key]):
            new = now.get(name, old)
            if options.all or not low <= new <= high:
                label = what if kind == "cpu" else f"{what} {name}"
                ratio = new / old if old else float("nan")
                print(f"{label:46} {size:>12} {threads:>7} {live:>8} {old:>14,} {new:>14,} {ratio:6.2f}")
    for key in before.keys() ^ after.keys():
        print(f"only {'before' if key in before else 'after'}: {key}")


if __name__ == "__main__":
    main()
