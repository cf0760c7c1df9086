"""What the runner runs, in which order, beside what, and until when: with children that are
made up and a clock of the test's own."""
import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cells
import rounds

FOUR = ["native", "expandable", "memcuda-native", "memcuda-async"]


def cell(workload, allocator, repeat, **more):
    return {(workload, allocator, repeat): dict(workload=workload, allocator=allocator, repeat=repeat, library="abc", wall_s=10, **more)}


class ThePlan(unittest.TestCase):
    def plan(self, good, repeats=(0, 1, 2), workloads=("a", "b")):
        return list(rounds.plan(workloads, lambda w, r: FOUR, repeats, good, "abc"))

    def test_everything_once_memory_first_then_round_by_round(self):
        items = self.plan({})
        self.assertEqual(len(items), len(set(items)))
        self.assertEqual(len(items), 3 * 2 * 4)
        self.assertEqual([r for _, _, r in items], sorted(r for _, _, r in items))
        self.assertEqual([w for w, _, _ in items], (["a"] * 4 + ["b"] * 4) * 3)

    def test_each_round_has_an_order_of_its_own(self):
        orders = {tuple(a for w, a, r in self.plan({}, range(1, 9), ["a"]) if r == round_) for round_ in range(1, 9)}
        self.assertGreater(len(orders), 3)

    def test_what_is_there_is_not_run_again(self):
        self.assertEqual(len(self.plan(cell("a", "native", 0))), 23)

    def test_a_missing_timed_cell_brings_native_along(self):
        good = {}
        for allocator in FOUR[:-1]:
            good |= cell("a", allocator, 1)
        self.assertEqual({a for w, a, r in self.plan(good, [1], ["a"])}, {"native", "memcuda-async"})
        good |= cell("a", "memcuda-async", 1)
        self.assertEqual(self.plan(good, [1], ["a"]), [])

    def test_cells_of_another_build_do_not_count(self):
        good = {}
        for allocator in FOUR:
            good |= cell("a", allocator, 0)
        good["a", "memcuda-native", 0]["library"] = "old"
        good["a", "native", 0]["library"] = None
        self.assertEqual(self.plan(good, [0], ["a"]), [("a", "memcuda-native", 0)])

    def test_expected_is_the_longest_timed_cell(self):
        good = cell("a", "native", 0) | cell("a", "native", 1) | cell("a", "expandable", 1)
        good["a", "native", 0]["wall_s"] = 99
        good["a", "expandable", 1]["wall_s"] = 20
        self.assertEqual(rounds.expected_s(good), {"a": 22.0})


class World:
    """A clock that children move by running."""

    def __init__(self, seconds=10):
        self.now, self.each, self.beside, self.most, self.active = 0.0, seconds, [], 0, 0
        self.prepare, self.made_beside, self.unready = 3, [], []
        self.library, self.asked = None, []


class Child:
    def __init__(self, world, item):
        self.world, self.item, self.began, self.made = world, item, None, world.now
        world.made_beside.append((item, world.active))

    def ready(self):
        return self.world.now >= self.made + self.world.prepare

    def go(self, **words):
        self.began, self.words = self.world.now, words
        self.world.active += 1
        self.world.most = max(self.world.most, self.world.active)
        self.world.beside.append((self.item, self.world.active))
        self.world.unready += [self.item] if not self.ready() else []

    def libraries(self):
        self.world.asked.append((self.item, len(self.world.beside)))
        return {self.world.library} if self.world.library else set()

    def running(self):
        # Not all as long, so that some end while others run.
        return self.world.now < self.began + self.world.each - FOUR.index(self.item[1])

    def seconds(self):
        return self.world.now - self.began

    def finish(self, limit):
        self.world.active -= 1
        return dict(status=0, step_ms=[1.0, 2.0], first_step_ms=1.0, wall_s=self.world.each, process_source="process")

    def end(self):
        pass


