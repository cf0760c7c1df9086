"""The out-of-memory points' searches: what they take from others, how they go on."""
import argparse
import contextlib
import io
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import largest_batch
from results import json_lines

MACHINE = dict(gpu="x")


class Searches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "r.jsonl")

    def bench(self, points, probes=1000, library="abc"):
        """A bench over made-up cards that ends after so many probes."""
        a = argparse.Namespace(room=16, steps=8, limit=60, deadline=1e9, results=self.path)
        with mock.patch("results.library", lambda: library):
            bench = largest_batch.Bench(a, json_lines.read([self.path]))
        bench.tried = []

        class Child:
            def go(self, batch, limit):
                self.batch = batch

            def finish(self, limit):
                bench.tried.append(self.batch)
                point = points[self.pair[1]]
                if point is None:
                    return dict(status=1, error="RuntimeError: something else", wall_s=1)
                out = self.batch > point
                return dict(status=int(out), out_of_memory=out, error="CUDA out of memory" if out else None, wall_s=1, machine=MACHINE)

            def end(self):
                pass

        def prepare(pair, count):
            child = Child()
            child.pair = pair
            return [child]

        bench.prepare = prepare
        bench.late = lambda: len(bench.tried) >= probes
        return bench

    def go(self, bench, *allocators):
        with contextlib.redirect_stdout(io.StringIO()):
            return bench.go([("detect_varsize", a) for a in allocators])

    def points(self):
        return {line["allocator"]: (line["batch"], line["failed"]) for line in json_lines.read([self.path]) if line["kind"] == "oom"}

    def test_finds_each_allocators_point_the_second_with_few_probes(self):
        bench = self.bench({"native": 21, "memcuda-async": 22})
        self.assertEqual(self.go(bench, "native", "memcuda-async"), 0)
        self.assertEqual(self.points(), {"native": (21, 22), "memcuda-async": (22, 23)})
        self.assertLessEqual(len(bench.tried[bench.tried.index(21, 1):]), 10)

    def test_goes_on_where_it_was_cut_off(self):
        cut = self.bench({"native": 21}, probes=3)
        self.assertEqual(self.go(cut, "native"), 1)
        self.assertEqual(self.points(), {})
        rest = self.bench({"native": 21})
        self.go(rest, "native")
        self.assertEqual(self.points(), {"native": (21, 22)})
        self.assertFalse(set(cut.tried) & set(rest.tried))
        again = self.bench({"native": 21})
        self.go(again, "native")
        self.assertEqual(again.tried, [])

    def test_another_build_begins_anew_but_not_for_torch(self):
        for library in ("abc", "new"):
            bench = self.bench({"native": 21, "memcuda-async": 30}, library=library)
            self.go(bench, "native", "memcuda-async")
        self.assertIn(31, bench.tried)
        self.assertNotIn(21, bench.tried)

    def test_another_failure_is_not_taken_for_out_of_memory(self):
        bench = self.bench({"native": None, "expandable": 5})
        self.go(bench, "native", "expandable")
        self.assertEqual((self.points(), bench.failed), ({"expandable": (5, 6)}, 1))


if __name__ == "__main__":
    unittest.main()
