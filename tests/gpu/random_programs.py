#!/usr/bin/env python3
"""The random programs of shim/tests/random (but contexts.c) on a real GPU: threads, streams,
captures, graphs, memory of every kind. Each kernel reads the words that are its
block's own, so memory that is lent while work still runs on it is seen.

    python3 tests/gpu/random_programs.py                           # about two minutes
    python3 tests/gpu/random_programs.py --seeds 20 'the pool'     # more programs, one setting

Prints a PASS or FAIL line for each setting, and what its programs did; bare is
the first, since a program that is not legal proves nothing. Needs an NVIDIA GPU
with 10 GiB free and nvcc; --built is the program built already, --library
another library.
"""
import glob
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import random_runs
import shim_run

SETTINGS = {
    "bare": None,
    "the pool": {},
    "frees that wait": dict(MEMCUDA_FREE="sync"),
    "frees in order": dict(MEMCUDA_FREE="ordered"),
    "handles of 2 MiB": dict(MEMCUDA_CHUNK="2MiB"),
    "handles of 32 MiB": dict(MEMCUDA_CHUNK="32MiB"),
    "large blocks": dict(RANDOM_LARGE="1"),
    "poison": dict(MEMCUDA_DEBUG="poison"),
    "canaries": dict(MEMCUDA_DEBUG="canary"),
    "direct": dict(MEMCUDA_POLICY="direct"),
    "track": dict(MEMCUDA_POLICY="track"),
    "a limit of 96 MiB": dict(MEMCUDA_LIMIT="96MiB", RANDOM_SHORT="1"),
}


def build(path):
    # A program of its own, whose contexts take what the kernels' checks lie in.
    of_its_own = "contexts.c"
    sources = glob.glob(os.path.join(shim_run.ROOT, "shim/tests/random/*.c"))
    random_runs.build(path, *(source for source in sources if os.path.basename(source) != of_its_own), "-lpthread")


def words(line):
    """The summary of a program: a number for each of its words."""
    parts = line.split()
    return {name: int(number) for name, number in zip(parts[::2], parts[1::2])}


def judge(setting, runs):
    """A setting passes where all its programs ended well, said nothing, and did what they are for."""
    did = [words(done.last_line) for _, done in runs if done.status == 0]
    total = {name: sum(one[name] for one in did) for name in ("operations", "allocations", "captures", "refused")}
    wrong = [f"{which}: {done.reason()}" for which, done in runs if done.status or done.err.strip()]
    if not (total["allocations"] and total["captures"]):
        wrong.append("nothing was allocated or captured")
    if "RANDOM_SHORT" in (SETTINGS[setting] or {}) and not total["refused"]:
        wrong.append("nothing was short")
    return wrong, ", ".join(f"{number:,} {name}" for name, number in total.items())


def main():
    options = random_runs.parser_of(__doc__, SETTINGS, seeds=3, operations=5000, limit=120, jobs=4).parse_args()

    def command(path, seed, threads):
        return [path, str(seed), str(options.operations), str(threads)]

    random_runs.run(options, 4, build, command, judge)


if __name__ == "__main__":
    main()
