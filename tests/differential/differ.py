#!/usr/bin/env python3
"""Runs random calls without the library and with it, and says where answers differ.

    differ.py PROGRAM LIBRARY --seeds FIRST:LAST [--calls N] [--small] [--real] [--set NAME=VALUE ...] [FLAG ...]

PROGRAM is what build.sh makes; the driver is whichever LD_LIBRARY_PATH has, and the settings of
the simulated GPU and of the library go by the seed. FLAG is one of the program's (ipc, legal).
With --small the devices have so little memory that requests are refused; with --real work takes
its time, so that no run is as another.

A difference is shown with the fewest calls that show it, and how to run them. 0: none; 1: some.
What docs/differences.md tells is not called; the program says where.
"""
import argparse
import os
import random
import re
import subprocess
import sys

SETTINGS = [
    {},
    {},
    {},
    {"MEMCUDA_POLICY": "direct"},
    {"MEMCUDA_POLICY": "track"},
    {"MEMCUDA_CHUNK": "2MiB"},
    {"MEMCUDA_CHUNK": "64MiB"},
    {"MEMCUDA_DEBUG": "poison"},
    {"MEMCUDA_DEBUG": "canary"},
    {"MEMCUDA_LIMIT": "8GiB"},
    {"MEMCUDA_IDLE": "0"},
    {"MEMCUDA_FREE": "sync"},
    {"MEMCUDA_FREE": "ordered"},
]
# What the simulated GPU's driver may lack: four times of ten nothing.
LACKS = [None, None, None, None, "vmm", "descriptors", "rdma,rdma-access", "tables", "green-streams", "own-memory"]
# On a small device: those with which the library may hold more for an allocation than the driver, or nothing is its own.
TOO_SMALL = {"MEMCUDA_POLICY": ("direct", "track"), "MEMCUDA_CHUNK": ("64MiB",), "MEMCUDA_LIMIT": ("8GiB",)}
# Where memory is short the library has so many MiB more: ends of handles, of allocations of each kind.
SLACK = 8
OUT_OF_MEMORY = re.compile(r"=2\b")
# A run of the program takes a second.
PATIENCE = 120
# Calls that are left out at most: the bare driver ends the program for them, or lacks the memory that the library has.
MOST_SKIPPED = 40
GIVEN_UP = f"more than {MOST_SKIPPED} calls would be left out"


class Run:
    """What a run of the program said."""

    def __init__(self, command, environment):
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE)
            self.status, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            self.status, out, err = f"none in {PATIENCE} s", late.stdout or b"", late.stderr or b""
        self.lines = out.decode(errors="replace").splitlines()
        self.log = err.decode(errors="replace")

    def last_call(self):
        """The number of the call that the run ended in; None where it had not begun."""
        found = re.match(r"\d+", self.lines[-1]) if self.lines else None
        return int(found.group()) if found else None


