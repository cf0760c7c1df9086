"""Runs cells in rounds: the timed ones of a round one after the other and alone, so that they
can be compared with each other; those that only sample memory side by side. Appends a line
a cell, goes on where earlier runs stopped, begins nothing that a deadline would cut off.
"""
import collections
import os
import random
import time

import results
from allocators import ALLOCATORS
from cells import Ahead

EXPECTED_S = 25             # of a cell that was not run yet, from its go to its end
BUDGET_MIB = 120 * 1024     # of the device, for cells side by side


def plan(workloads, wanted, repeats, good, build):
    """What is to be run, in order, as (workload, allocator, repeat). `wanted` tells a workload's
    allocators in a repeat, `good` what is there already; memcuda's own cells of another build do not count."""
    def missing(workload, allocator, repeat):
        cell = good.get((workload, allocator, repeat))
        return cell is None or (ALLOCATORS[allocator].shim and cell.get("library") != build)

    for repeat in repeats:
        for workload in workloads:
            left = [a for a in wanted(workload, repeat) if missing(workload, a, repeat)]
            if repeat and left and "native" not in left:
                left.append("native")
            # Another order each time, so that no allocator always follows the same one.
            random.Random(f"{repeat}{workload}").shuffle(left)
            yield from ((workload, a, repeat) for a in left)


def expected_s(good):
    """Seconds that a cell of a workload takes, as earlier timed ones did."""
    seen = {}
    for cell in good.values():
        if cell["repeat"]:
            name = cell.get("workload") or cell["what"]
            seen[name] = max(seen.get(name, 0), cell["wall_s"] * 1.1)
    return seen


def round_of(item):
    """The timed cells that are compared with each other; a cell that is not timed is one by itself."""
    workload, _, repeat = item
    return (workload, repeat) if repeat else item


class Rounds:
    """Runs a plan. `start` makes the child of an item, `line` what its result line begins with,
    `need_mib` what it may take of the device."""

    def __init__(self, a, items, expected, start, line, need_mib=lambda item: 0):
        self.a, self.expected, self.line, self.need_mib = a, expected, line, need_mib
        self.begin, self.run_id = time.monotonic(), f"{int(time.time())}-{os.getpid()}"
        self.together = 1                       # until NVML has told of one process
        self.left_out, self.failed, self.read = 0, 0, False
        self.sizes, self.begun = collections.Counter(map(round_of, items)), set()
        self.ahead = Ahead(items, start, a.ahead, batches=any(item[2] for item in items))

    def left_s(self):
        return self.a.deadline - (time.monotonic() - self.begin)

    def fits(self, item, running):
        """May it begin now, beside those that run?"""
        if not running:
            return True
        if item[2] or any(other[2] for other, _ in running):
            return False
        others = sum(self.need_mib(other) for other, _ in running)
        return len(running) < self.together and others + self.need_mib(item) <= BUDGET_MIB

    def late(self, item, running):
        """May it end after the deadline? A round is begun only if all of it fits."""
        expected = self.expected.get(item[0], EXPECTED_S) * (1 + 0.7 * len(running))
        cells = 1 if round_of(item) in self.begun else self.sizes[round_of(item)]
        return expected * cells > self.left_s()

    def go(self):
        running = []
        try:
            while True:
                for item, child in running[:]:
                    if not child.running() or child.seconds() > self.a.limit or self.left_s() < -20:
                        running.remove((item, child))
                        self.done(item, child)
                # Nothing is prepared beside a cell that is timed: it would be slower for it.
                item = None if any(other[2] for other, _ in running) else self.ahead.peek()
                if item and item[2] and not self.ahead.quiet():
                    pass
                elif item and item[2] and not self.read:
                    self.ahead.read_libraries()
                    self.read = True
                elif item and self.late(item, running):
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
                elif not running:
                    break
                time.sleep(0.01)
        finally:
            self.ahead.drop()
            for _, child in running:
                child.end()
        if self.left_out:
            print(f"{self.left_out} cells left for another run")

    def done(self, item, child):
        workload, allocator, repeat = item
        cell = dict(self.line(item), allocator=allocator, repeat=repeat, run=self.run_id,
                    **child.finish(min(self.a.limit, child.seconds() + max(0, self.left_s()))))
        results.append(self.a.results, cell)
        if repeat == 0 and cell.get("process_source") == "process":
            self.together = self.a.together
        self.failed += bool(cell["status"])
        if not cell["status"] and self.together == 1:
            self.expected[workload] = max(self.expected.get(workload, 0), cell["wall_s"] * 1.1)
        print(f"{workload} {allocator} #{repeat}: {self.brief(cell)}, {cell['wall_s']} s", flush=True)

    @staticmethod
    def brief(cell):
        """A line on a cell for whoever watches."""
        if cell["status"]:
            return f"FAILED: {cell.get('error')}"
        mib = lambda *names: next((cell[n] for n in names if cell.get(n)), 0) >> 20
        return (f"steps {sum(cell['step_ms']) / 1e3:.1f} s, first {cell['first_step_ms']:.0f} ms, "
                f"live {mib('live_torch_bytes', 'live_bytes')} MiB, "
                f"holds {mib('physical_bytes', 'reserved_bytes', 'process_bytes')}")
