#!/usr/bin/env python3
"""Steps of a job under several allocators, in turns: all of them are loaded beside each
other, each does its first step, each its second, ... while the others wait, in an order
that changes. A step is set against the same step a moment away, so that what a shared host
does meanwhile meets both. Cold steps but the first one are made by all at once. Memory is
not measured here: matrix.py does that.

    python3 benches/gpu/turns.py --workloads detect_varsize --repeats 6 --beside 2 --steps 30

Each process is a line of kind "turns" in --results; a repeat is a new process of each, and
--beside of them take part at once. All run on the same few cores, the quickest of the host,
which are looked for again and again; the next repeats are made ready before steps that
count as warm. Needs an NVIDIA GPU that nobody else uses, with room for all of them, and
what cell.py needs.
"""
import argparse
import os
import socket
import sys
import time

import results
import rounds
import summary
import tables
from allocators import ALLOCATORS, environment, shim_run
from cells import Child, read_libraries
from cores import quickest
from workloads import WORKLOADS


# What is idle stays, as where no other process is on the device.
ALONE = dict(MEMCUDA_IDLE="1024GiB")
# One process makes a step at a time; torch's backward pass has a thread of its own.
CORES = 4
LOOK_STEPS = 4              # between two looks for them


class Player:
    """A process that makes a step when it is told."""

    def __init__(self, a, workload, allocator, repeat):
        self.allocator, self.repeat = allocator, repeat
        self.line, theirs = socket.socketpair()
        self.line.settimeout(a.limit)
        arguments = [workload, "--turns", str(theirs.fileno())]
        if a.smoke:
            arguments, allocator = arguments + ["--device", "cpu", "--scale", "tiny"], "native"
        self.child = Child("cell.py", arguments, environment(allocator, extra=ALONE), [theirs.fileno()])
        theirs.close()

    def waits(self):
        """Until it waits for its turn; false where it ended."""
        try:
            return self.line.recv(1) == b"."
        except OSError:
            return False

    def tell(self):
        """That it may make a step; false where it ended."""
        try:
            self.line.sendall(b".")
        except OSError:
            return False
        return True

    def step(self):
        return self.tell() and self.waits()

    def end(self):
        self.line.close()
        self.child.end()


def prepared(a, workload, repeats):
    return [Player(a, workload, allocator, repeat) for repeat in repeats for allocator in a.allocators]


def until_ready(players):
    while not all(p.child.ready() for p in players):
        time.sleep(0.01)


def play(a, workload, players, next_ones=()):
    """Repeats that take part at once; true if all ended well. If one did not, none of them counts."""
    job = WORKLOADS[workload]
    steps = 3 if a.smoke else min(a.steps or job.steps, job.steps)
    until_ready(players)
    for p in players:
        p.child.go(limit=steps)
    well = all([p.waits() for p in players])
    for number in range(steps):
        if not well:
            break
        if 0 < number < job.warm_from:
            well = all([p.tell() for p in players]) and all([p.waits() for p in players])
            continue
        if number:
            until_ready(next_ones)
        if number % LOOK_STEPS == 0 or number == job.warm_from:
            cores = quickest(CORES)
            for p in players:
                p.child.keep_to(cores)
        first = (number + players[0].repeat) % len(players)
        well = all(p.step() for p in players[first:] + players[:first])
    cells = []
    for p in players:
        p.line.close()              # on to the end, whoever is still there
        cells.append(p.child.finish(p.child.seconds() + (a.limit if well else 1)))
        well = well and cells[-1]["status"] == 0
    for p, cell in zip(players, cells):
        if cell["status"]:
            print(f"{workload} {p.allocator} #{p.repeat}: {cell['error']}", flush=True)
        elif not well:
            cell.update(status=1, error="another one of its round failed: what came after was not in turns")
        shim = dict(library=results.library(), extra=ALONE) if ALLOCATORS[p.allocator].shim and not a.smoke else {}
        results.append(a.results, cell | shim | dict(kind="turns", workload=workload, allocator=p.allocator,
                                                     repeat=p.repeat, run=a.run, steps=steps))
    return well


def sets(plan, beside):
    """The repeats of a plan that take part at once, as (workload, repeats), `beside` at most; first a set of every workload."""
    repeats = {}
    for workload, _, repeat in plan:
        repeats.setdefault(workload, {})[repeat] = None
    cut = [(place, workload, list(each)[place:place + beside])
           for workload, each in repeats.items() for place in range(0, len(each), beside)]
    return [(workload, each) for _, workload, each in sorted(cut, key=lambda c: c[0])]


def run(a):
    """Runs what is missing as long as there is time; true if all of it ended well."""
    good, build = results.good(a.have + [a.results], "turns"), None if a.smoke else results.library()
    missing = rounds.plan(a.workloads, lambda workload, repeat: a.allocators, range(1, a.repeats + 1), good, build)
    plan = sets(missing, a.beside)
    begin, took, well, waiting = time.monotonic(), {}, True, []
    for place, (workload, repeats) in enumerate(plan):
        began = time.monotonic()
        if began - begin + took.get(workload, a.expected) > a.deadline:
            print(f"{len(plan) - place} rounds left for another run")
            break
        players = waiting or prepared(a, workload, repeats)
        if not place:
            until_ready(players)
            read_libraries(p.child for p in players)
        waiting = prepared(a, *plan[place + 1]) if place + 1 < len(plan) else []
        well &= play(a, workload, players, waiting)
        took[workload] = time.monotonic() - began
        print(f"{workload} #{repeats[0]} to #{repeats[-1]}: {took[workload]:.0f} s", flush=True)
    for player in waiting:
        player.end()
    return well


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--workloads", default=",".join(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    ap.add_argument("--allocators", default=f"{summary.BASE},memcuda-native", help=f"of {', '.join(ALLOCATORS)}; torch's own among them")
    ap.add_argument("--repeats", type=int, default=5)
    ap.add_argument("--beside", type=int, default=1, help="repeats at once; the device has room for all of their processes")
    ap.add_argument("--steps", type=int, help="at most so many of each process")
    ap.add_argument("--limit", type=float, default=60, help="seconds that loading, a step or the end may take")
    ap.add_argument("--expected", type=float, default=60, help="seconds that a first round of a job may take")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="begin no round that may end after so many seconds")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "turns.jsonl"))
    ap.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU, every allocator torch's own: tests these scripts, and no table takes it")
    ap.add_argument("--have", action="append", default=[], metavar="FILE", help="results of earlier runs")
    a = ap.parse_args()
    a.workloads, a.allocators = a.workloads.split(","), a.allocators.split(",")
    for names, known in (a.workloads, WORKLOADS), (a.allocators, ALLOCATORS):
        for name in names:
            if name not in known:
                ap.error(f"unknown {name}; known: {', '.join(known)}")
    if a.beside < 1:
        ap.error("--beside is at least 1")
    if summary.BASE not in a.allocators:
        ap.error(f"{summary.BASE} is what the others are set against")
    a.run = f"{int(time.time())}-{os.getpid()}"
    if not a.smoke:
        shim_run.need_gpu()
        shim_run.need_library()
    well = run(a)
    print(tables.text(summary.Results.read(a.have + [a.results]), ["turns"]), end="")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
