#!/usr/bin/env python3
"""The random programs of shim/tests/random on a real GPU: threads, streams,
captures, graphs, memory of every kind. Each kernel reads the words that are its
block's own, so memory that is lent while work still runs on it is seen.

    python3 tests/gpu/random_programs.py                           # about two minutes
    python3 tests/gpu/random_programs.py --seeds 20 'the pool'     # more programs, one setting

Prints a PASS or FAIL line for each setting, and what its programs did; bare is
the first, since a program that is not legal proves nothing. Needs an NVIDIA GPU
with 10 GiB free and nvcc; --program is one that is built already, --library
another library.
"""
import argparse
import concurrent.futures
import glob
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run
from rows.programs import tool

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


def build(folder):
    nvcc = tool("nvcc")
    if not nvcc:
        sys.exit("FAIL: nvcc is missing (looked on PATH, in CUDA_HOME and /usr/local/cuda*)")
    program = os.path.join(folder, "random")
    sources = [os.path.join(shim_run.ROOT, "tests/gpu/random_on_gpu.cu"),
               *glob.glob(os.path.join(shim_run.ROOT, "shim/tests/random/*.c"))]
    done = subprocess.run([nvcc, "-O2", "-arch=native", "-cudart", "shared", "-o", program, *sources, "-lpthread"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAIL: nvcc: {done.stderr.strip()[-400:]}")
    return program


def words(line):
    """The summary of a program: a number for each of its words."""
    parts = line.split()
    return {name: int(number) for name, number in zip(parts[::2], parts[1::2])}


def one(options, program, setting, seed, threads):
    variables = SETTINGS[setting]
    done = shim_run.run([program, str(seed), str(options.operations), str(threads)],
                        preload=None if variables is None else options.library, limit=options.limit,
                        CUDA_MODULE_LOADING="EAGER", **(variables or {}))
    summary = words(done.last_line) if done.status == 0 else {}
    return seed, threads, done, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of: {', '.join(SETTINGS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="programs of one and of four threads for each setting")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--limit", type=int, default=120, help="seconds that a program may take")
    parser.add_argument("--jobs", type=int, default=4, help="programs at one time")
    parser.add_argument("--library", default=shim_run.LIBRARY)
    parser.add_argument("--program")
    options = parser.parse_args()
    unknown = [name for name in options.settings if name not in SETTINGS]
    if unknown:
        parser.error(f"no setting {unknown[0]!r}; there are: {', '.join(SETTINGS)}")
    shim_run.need_gpu()
    shim_run.need_library(options.library)
    options.library = os.path.abspath(options.library)
    verdicts = shim_run.Verdicts()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        program = os.path.abspath(options.program) if options.program else build(folder)
        begun = {setting: [pool.submit(one, options, program, setting, seed, threads)
                           for seed in range(options.first, options.first + options.seeds) for threads in (1, 4)]
                 for setting in options.settings or SETTINGS}
        for setting, runs in begun.items():
            judge(verdicts, setting, [run.result() for run in runs])
    verdicts.finish()


def judge(verdicts, setting, runs):
    """A setting passes where all its programs ended well, said nothing, and did what they are for."""
    total = dict.fromkeys(("operations", "allocations", "captures", "refused"), 0)
    wrong, served = [], 0
    for seed, threads, done, summary in runs:
        for name in total:
            total[name] += summary.get(name, 0)
        served += done.served
        if done.status or done.err.strip():
            wrong.append(f"seed {seed}, {threads} threads: {done.reason()}")
    if not wrong and not (total["allocations"] and total["captures"]):
        wrong.append("nothing was allocated or captured")
    if SETTINGS[setting] is not None and not served:
        wrong.append("the library served nothing")
    if "RANDOM_SHORT" in (SETTINGS[setting] or {}) and not total["refused"]:
        wrong.append("nothing was short")
    seconds = sum(done.seconds for _, _, done, _ in runs)
    did = ", ".join(f"{number:,} {name}" for name, number in total.items())
    verdicts.say(not wrong, setting, f"{len(runs)} programs, {did}, {served:,} served, {seconds:.0f} s" +
                 "".join(f"\n     {line}" for line in wrong))


if __name__ == "__main__":
    main()
