#!/usr/bin/env python3
"""PyTorch jobs under every allocator: memory efficiency, step time, first step, stalls.

    python3 benches/gpu/matrix.py --memory --record traces          # what each holds, and traces
    python3 benches/gpu/matrix.py --repeats 5 --deadline 540        # the rest, timed
    python3 benches/gpu/matrix.py --table --have FILE --have FILE   # all of it as one table

A cell is a workload under an allocator, in a process of its own (cell.py); its result is a
line appended to --results. Cells that are there, or in a --have FILE, are not run again,
so a bench that --deadline cut off goes on where it stopped, on another machine too. Every
workload is run under native, expandable, memcuda-native and memcuda-async, three of them
under the others as well (--allocators and --workloads choose otherwise).

Repeat 0 samples memory and is not timed: several cells run at once where NVML tells what a
process holds. The repeats from 1 on are timed, each alone on the GPU, the allocators of a
workload one after the other in another order each time; torch native runs beside them
whenever one of them is missing, because a step is only compared with the same step of
torch's run of that round in that run of the bench. Whatever needs no GPU is done ahead of a cell's turn.
Needs an NVIDIA GPU that nobody else uses and what cell.py needs.
"""
import argparse
import collections
import os
import random
import subprocess
import sys
import tempfile
import time

import results
import summary
import tables
from allocators import ALLOCATORS, FOUR, OTHERS, environment, shim_run
from cells import Ahead, Child
from workloads import WORKLOADS

# The workloads that the other allocators run too: a model, much of the host, a server.
BROAD = ["llm_lora_recompute", "detect_varsize", "serving_kv_growth"]
EXPECTED_S = 25             # of a cell nobody has run yet, from its go to its end
# How much more than its live bytes an allocator may take: for how many cells fit side by side.
WASTE = {"native": 3.0, "rmm-pool": 3.0}
BUDGET_MIB, CONTEXT_MIB = 120 * 1024, 800


def plan(workloads, allocators, repeats, good, build):
    """What is to be run, in order, as (workload, allocator, repeat)."""
    def missing(workload, allocator, repeat):
        cell = good.get((workload, allocator, repeat))
        return cell is None or (ALLOCATORS[allocator].shim and cell.get("library") != build)

    for repeat in repeats:
        for workload in workloads:
            wanted = allocators or FOUR + (OTHERS if workload in BROAD else [])
            left = [a for a in wanted if missing(workload, a, repeat)]
            if repeat and left and "native" not in left:
                left.append("native")
            # Another order each time, so that no allocator always follows the same one.
            random.Random(f"{repeat}{workload}").shuffle(left)
            yield from ((workload, a, repeat) for a in left)


def need_mib(item):
    workload, allocator, _ = item
    return WORKLOADS[workload].live_mib * WASTE.get(allocator, 1.5) + CONTEXT_MIB


def round_of(item):
    """The timed cells that are compared with each other; a cell that is not timed is one by itself."""
    workload, allocator, repeat = item
    return (workload, repeat) if repeat else item


class Bench:
    """Runs a plan: timed cells alone, the others up to `together` at once."""

    def __init__(self, a, items, expected, wheels):
        self.a, self.expected, self.wheels = a, expected, wheels
        self.begin, self.run_id = time.monotonic(), f"{int(time.time())}-{os.getpid()}"
        self.build = None if a.smoke else results.library()
        self.together = 1                       # until NVML has told of one process
        self.left_out, self.failed = 0, 0
        self.rounds, self.begun = collections.Counter(map(round_of, items)), set()
        self.ahead = Ahead(items, self.start, a.ahead)
        self.extra = dict(s.split("=", 1) for s in a.set)

    def start(self, item):
        workload, allocator, repeat = item
        words = [workload]
        if ALLOCATORS[allocator].rmm and not self.a.smoke:
            words += ["--rmm", ALLOCATORS[allocator].rmm]
        if repeat == 0:
            words.append("--sample")
            if self.a.record and allocator == "native":
                words += ["--record", os.path.abspath(os.path.join(self.a.record, f"{workload}.csv.zst"))]
        if self.a.smoke:
            words += ["--device", "cpu", "--scale", "tiny"]
        return Child("cell.py", words, environment("native" if self.a.smoke else allocator, self.wheels, self.extra))

    def left_s(self):
        return self.a.deadline - (time.monotonic() - self.begin)

    def fits(self, item, running):
        """May it begin now, beside those that run?"""
        if not running:
            return True
        if item[2] or any(other[2] for other, _ in running):
            return False
        others = sum(need_mib(other) for other, _ in running)
        return len(running) < self.together and others + need_mib(item) <= BUDGET_MIB

    def late(self, item, running):
        """May it end after the deadline? A round is begun only if all of it fits."""
        expected = self.expected.get(item[0], EXPECTED_S) * (1 + 0.7 * len(running))
        cells = 1 if round_of(item) in self.begun else self.rounds[round_of(item)]
        return expected * cells > self.left_s()

    def go(self):
        running = []
        while True:
            for pair in running[:]:
                item, child = pair
                if not child.running() or child.seconds() > self.a.limit or self.left_s() < -20:
                    running.remove(pair)
                    self.done(item, child)
            item = self.ahead.peek()
            if item and self.late(item, running):
                if not running:
                    self.left_out += 1
                    self.ahead.next()[1].end()
                    continue
            elif item and self.fits(item, running):
                item, child = self.ahead.next()
                self.begun.add(round_of(item))
                child.go(alone=self.together == 1)
                running.append((item, child))
                continue
            if not running:
                break
            time.sleep(0.01)
        self.left_out += self.ahead.drop()

    def done(self, item, child):
        workload, allocator, repeat = item
        cell = child.finish(min(self.a.limit, child.seconds() + max(0, self.left_s())))
        cell = dict(dict(kind="cell", workload=workload, allocator=allocator, repeat=repeat, run=self.run_id), **cell)
        if ALLOCATORS[allocator].shim:
            cell.update(library=self.build, extra=self.extra)
        results.append(self.a.results, cell)
        if repeat == 0 and cell.get("process_source") == "process":
            self.together = self.a.together
        self.failed += bool(cell["status"])
        if not cell["status"] and self.together == 1:
            self.expected[workload] = max(self.expected.get(workload, 0), cell["wall_s"] * 1.1)
        say = cell.get("error") or (f"steps {sum(cell['step_ms']) / 1e3:.1f} s, first {cell['first_step_ms']:.0f} ms, live "
                                    f"{(cell.get('live_torch_bytes') or cell.get('live_bytes') or 0) >> 20} MiB, holds "
                                    f"{(cell.get('physical_bytes') or cell.get('reserved_bytes') or cell.get('process_bytes') or 0) >> 20}")
        print(f"{workload} {allocator} #{repeat}: {say}, {cell['wall_s']} s", flush=True)


