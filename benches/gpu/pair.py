#!/usr/bin/env python3
"""What an allocation and its free cost, and how fast copies are, with the pool
and without it.

    nvcc -O2 -o pair benches/gpu/pair.cu -lcuda
    python3 benches/gpu/pair.py ./pair

Each section of the program runs in a process of its own, bare and under the
shim in turn, --repeats times. Every figure is one JSON line in $OUT/pair.jsonl
(or --results FILE). The table has the median over the repeats, the lowest and
the highest in brackets, and ours / bare. Needs an NVIDIA GPU that nobody else
uses, with 60 GiB of memory.
"""
import argparse
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/gpu"))
import shim_run

SECTIONS = ["pairs", "growth", "cross", "fresh", "comb", "comb-small"]
FEW, MANY = "1000 live, ", "1000000 live, "


def measure(program, section, preload, scale, limit):
    """The figures of one process, and the pool's counters."""
    command = [program, section] + ([str(scale)] if scale != 1 else [])
    result = shim_run.run(command, preload, limit)
    if result.status:
        sys.exit(f"FAIL: {section} {'with the shim' if preload else 'bare'}: {result.reason()}")
    figures = [json.loads(line) for line in result.out.splitlines()]
    if preload and not (result.counters or {}).get("requests"):
        sys.exit(f"FAIL: {section}: the pool served nothing: {result.err.strip()[:300]}")
    return figures, result.counters


def shown(values, unit):
    digits = 1 if unit in ("ms", "%") else 0
    middle = f"{statistics.median(values):,.{digits}f}"
    return f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})" if len(values) > 1 else middle


def table(records):
    cases, units, seen = [], {}, {}
    for record in records:
        name = record["case"]
        if name not in units:
            cases.append(name)
        units[name] = record["unit"]
        seen.setdefault((name, record["mode"]), []).append(record["value"])

    def middle(name, mode):
        values = seen.get((name, mode))
        return statistics.median(values) if values else None

    print(f"{'case':55} {'unit':5} {'bare':>26} {'shim':>26} {'shim/bare':>9}")
    for name in cases:
        bare, ours = middle(name, "bare"), middle(name, "shim")
        cells = [shown(seen[name, mode], units[name]) if (name, mode) in seen else "-" for mode in ("bare", "shim")]
        ratio = f"{ours / bare:.3f}" if bare and ours is not None else "-"
        print(f"{name:55} {units[name]:5} {cells[0]:>26} {cells[1]:>26} {ratio:>9}")

    print("\ngrowth of a pair's cost from 1,000 to 1,000,000 live blocks")
    for name in cases:
        if name.startswith(MANY):
            what = name[len(MANY):]
            if what == "one more" or "not reached" in what:
                continue
            cells = []
            for mode in ("bare", "shim"):
                few, many = middle(FEW + what, mode), middle(name, mode)
                cells.append(f"{many / few:.2f}x" if few and many else "-")
            print(f"  {what:42} {'':5} {cells[0]:>26} {cells[1]:>26}")

    print("\ncopy of pooled memory against a plain handle of the same process")
    for name in cases:
        if name.endswith(" copy"):
            cells = []
            for mode in ("bare", "shim"):
                mine, plain = middle(name, mode), middle(name + ", one plain handle", mode)
                cells.append(f"{mine / plain:.4f}" if mine and plain else "-")
            print(f"  {name:42} {'':5} {cells[0]:>26} {cells[1]:>26}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("program", help="benches/gpu/pair.cu, built")
    ap.add_argument("--repeats", type=int, default=3)
    ap.add_argument("--sections", default=",".join(SECTIONS))
    ap.add_argument("--scale", type=int, default=1, help="divide counts and sizes, for a small or simulated GPU")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="begin no repeat after so many seconds")
    ap.add_argument("--limit", type=float, default=120, help="seconds that a process may take")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "pair.jsonl"))
    a = ap.parse_args()
    sections = a.sections.split(",")
    for section in sections:
        if section not in SECTIONS:
            ap.error(f"unknown section {section}; known: {', '.join(SECTIONS)}")
    if a.repeats < 1 or a.scale < 1:
        ap.error("--repeats and --scale are at least 1")
    shim_run.need_library()
    program = os.path.abspath(a.program)
    if not os.access(program, os.X_OK):
        sys.exit(f"FAIL: {program} is missing; build it first (see --help)")
    records, counters, begin = [], {}, time.time()
    with open(a.results, "w") as out:
        for repeat in range(a.repeats):
            if repeat and time.time() - begin > a.deadline:
                print(f"{a.repeats - repeat} repeats left out: the deadline is over")
                break
            for section in sections:
                modes = [("bare", None), ("shim", shim_run.LIBRARY)]
                for mode, preload in modes[::-1] if repeat % 2 else modes:
                    figures, pool = measure(program, section, preload, a.scale, a.limit)
                    for figure in figures:
                        records.append(dict(figure, section=section, mode=mode, repeat=repeat))
                        out.write(json.dumps(records[-1]) + "\n")
                    if pool:
                        counters[section] = pool
                        out.write(json.dumps(dict(section=section, mode=mode, repeat=repeat, pool=pool)) + "\n")
                    out.flush()
    table(records)
    print("\nthe pool, last repeat: MiB at their peaks, stitches, hits of requests")
    for section, pool in counters.items():
        print(f"  {section:12} physical {pool['peak_physical_bytes'] >> 20:6}, live {pool.get('peak_live_bytes', 0) >> 20:6}, "
              f"stitches {pool.get('stitches', 0):5}, {pool['hits']} of {pool['requests']}")
    print(f"{time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
