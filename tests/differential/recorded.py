#!/usr/bin/env python3
"""Compares what this driver answers to random calls with what a real GPU answered.

    recorded.py PROGRAM [FILE ...]

PROGRAM is what build.sh makes; the driver is whichever LD_LIBRARY_PATH has, without the library. A
FILE is recorded/GPU/KIND-SEED.txt (without any: all), written by tests/gpu/random_calls.py: a line a
call. Calls of which it has no line are left out. 0: all are equal; 1: some differ.
"""
import glob
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
# What goes by more than what the program did, or ends it over the simulated GPU, and changes nothing.
UNTOLD = re.compile(
    r"(attributes?|map_wrongly|range) \[-1\]"  # whatever the driver finds last
    r"|of_hosts \[h\S+ pointer"
    r"|\[m\d+!\+\d+ of \d+ k1 d\d\](?!.* cudaFree)"  # what is freed of a context's memory may be known still
)
# From here on nothing is told: a capture begins while its stream is waited for; the simulated GPU has memory for all.
UNSURE = re.compile(r" host_function .* 24=0| alloc_managed .*=0 m\d+ 429496729600")
# What was recorded on: how many devices there were, and what the driver calls the memory of each, which is told.
GPUS = {"h100-580.159.04": ("1", "81079MiB"), "h100-x2-580.159.04": ("2", "81079MiB")}
PATIENCE = 120


def number(line):
    return int(line.split(" ", 1)[0])


def kept(lines):
    """Of the lines of a run those that are recorded: what ended the process answered nothing."""
    whole = lines[:-1]  # the last is "end", or the call that never returned
    end = next((at for at, line in enumerate(whole) if UNSURE.search(line)), len(whole))
    return [line for line in whole[:end] if not UNTOLD.search(line)]


def flags_of(kind):
    return ["alone", "legal"] if kind == "legal" else ["alone"]


def first_difference(program, file):
    """(recorded line, answer of now), or None."""
    kind, seed = re.fullmatch(r"(\w+)-(\d+)\.txt", os.path.basename(file)).groups()
    with open(file) as recorded:
        wanted = recorded.read().splitlines()
    calls = number(wanted[-1]) + 1
    left_out = sorted(set(range(calls)) - {number(line) for line in wanted})
    command = [program, seed, str(calls), *flags_of(kind)]
    if left_out:
        command.append("skip=" + ",".join(map(str, left_out)))
    gpu = os.path.basename(os.path.dirname(os.path.abspath(file)))
    if gpu not in GPUS:
        return f"recorded on {gpu}", f"how many, of how much memory? GPUS of {os.path.basename(__file__)} does not say"
    devices, memory = GPUS[gpu]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMCUDA_")}
    environment.update(MEMCUDA_SIM_CLOCK="off", MEMCUDA_SIM_DEVICES=devices, MEMCUDA_SIM_MEMORY=memory)
    done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE)
    answers = done.stdout.decode(errors="replace").splitlines()
    for line, answer in zip(wanted, answers):
        if line != answer:
            return line, answer
    if len(answers) <= len(wanted):
        return wanted[len(answers) - 1], f"ended with {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}"
    return None


def main():
    program, *files = sys.argv[1:]
    files = files or sorted(glob.glob(os.path.join(HERE, "recorded/*/*.txt")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda file: first_difference(program, file), files))
    for file, difference in zip(files, found):
        if difference:
            print(f"{os.path.relpath(file, HERE)}\n- {difference[0]}\n+ {difference[1]}")
    differ = sum(map(bool, found))
    print(f"{len(files)} programs, {differ} differ")
    return 1 if differ or not files else 0


if __name__ == "__main__":
    sys.exit(main())
