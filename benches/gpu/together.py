#!/usr/bin/env python3
"""Several jobs at once under each allocator: torch's data parallel on two GPUs, threads with
a stream each, processes on one GPU (together_cell.py says what each is).

    python3 benches/gpu/together.py --repeats 3 --deadline 300

Each cell is a line of kind "concurrency" in --results; --have, --deadline and rounds work as
in matrix.py. ddp2 needs two GPUs: without --what it is left out, and said so, where there is one.
"""
import argparse
import os
import subprocess
import sys

import results
import rounds
import summary
import tables
from allocators import ALLOCATORS, FOUR, environment, shim_run
from cells import Child

GPUS = {"ddp2": 2, "threads": 1, "processes4": 1}


def gpus():
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def run(a, files):
    """Runs what is missing; returns how many cells failed."""
    build = None if a.smoke else results.library()
    good = results.good(files, "concurrency")

    def start(item):
        what, allocator, _ = item
        if a.smoke:
            return Child("together_cell.py", [what, "--device", "cpu", "--scale", "tiny"], environment("native"))
        return Child("together_cell.py", [what], environment(allocator))

    def line(item):
        return dict(kind="concurrency", what=item[0], **(dict(library=build) if ALLOCATORS[item[1]].shim else {}))

    items = list(rounds.plan(a.what, lambda what, repeat: a.allocators, range(1, a.repeats + 1), good, build))
    bench = rounds.Rounds(a, items, rounds.expected_s(good), start, line)
    bench.go()
    return bench.failed


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--what", help=f"of {', '.join(GPUS)}")
    ap.add_argument("--allocators", default=",".join(FOUR), help=f"of {', '.join(ALLOCATORS)}")
    ap.add_argument("--repeats", type=int, default=5)
    ap.add_argument("--ahead", type=int, default=1, help="cells that are made ready while one runs")
    ap.add_argument("--limit", type=int, default=120, help="seconds that a cell may take")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="begin no round that may end after so many seconds")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "together.jsonl"))
    ap.add_argument("--have", action="append", default=[], metavar="FILE", help="results of earlier runs")
    ap.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU, every allocator torch's own: tests these scripts, and no table takes it")
    a = ap.parse_args()
    chosen = a.what.split(",") if a.what else list(GPUS)
    a.allocators = a.allocators.split(",")
    for names, known in (chosen, GPUS), (a.allocators, ALLOCATORS):
        for name in names:
            if name not in known:
                ap.error(f"unknown {name}; known: {', '.join(known)}")
    if any(ALLOCATORS[x].rmm for x in a.allocators):
        ap.error("RMM takes no part here: it is put in by cell.py alone")
    if not a.smoke:
        shim_run.need_gpu()
        shim_run.need_library()
        here = gpus()
        lacking = [what for what in chosen if GPUS[what] > here]
        if lacking and a.what:
            sys.exit(f"FAIL: {lacking[0]} needs {GPUS[lacking[0]]} GPUs; nvidia-smi lists {here}")
        for what in lacking:
            print(f"{what} is NOT run: it needs {GPUS[what]} GPUs, nvidia-smi lists {here}")
        chosen = [what for what in chosen if what not in lacking]
    a.what = chosen
    files = a.have + [a.results]
    failed = run(a, files)
    print(tables.text(summary.Results.read(files), ["together-memory", "together-time", "failures"]), end="")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
