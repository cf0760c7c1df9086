#!/usr/bin/env python3
"""The out-of-memory point: the largest batch with which a job ends well beside another
process that holds the rest of the card.

    python3 benches/gpu/largest_batch.py --room 16 --deadline 480

For each workload and allocator batches are tried, each in a process of its own that runs a
few seeded steps (cell.py --batch), until the largest that fits and the smallest that runs
out of memory are neighbours. The search begins where the other allocators' ended. The
room is what the other process leaves free; the job's CUDA context must fit in it too.
Every probe is a line of kind "probe" in --results, every point one of kind "oom"; with
--have and --results it goes on where it stopped. Anything but an out-of-memory error ends
the search of that allocator and is said. Needs a GPU that nobody else uses.
"""
import argparse
import os
import subprocess
import sys
import time

import results
import summary
import tables
from allocators import ALLOCATORS, FOUR, HERE, environment, shim_run
from bracket import Search
from cells import Child
from results import json_lines

# Where a search begins that knows nothing yet.
GUESS = {"llm_lora_recompute": 34, "detect_varsize": 32, "unet_mixed_sizes": 30, "llm_full_accumulate": 4}
DEFAULT = ["llm_lora_recompute", "detect_varsize", "unet_mixed_sizes"]
PROBE_S = 12                # that a probe may be expected to take


class Holder:
    """The other process."""

    def __init__(self, room):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "holder.py"), str(room)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            sys.exit("FAIL: the process that holds the rest of the card ended")
        self.left = int(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Bench:
    def __init__(self, a, lines):
        self.a, self.lines = a, lines
        self.begin, self.run_id = time.monotonic(), f"{int(time.time())}-{os.getpid()}"
        self.room = int(a.room * (1 << 30))
        self.library = results.library()
        self.ready, self.failed, self.machine = {}, 0, None

    def mine(self, line, kind, pair):
        """Is it a line of this search? What another build of the library reached does not count."""
        return (line.get("kind") == kind and (line.get("workload"), line.get("allocator")) == pair
                and line.get("room_bytes") == self.room
                and (not ALLOCATORS[pair[1]].shim or line.get("library") == self.library))

    def late(self):
        return time.monotonic() - self.begin + PROBE_S > self.a.deadline

    def prepare(self, pair, count):
        """So many processes of this search are made ready."""
        workload, allocator = pair
        waiting = self.ready.setdefault(pair, [])
        while len(waiting) < count:
            waiting.append(Child("cell.py", [workload, "--batch", "1"], environment(allocator)))
        return waiting

    def drop(self, pair=None):
        for key in [pair] if pair else list(self.ready):
            for child in self.ready.pop(key, []):
                child.end()

    def search(self, pair):
        """A search with what is known: of itself, or else of the other allocators."""
        workload = pair[0]
        others = [l["batch"] for l in self.lines if l.get("kind") == "oom" and l["workload"] == workload
                  and l.get("room_bytes") == self.room and l.get("batch")]
        search = Search(max(others)) if others else Search(GUESS.get(workload, 16), GUESS.get(workload, 16) // 8)
        for line in self.lines:
            if self.mine(line, "probe", pair):
                search.told(line["batch"], line["fits"])
        return search

    def go(self, pairs):
        """Settles pair by pair; returns how many it had to leave."""
        left = [p for p in pairs if not any(self.mine(l, "oom", p) for l in self.lines)]
        while left:
            pair = left[0]
            search = self.search(pair)
            while (batch := search.next()) is not None:
                if self.late():
                    return len(left)
                child = self.prepare(pair, 3).pop(0)
                if len(left) > 1:
                    self.prepare(left[1], 1)
                fits = self.probe(pair, batch, child)
                if fits is None:
                    break
                search.told(batch, fits)
            left.pop(0)
            self.drop(pair)
            if search.settled:
                self.keep(dict(kind="oom", batch=search.low, failed=search.high), pair)
        return 0

    def probe(self, pair, batch, child):
        """Does this batch fit? None where it failed of something else."""
        child.go(batch=batch, limit=self.a.steps)
        cell = child.finish(self.a.limit)
        fits = True if not cell["status"] else False if cell.get("out_of_memory") else None
        if fits is None:
            self.failed += 1
            print(f"{pair[0]} {pair[1]} batch {batch}: FAILED: {cell.get('error')}", flush=True)
            return None
        print(f"{pair[0]} {pair[1]} batch {batch}: {'fits' if fits else 'out of memory'}, {cell['wall_s']} s", flush=True)
        self.machine = cell.get("machine") or self.machine
        self.keep(dict(kind="probe", batch=batch, fits=fits, error=cell.get("error")), pair)
        return fits

    def keep(self, line, pair):
        line = dict(line, workload=pair[0], allocator=pair[1], room_bytes=self.room, steps=self.a.steps, run=self.run_id,
                    machine=self.machine, status=0)
        if ALLOCATORS[pair[1]].shim:
            line["library"] = self.library
        self.lines.append(line)
        results.append(self.a.results, line)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--workloads", default=",".join(DEFAULT), help=f"of {', '.join(GUESS)}")
    ap.add_argument("--allocators", default=",".join(FOUR), help=f"of {', '.join(ALLOCATORS)}")
    ap.add_argument("--room", type=float, default=16, help="GiB that are left for the job")
    ap.add_argument("--steps", type=int, default=8, help="of a probe")
    ap.add_argument("--limit", type=int, default=60, help="seconds that a probe may take")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="begin no probe that may end after so many seconds")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "largest_batch.jsonl"))
    ap.add_argument("--have", action="append", default=[], metavar="FILE", help="results of earlier runs")
    a = ap.parse_args()
    for names, known in (a.workloads, GUESS), (a.allocators, ALLOCATORS):
        for name in names.split(","):
            if name not in known:
                ap.error(f"unknown {name}; known: {', '.join(known)}")
    if a.room < 2 or a.steps < 1:
        ap.error("--room is at least 2 GiB, --steps at least 1")
    shim_run.need_gpu()
    shim_run.need_library()
    files = a.have + [a.results]
    bench = Bench(a, json_lines.read(files))
    holder = Holder(bench.room)
    print(f"{holder.left >> 20} MiB are left for the job", flush=True)
    try:
        left = bench.go([(w, x) for w in a.workloads.split(",") for x in a.allocators.split(",")])
    finally:
        bench.drop()
        holder.end()
    if left:
        print(f"{left} searches left for another run")
    print(tables.text(summary.Results.read(files), ["largest"]), end="")
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
