"""What benches/compare.py shows of two result files, and benches/replay.py of replays."""
import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest

BENCHES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(BENCHES, f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compare, replay = load("compare"), load("replay")


def cpu(what, median, low, high, **more):
    return {"schema": "memcuda.bench/1", "kind": "cpu", "what": what, "size": 512, "threads": 1, "live": 1,
            "median_ns": median, "low_ns": low, "high_ns": high, **more}


def run(module, *arguments):
    said, before = io.StringIO(), sys.argv
    sys.argv = [module.__name__, *arguments]
    try:
        with contextlib.redirect_stdout(said):
            module.main()
    finally:
        sys.argv = before
    return said.getvalue()


class Compare(unittest.TestCase):
    def compared(self, before, after, *more):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("before", "after")]
            for path, rows in zip(paths, (before, after)):
                with open(path, "w") as f:
                    f.writelines(json.dumps(row) + "\n" for row in rows)
                    f.write("a line of something else\n")
            return run(compare, *paths, *more).splitlines()[1:]

    def test_what_lies_within_the_earlier_runs_is_left_out(self):
        before = [cpu("hit", 70.0, 69.0, 75.0), cpu("slab", 80.0, 79.0, 81.0)]
        after = [cpu("hit", 74.0, 73.0, 75.0), cpu("slab", 40.0, 39.0, 41.0)]
        shown = self.compared(before, after)
        self.assertEqual([line.split()[0] for line in shown], ["slab"])
        self.assertIn("0.50", shown[0])
        self.assertEqual(len(self.compared(before, after, "--all")), 2)

    def test_every_change_of_a_count_and_what_one_file_lacks(self):
        count = {"schema": "memcuda.bench/1", "kind": "count", "what": "pool: slab", "instructions": 1000}
        shown = self.compared([count, cpu("gone", 1, 1, 1)], [{**count, "instructions": 1001}])
        self.assertIn("1,001", shown[0])
        self.assertTrue(shown[1].startswith("only before") and "gone" in shown[1], shown)

    def test_what_is_not_compared_is_told(self):
        other = [{"bench": "trace_cost", "event_ns": 9.0}, {"schema": "memcuda.bench/1", "kind": "turns", "what": "hit"}]
        shown = self.compared([cpu("hit", 5, 5, 5), *other], [cpu("hit", 5, 5, 5), other[0]])
        self.assertEqual(shown, ["not compared: 2 of another schema, 1 of kind turns"])

    def test_a_figure_that_one_file_lacks_is_no_unchanged_one(self):
        play = {"schema": "memcuda.bench/1", "kind": "replay", "what": "job", "native_bytes": 1, "async_bytes": 2}
        shown = self.compared([play], [{key: play[key] for key in play if key != "async_bytes"}])
        self.assertEqual(len(shown), 1)
        self.assertTrue(shown[0].startswith("only before") and "async_bytes" in shown[0], shown)

    def test_what_recording_costs_is_compared(self):
        cost = {"schema": "memcuda.bench/1", "kind": "cpu", "what": "trace: an event, async", "median_ns": 40.0, "low_ns": 38.0, "high_ns": 41.0}
        lost = {"schema": "memcuda.bench/1", "kind": "loss", "what": "trace, 1,000,000 events a second", "threads": 4, "lost_events": 0}
        shown = self.compared([cost, lost], [dict(cost, median_ns=80.0), dict(lost, lost_events=7)])
        self.assertEqual([line.split()[-1] for line in shown], ["2.00", "nan"])
        threads = dict(cost, kind="threads", what="runtime", threads=4)
        self.assertIn("2.00", self.compared([threads], [dict(threads, median_ns=80.0)])[0])

    def test_the_last_line_of_one_case_counts(self):
        shown = self.compared([cpu("hit", 5, 5, 5), cpu("hit", 9, 9, 9)], [cpu("hit", 18, 18, 18)])
        self.assertIn("2.00", shown[0])


class Replay(unittest.TestCase):
    def played(self, script, *more):
        with tempfile.TemporaryDirectory() as folder:
            memcuda, trace = os.path.join(folder, "memcuda"), os.path.join(folder, "job.csv.zst")
            with open(memcuda, "w") as f:
                f.write("#!/bin/sh\n" + script)
            os.chmod(memcuda, 0o755)
            return run(replay, "--memcuda", memcuda, *more, trace)

    ANSWER = ('echo "{\\"peak_live_bytes\\": $live, \\"peak_physical_bytes\\": 2097152, \\"efficiency\\": 0.5,'
              ' \\"driver_time_s\\": 0.02, \\"trace_time_s\\": 2.0, \\"hit_rate\\": 0.9, \\"median_alloc_ns\\": 80,'
              ' \\"p99_alloc_ns\\": 900}"\n')

    def test_torch_s_own_peak_is_that_of_its_segments(self):
        script = 'live=1048576; [ "$4" = recorded ] && live=4194304\n' + self.ANSWER
        row = json.loads(self.played(script, "--json"))
        self.assertEqual((row["what"], row["live_bytes"], row["torch_bytes"]), ("job", 1 << 20, 4 << 20))
        self.assertEqual((row["native_bytes"], row["async_driver_time_rate"]), (2 << 20, 0.01))
        table = self.played(script).splitlines()
        self.assertEqual(table[2], "| job | 1 | 4 | 25.00 % |" + " 2 | 50.00 % |" * 3 + " 1.00 % |" * 3)
        self.assertEqual(len({line.count("|") for line in table}), 1)

    def test_a_trace_without_segments_has_none_of_torch(self):
        script = ('live=1048576; [ "$4" = recorded ] && { echo "the trace ends without any segment_alloc" >&2; exit 2; }\n'
                  + self.ANSWER)
        self.assertIsNone(json.loads(self.played(script, "--json"))["torch_bytes"])
        self.assertEqual(len({line.count("|") for line in self.played(script).splitlines()}), 1)

    def test_a_replay_that_fails_is_no_row(self):
        with self.assertRaises(SystemExit) as ended:
            self.played("echo out of room >&2; exit 1\n")
        self.assertIn("out of room", str(ended.exception))


if __name__ == "__main__":
    unittest.main()