class Program:
    """The calls of a seed, bare and with the library."""

    def __init__(self, options, seed):
        chosen = random.Random(seed)
        self.program, self.library = options.program, options.library
        self.seed, self.calls, self.flags = seed, options.calls, list(options.flag)
        self.is_small = options.small
        clock = "real" if options.real else chosen.choice(["off", "off", "virtual"])
        self.driver = {"MEMCUDA_SIM_DEVICES": chosen.choice("112"), "MEMCUDA_SIM_CLOCK": clock}
        lacks = chosen.choice(LACKS)
        # Nothing is the library's own then, or it cannot hand memory on.
        is_unfit = (options.small and lacks == "vmm") or ("ipc" in self.flags and lacks == "descriptors")
        if lacks and not is_unfit:
            self.driver["MEMCUDA_SIM_LACKS"] = lacks
        self.settings = chosen.choice([it for it in SETTINGS if not (options.small and is_too_small(it))])
        if options.small:
            memory = chosen.choice([160, 256, 512])
            self.driver["MEMCUDA_SIM_MEMORY"] = f"{memory}MiB"
            self.settings = {**self.settings, "MEMCUDA_SIM_MEMORY": f"{memory + SLACK}MiB"}
            self.flags.append("small")
        if self.settings.get("MEMCUDA_DEBUG") == "canary":
            self.flags.append("guarded")
        self.settings = {**self.settings, **dict(each.split("=", 1) for each in options.set)}
        self.skipped = []

    def arguments(self, only):
        listed = [("only", only), ("skip", self.skipped)]
        lists = [f"{name}=" + ",".join(map(str, numbers)) for name, numbers in listed if numbers]
        return [self.program, str(self.seed), str(self.calls), *self.flags, *lists]

    def run(self, with_library, only=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MEMCUDA_") or k == "MEMCUDA_KEEPER"}
        environment.setdefault("MEMCUDA_KEEPER", "off")
        environment.update(self.driver, MEMCUDA_LOG="error")
        if with_library:
            environment.update(self.settings, LD_PRELOAD=self.library)
        return Run(self.arguments(only), environment)

    def difference(self, only=None):
        """The first one, or None. Without a list, calls that nothing can be told of are left out from now on."""
        while len(self.skipped) < MOST_SKIPPED:
            bare = self.run(False, only)
            found = bare.status == 0 and Difference.between(bare, self.run(True, only), self.is_small)
            is_told = found is None or (found and not found.is_served)
            if only or is_told:
                return found if is_told else None
            untold = found.call if found else bare.last_call()
            if untold is None:
                sys.exit(f"seed {self.seed} does not begin: {bare.status} {bare.log}")
            self.skipped.append(untold)
        return Difference(0, GIVEN_UP)

    def fewest(self, first):
        """The calls that still show a difference, when as many are left out as can be."""
        calls = [int(line.split()[0]) for line in self.run(False).lines[: first.at + 1] if line != "end"]
        step = len(calls) // 2
        while step:
            at, is_less = 0, False
            while at < len(calls):
                fewer = calls[:at] + calls[at + step :]
                found = self.difference(fewer) if fewer else None
                if found and found.kind == first.kind:
                    calls, is_less = fewer, True
                else:
                    at += step
            if step > 1 or not is_less:
                step //= 2
        return calls

    def show(self, first):
        calls = self.fewest(first)
        bare, preloaded = self.run(False, calls), self.run(True, calls)
        settings = " ".join(f"{name}={value}" for name, value in {**self.driver, **self.settings}.items())
        print(f"\nseed {self.seed} differs: {first.kind}\n{settings} {' '.join(self.arguments(calls))}")
        for line, other in zip(bare.lines, preloaded.lines):
            print(f"  {line}" if line == other else f"- {line}\n+ {other}")
        print(f"ended with {bare.status}, with the library with {preloaded.status}\n{preloaded.log}", flush=True)


class Difference:
    """Between two runs: in which line, and of what kind. Is it that only the library has the memory for that call?"""

    def __init__(self, at, kind, call=None, is_served=False):
        self.at, self.kind, self.call, self.is_served = at, kind, call, is_served

    @staticmethod
    def between(bare, preloaded, is_small):
        for at, (line, other) in enumerate(zip(bare.lines, preloaded.lines)):
            if line == other:
                continue
            is_served = is_small and bool(OUT_OF_MEMORY.search(line)) and not OUT_OF_MEMORY.search(other)
            return Difference(at, kind_of(line, other), int(line.split()[0]), is_served)
        if preloaded.status != 0 or len(bare.lines) != len(preloaded.lines):
            return Difference(len(preloaded.lines), f"ended with {preloaded.status}: {without_numbers(preloaded.log)[-200:]}")
        return None


def is_too_small(settings):
    return any(value in TOO_SMALL.get(name, ()) for name, value in settings.items())


def without_numbers(text):
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text)


def kind_of(line, other):
    """The call and the words that differ, whatever objects they are about."""
    both = [re.sub(r"\b([mshcgeiapd])\d+", r"\1", text).split() for text in (line, other)]
    words = [f"{one} is {two}" for one, two in zip(*both) if one != two]
    call = both[0][3] if len(both[0]) > 3 else "?"
    return f"{call}: {'; '.join(words[:3]) or 'one says more'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("flag", nargs="*")
    parser.add_argument("--seeds", required=True, metavar="FIRST:LAST")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    kinds, left_out = set(), 0
    for seed in range(first, last + 1):
        program = Program(options, seed)
        found = program.difference()
        left_out += len(program.skipped)
        if not found or found.kind in kinds:
            continue
        kinds.add(found.kind)
        if found.kind == GIVEN_UP:
            print(f"seed {seed}: {GIVEN_UP}")
        else:
            program.show(found)
    print(f"{last + 1 - first} programs of {options.calls} calls ({left_out} left out), {len(kinds)} kinds of differences")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