class Libraries(unittest.TestCase):
    def test_those_of_a_package_are_found_and_read_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            package = os.path.join(folder, "dist-packages", "some", "lib")
            os.makedirs(package)
            source = os.path.join(folder, "empty.c")
            open(source, "w").close()
            files = [os.path.join(package, name) for name in ("libone.so.1", "libtwo.so")]
            for file in files:
                subprocess.run(["cc", "-shared", "-fPIC", source, "-o", file], check=True)
            program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); sys.stdin.read()"
            process = subprocess.Popen([sys.executable, "-c", program, files[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            process.stdout.readline()
            child = cells.Child.__new__(cells.Child)
            child.process = process
            self.assertEqual(child.libraries(), set(files))
            ahead, said = cells.Ahead([], None), io.StringIO()
            ahead.waiting = [(None, child)]
            with contextlib.redirect_stdout(said):
                ahead.read_libraries()
            self.assertIn("MiB of libraries read ahead", said.getvalue())
            process.communicate()
            self.assertEqual(child.libraries(), set())


class TheRounds(unittest.TestCase):
    def run_plan(self, items, deadline=1e9, need=lambda item: 1, expected=None):
        world = World()
        with tempfile.TemporaryDirectory() as folder:
            a = argparse.Namespace(deadline=deadline, limit=60, together=3, ahead=2, results=os.path.join(folder, "r.jsonl"))

            def sleep(seconds):
                world.now += 1

            with mock.patch("rounds.time.monotonic", lambda: world.now), mock.patch("rounds.time.sleep", sleep), \
                    contextlib.redirect_stdout(io.StringIO()):
                bench = rounds.Rounds(a, items, expected or {}, lambda item: Child(world, item),
                                      lambda item: dict(kind="cell", workload=item[0]), need)
                bench.go()
            lines = []
            if os.path.exists(a.results):
                with open(a.results) as f:
                    lines = [json.loads(line) for line in f]
        return world, bench, lines

    def test_timed_cells_run_alone(self):
        items = [("a", x, r) for r in (0, 1) for x in FOUR]
        world, bench, lines = self.run_plan(items)
        self.assertEqual(len(lines), 8)
        self.assertEqual([n for (_, _, r), n in world.beside if r], [1] * 4)
        self.assertEqual(bench.failed, 0)

    def test_nothing_is_prepared_beside_a_timed_cell(self):
        world, _, lines = self.run_plan([("a", x, r) for r in (1, 2) for x in FOUR])
        self.assertEqual(len(lines), 8)
        self.assertEqual([beside for _, beside in world.made_beside], [0] * 8)
        self.assertEqual(world.unready, [])

    def test_memory_cells_run_side_by_side_once_nvml_tells_of_one(self):
        items = [("a", x, 0) for x in FOUR]
        world, _, _ = self.run_plan(items)
        self.assertEqual([n for _, n in world.beside], [1, 1, 2, 3])
        self.assertEqual(world.most, 3)

    def test_never_more_side_by_side_than_the_device_holds(self):
        items = [("a", x, 0) for x in FOUR]
        world, _, _ = self.run_plan(items, need=lambda item: rounds.BUDGET_MIB // 2 + 1)
        self.assertEqual(world.most, 1)

    def test_a_round_that_does_not_fit_is_not_begun(self):
        items = [("a", x, 1) for x in FOUR] + [("b", x, 1) for x in FOUR]
        _, bench, lines = self.run_plan(items, deadline=60, expected={"a": 11, "b": 11})
        self.assertEqual([line["workload"] for line in lines], ["a"] * 4)
        self.assertEqual(bench.left_out, 4)

    def test_libraries_are_read_once_before_the_first_timed_cell(self):
        world, _, _ = self.run_plan([("a", x, r) for r in (1, 2) for x in FOUR])
        self.assertEqual(world.asked, [(("a", "native", 1), 0), (("a", "expandable", 1), 0)])

    def test_lines_say_what_they_are(self):
        _, bench, lines = self.run_plan([("a", "native", 1)])
        self.assertEqual({k: lines[0][k] for k in ("schema", "kind", "workload", "allocator", "repeat", "run")},
                         dict(schema="memcuda.bench/1", kind="cell", workload="a", allocator="native", repeat=1, run=bench.run_id))


if __name__ == "__main__":
    unittest.main()