def install(folder, into):
    """The wheels of a folder, unpacked where the RMM cells import from."""
    wheels = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".whl")]
    if not wheels:
        sys.exit(f"FAIL: no wheel in {folder}")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile",
                    "--target", into, *wheels], check=True)
    return into


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--workloads", help=f"of {', '.join(WORKLOADS)}")
    ap.add_argument("--allocators", help=f"of {', '.join(ALLOCATORS)}")
    ap.add_argument("--repeats", type=int, default=5, help="timed repeats, beside the one that samples memory")
    ap.add_argument("--first", type=int, default=0, help="begin with this repeat (1 leaves out the one that samples memory)")
    ap.add_argument("--memory", action="store_true", help="only the repeat that samples memory")
    ap.add_argument("--record", metavar="DIR", help="write torch native's allocator events there, in the repeat that samples memory")
    ap.add_argument("--wheels", metavar="DIR", help="wheels of RMM; without them its cells need rmm installed")
    ap.add_argument("--together", type=int, default=4, help="cells at once in the repeat that samples memory")
    ap.add_argument("--ahead", type=int, default=3, help="cells that are made ready while one runs")
    ap.add_argument("--limit", type=int, default=150, help="seconds that a cell may take")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="begin no cell that may end after so many seconds")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "matrix.jsonl"))
    ap.add_argument("--have", action="append", default=[], metavar="FILE", help="results of earlier runs")
    ap.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="environment of the memcuda cells")
    ap.add_argument("--table", action="store_true", help="run nothing, print the table")
    ap.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU, every allocator torch's own: tests these scripts, and no table takes it")
    ap.add_argument("--markdown", action="store_true", help="the table as Markdown")
    a = ap.parse_args()
    a.workloads = a.workloads.split(",") if a.workloads else list(WORKLOADS)
    a.allocators = a.allocators.split(",") if a.allocators else None
    for names, known in (a.workloads, WORKLOADS), (a.allocators or [], ALLOCATORS):
        for name in names:
            if name not in known:
                ap.error(f"unknown {name}; known: {', '.join(known)}")
    if any("=" not in s for s in a.set):
        ap.error("--set takes NAME=VALUE")
    return a


def main():
    a = arguments()
    files = a.have + [a.results]
    failed = 0
    if not a.table:
        if not a.smoke:
            shim_run.need_gpu()
            shim_run.need_library()
        good = results.good(files, "cell")
        expected = {}
        for cell in good.values():
            if cell["repeat"]:
                expected[cell["workload"]] = max(expected.get(cell["workload"], 0), cell["wall_s"] * 1.1)
        if a.record:
            os.makedirs(a.record, exist_ok=True)
        repeats = [0] if a.memory else range(a.first, a.repeats + 1)
        items = list(plan(a.workloads, a.allocators, repeats, good, None if a.smoke else results.library()))
        with tempfile.TemporaryDirectory() as folder:
            wheels = install(a.wheels, folder) if a.wheels and any(ALLOCATORS[i[1]].rmm for i in items) else None
            bench = Bench(a, items, expected, wheels)
            try:
                bench.go()
            finally:
                bench.ahead.drop()
        failed = bench.failed
        if bench.left_out:
            print(f"{bench.left_out} cells left for another run")
    print(tables.text(summary.Results.read(files), markdown=a.markdown), end="")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
