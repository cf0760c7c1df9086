#!/usr/bin/env python3
"""The random calls of tests/differential on a real GPU: right ones, wrong ones, and with CUDA IPC,
answered with the library as without it.

    python3 tests/gpu/random_calls.py                            # about three minutes
    python3 tests/gpu/random_calls.py --seeds 40 --first 100 legal
    python3 tests/gpu/random_calls.py --record                   # what the plain driver answers, too

Prints a PASS or FAIL line for each kind, and the kinds of differences. A program of wrong calls
may end the plain driver's process, or hang in it: it is compared up to there. --record writes
tests/differential/recorded/GPU, with which `make test` compares the simulated GPU, but for programs
with CUDA IPC, whose handles a keeper gives. Needs an NVIDIA GPU with 10 GiB free, libcudart.so.13
and a C compiler; --built is the program built already.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run
from conformance import ask_gpu, runtime_folder

DIFFERENTIAL = os.path.join(shim_run.ROOT, "tests/differential")
sys.path.insert(0, DIFFERENTIAL)
import differ
import recorded
from recorded import number
from shim_run import LATE

KINDS = {"legal": ["legal"], "any": [], "ipc": ["ipc"]}


def answers(run):
    return run.out.splitlines()


def folder_of_gpu():
    """As the golden files of tests/conformance are named: the GPU and its driver. A program uses two, where there are."""
    name = ask_gpu("name").replace("NVIDIA ", "").split()[0].lower()
    if int(ask_gpu("count")) > 1:
        name += "-x2"
    return os.path.join(DIFFERENTIAL, "recorded", f"{name}-{ask_gpu('driver_version')}")


class Programs:
    """The programs of all seeds and kinds, several at a time."""

    def __init__(self, options, program):
        self.options, self.program, self.folder = options, program, folder_of_gpu()
        self.found = runtime_folder()

    def run(self, kind, seed, preload, *flags):
        command = [self.program, str(seed), str(self.options.calls), *KINDS[kind], *flags]
        settings = {"MEMCUDA_LOG": "error"}
        if kind != "ipc":
            settings["MEMCUDA_KEEPER"] = "off"
        if self.found:
            settings["LD_LIBRARY_PATH"] = self.found
        return shim_run.run(command, preload, self.options.limit, **settings)

    def record(self, kind, seed):
        lines = recorded.kept(answers(self.run(kind, seed, None, "alone")))
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, f"{kind}-{seed}.txt"), "w") as file:
            file.writelines(f"{line}\n" for line in lines)

    def compare(self, kind, seed):
        """(calls compared, calls served, the first difference or None)."""
        if self.options.record and kind != "ipc":
            self.record(kind, seed)
        bare = self.run(kind, seed, None)
        preloaded = self.run(kind, seed, os.path.abspath(self.options.library))
        one, other = answers(bare), answers(preloaded)
        # The last line is "end", or no answer.
        one, other = one[:-1], other[:-1]
        for line, with_library in zip(one, other):
            if line != with_library:
                return number(line), preloaded.served, (seed, differ.kind_of(line, with_library), line, with_library)
        compared = min(len(one), len(other))
        # What the plain driver ends may go on with the library. It hangs in some wrong calls, and so with both.
        hangs = len(one) == len(other) and bare.status == preloaded.status == LATE and kind != "legal"
        if not hangs and (preloaded.status not in (0, bare.status) or LATE in (bare.status, preloaded.status)):
            ends = f"ended {bare.status} after {len(one)} calls", f"ended {preloaded.status} after {len(other)}"
            return compared, preloaded.served, (seed, "one ends early", *ends)
        return compared, preloaded.served, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=8, help="programs at one time")
    parser.add_argument("--limit", type=int, default=120, help="seconds that a program may take")
    parser.add_argument("--library", default=shim_run.LIBRARY)
    parser.add_argument("--built", metavar="FILE")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]}; known: {', '.join(KINDS)}")
    shim_run.need_gpu()
    shim_run.need_library(options.library)
    verdicts = shim_run.Verdicts()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        program = os.path.abspath(options.built or os.path.join(folder, "differential"))
        if not options.built:
            subprocess.run([os.path.join(DIFFERENTIAL, "build.sh"), program], check=True)
        programs = Programs(options, program)
        seeds = range(options.first, options.first + options.seeds)
        begun = {kind: [pool.submit(programs.compare, kind, seed) for seed in seeds] for kind in options.kinds or KINDS}
        for kind, runs in begun.items():
            runs = [run.result() for run in runs]
            calls, served = sum(run[0] for run in runs), sum(run[1] for run in runs)
            differences = [run[2] for run in runs if run[2]]
            detail = f"{len(runs)} programs, {calls:,} calls, {served:,} served, {len(differences)} differ"
            lines = [f"\n     seed {seed}, {what}\n     - {line}\n     + {other}" for seed, what, line, other in differences]
            verdicts.say(not differences and served > 0, kind, detail + "".join(lines))
    verdicts.finish()


if __name__ == "__main__":
    main()
