"""How results are merged, over small made-up ones."""
import os
import random
import statistics
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import summary
from summary import Results

MIB = 1 << 20


def cell(allocator, repeat=1, workload="job", status=0, run="monday", **fields):
    return dict(schema=summary.SCHEMA, kind="cell", workload=workload, allocator=allocator, repeat=repeat,
                status=status, run=run, machine=dict(gpu="G"), **fields)


def row(lines, allocator, workload="job"):
    return next(r for r in Results(lines).rows if (r.workload, r.allocator) == (workload, allocator))


class Merging(unittest.TestCase):
    def test_the_last_good_line_of_a_key_counts(self):
        lines = [cell("native", live_torch_bytes=10, reserved_bytes=50),
                 cell("native", live_torch_bytes=10, reserved_bytes=20),
                 cell("native", status=1, error="killed")]
        found = row(lines, "native")
        self.assertEqual((found.physical, found.runs, found.failed), (20, 1, 1))

    def test_who_never_ended_well_has_an_error_and_no_figure(self):
        found = row([cell("native", live_torch_bytes=10), cell("expandable", status=1, error="out of memory")], "expandable")
        self.assertEqual((found.error, found.runs, found.physical, found.efficiency), ("out of memory", 0, None, None))

    def test_peaks_are_medians_over_repeats(self):
        lines = [cell("native", r, live_torch_bytes=10 * MIB, reserved_bytes=s * MIB) for r, s in enumerate([20, 40, 25], 1)]
        self.assertEqual(row(lines, "native").physical, 25 * MIB)
        self.assertEqual(row(lines, "native").efficiency, 0.4)

    def test_bytes_are_set_against_those_of_a_run_of_their_kind(self):
        lines = [cell("native", 0, live_torch_bytes=90, reserved_bytes=200), cell("native", 1, live_torch_bytes=100, reserved_bytes=220),
                 cell("expandable", 0, live_torch_bytes=90, reserved_bytes=100), cell("memcuda-keep", 1, reserved_bytes=125)]
        self.assertEqual([row(lines, a).efficiency for a in ("native", "expandable", "memcuda-keep")], [0.45, 0.9, 0.8])

    def test_efficiency_is_of_what_torch_needs_under_its_own_allocator(self):
        lines = [cell("memcuda-async", live_torch_bytes=0, live_bytes=95, physical_bytes=100),
                 cell("native", live_torch_bytes=90, reserved_bytes=180)]
        found = row(lines, "memcuda-async")
        self.assertEqual((found.efficiency, found.own_efficiency), (0.9, 0.95))

    def test_above_the_pool_torchs_tensors_count_and_what_others_ask_for(self):
        lines = [cell("memcuda-native", live_torch_bytes=90, reserved_bytes=94, live_bytes=104, physical_bytes=105),
                 cell("native", live_torch_bytes=90, reserved_bytes=180)]
        found = row(lines, "memcuda-native")
        self.assertEqual((found.own_live, found.efficiency), (100, 90 / 105))
        self.assertIsNone(row(lines, "native").own_live)

    def test_where_torch_own_allocator_failed_another_that_torch_counts_tells_the_need(self):
        lines = [cell("native", status=1), cell("expandable", live_torch_bytes=80, reserved_bytes=100)]
        self.assertEqual(row(lines, "expandable").efficiency, 0.8)
        self.assertEqual(row(lines, "native").live, 80)

    def test_without_torch_counters_the_process_is_asked(self):
        lines = [cell("native", live_torch_bytes=60, reserved_bytes=70),
                 cell("rmm-pool", 0, reserved_bytes=0, process_bytes=100), cell("rmm-pool", 1, reserved_bytes=0)]
        self.assertEqual((row(lines, "rmm-pool").physical_by, row(lines, "rmm-pool").efficiency), ("process", 0.6))

    def test_threads_that_meet_otherwise_each_time_have_their_own_need_or_none(self):
        lines = [dict(cell(a, **fields), kind="concurrency", what=what, workload=None) for what in ("threads", "processes4")
                 for a, fields in (("native", dict(live_torch_bytes=100, reserved_bytes=200)),
                                   ("expandable", dict(live_torch_bytes=90, reserved_bytes=120)),
                                   ("memcuda-async", dict(live_torch_bytes=0, live_bytes=95, physical_bytes=98)))]
        found = {(r.workload, r.allocator): r.efficiency for r in Results(lines).together}
        self.assertEqual([found["threads", a] for a in ("native", "expandable", "memcuda-async")], [0.5, 0.75, None])
        self.assertEqual(found["processes4", "memcuda-async"], 100 / 98)

    def test_who_is_set_beside_rmm_is_weighed_as_rmm_is(self):
        lines = [cell("native", live_torch_bytes=60, reserved_bytes=70, process_bytes=75),
                 cell("async", 0, live_torch_bytes=60, reserved_bytes=80, process_bytes=100), cell("rmm-async", 0, process_bytes=100)]
        found = [row(lines, a) for a in ("native", "async", "rmm-async")]
        self.assertEqual([(r.physical_by, r.efficiency) for r in found], [("torch", 60 / 70), ("process", 0.6), ("process", 0.6)])
        self.assertEqual(row(lines[:1] + [cell("async", 1, reserved_bytes=80)], "async").physical_by, "torch")

    def test_a_smoke_of_the_scripts_and_other_schemas_are_no_results(self):
        lines = [cell("native", smoke="tiny"), dict(cell("native"), schema="memcuda.replay/1"), dict(workload="old")]
        self.assertEqual(Results(lines).lines, [])

    def test_what_was_not_measured_is_none_and_not_zero(self):
        found = row([cell("native")], "native")
        for field in ("live", "physical", "efficiency", "own_efficiency", "step_ms", "ratio", "stall_share", "same"):
            self.assertIsNone(getattr(found, field), field)

    def test_no_stall_is_a_figure(self):
        found = row([cell("memcuda-native", stall_ns=0, stalls=0, warm_s=2.0)], "memcuda-native")
        self.assertEqual((found.stall_share, found.stalls), (0, 0))
        found = row([cell("memcuda-native", stall_ns=4_000_000, stalls=2, warm_s=2.0)], "memcuda-native")
        self.assertEqual(found.stall_share, 0.002)

    def test_another_result_than_under_torch_is_told(self):
        lines = [cell("native", check="a"), cell("expandable", check="b"), cell("memcuda-native", check="a")]
        self.assertIs(row(lines, "expandable").same, False)
        self.assertIs(row(lines, "memcuda-native").same, True)

    def test_of_an_out_of_memory_point_the_last_line_counts(self):
        lines = [dict(schema=summary.SCHEMA, kind="oom", workload="job", allocator="native", room_bytes=room, batch=b)
                 for room, b in ((1, 3), (1, 4), (2, 9))]
        found = Results(lines).largest
        self.assertEqual({at: points["native"]["batch"] for at, points in found.items()}, {("job", 1): 4, ("job", 2): 9})

    def test_the_source_says_the_first_and_the_last_day(self):
        machines = [dict(gpu="G", driver="5", torch="2", date=d) for d in ("2026-01-03", "2026-01-01", "2026-01-02T10:00")]
        self.assertEqual(summary.source([dict(machine=m) for m in machines]),
                         "G, driver 5, torch 2, 2026-01-01 to 2026-01-03")


class Ratios(unittest.TestCase):
    STEPS = [900.0, 10.0, 20.0, 30.0, 40.0, 50.0]

    def pair(self, repeat, factor, run="monday"):
        yield cell("native", repeat, step_ms=self.STEPS, warm_from=1, first_step_ms=900.0, run=run)
        yield cell("expandable", repeat, step_ms=[2 * self.STEPS[0]] + [factor * s for s in self.STEPS[1:]],
                   warm_from=1, first_step_ms=1800.0, run=run)

    def test_each_warm_step_is_set_against_itself(self):
        found = row([c for r, f in [(1, 1.1), (2, 1.5), (3, 1.2)] for c in self.pair(r, f)], "expandable")
        self.assertAlmostEqual(found.ratio, 1.2)
        self.assertEqual((found.pairs, found.first_ratio), (3, 2.0))
        self.assertAlmostEqual(found.run_ratio, (1800 + 1.2 * 150) / 1050)
        self.assertTrue(1.1 <= found.low < found.ratio < found.high <= 1.5, found)

    def test_the_first_pair_of_a_run_pays_for_what_its_machine_keeps(self):
        def first_ratio(*runs):
            lines = [cell(a, n, run=run, step_ms=[1.0], first_step_ms=first) for run, pairs in enumerate(runs)
                     for n, ratio in pairs for a, first in (("native", 1.0), ("memcuda-native", ratio))]
            return row(lines, "memcuda-native").first_ratio
        self.assertEqual(first_ratio([(1, 3.0), (2, 1.0), (3, 1.5)], [(4, 3.0), (5, 1.25)]), 1.25)
        self.assertEqual(first_ratio([(1, 3.0)]), 3.0)

    def test_the_repeat_that_samples_memory_is_not_timed(self):
        self.assertIsNone(row(list(self.pair(0, 1.1)), "expandable").ratio)

    def test_a_step_is_never_set_against_one_of_another_run(self):
        alone = list(self.pair(1, 1.3, run="tuesday"))[1:]
        self.assertEqual(row(list(self.pair(1, 1.1)) + alone, "expandable").pairs, 0)

    def test_what_an_earlier_run_has_stays_paired_when_another_goes_on(self):
        lines = list(self.pair(1, 1.1)) + list(self.pair(2, 1.3, run="tuesday"))
        lines.append(cell("native", 1, step_ms=[1.0] * 6, warm_from=1, run="tuesday"))
        found = row(lines, "expandable")
        self.assertEqual((found.pairs, found.runs), (2, 2))
        self.assertAlmostEqual(found.ratio, 1.2)

    def test_of_steps_in_turns_all_runs_count_and_tell_how_long_steps_take(self):
        first, second = self.pair(1, 1.5), self.pair(1, 1.1, run="tuesday")
        others = [self.pair(repeat, factor) for repeat, factor in ((2, 1.2), (3, 1.3))]
        turns = [dict(line, kind="turns") for pair in (first, second, *others) for line in pair]
        cells = list(self.pair(1, 2.0))
        found = Results(cells + turns).timed["job", "expandable"]
        self.assertEqual((found.pairs, round(found.ratio, 6)), (4, 1.25))
        self.assertEqual(Results(cells + turns[:4]).timed["job", "expandable"].pairs, 1, "two pairs in turns have no interval")

    def test_of_steps_in_turns_those_of_the_last_build_count(self):
        """Of each job under each allocator; torch's own where one of them is beside it."""
        lines = []
        for build, run, factor in (("new", "300-1", 1.2), ("old", "100-1", 2.0), ("old", "200-1", 2.0)):
            for theirs, ours in map(self.pair, (1, 2), (factor, factor), (run, run)):
                lines += [dict(theirs, kind="turns", reserved_bytes=int(factor * 10)), dict(ours, kind="turns", allocator="memcuda-native", library=build)]
        lines += [dict(line, kind="turns", workload="other", library=line["allocator"] == "expandable" and "old" or None) for line in self.pair(1, 1.5, "100-1")]
        found = {(r.workload, r.allocator): r for r in Results(lines).turns}
        self.assertEqual((found["job", "memcuda-native"].pairs, round(found["job", "memcuda-native"].ratio, 6)), (2, 1.2))
        self.assertEqual((found["job", "native"].runs, found["job", "native"].physical), (2, 12))
        self.assertEqual(found["other", "expandable"].pairs, 1)

    def test_two_pairs_have_no_interval(self):
        found = row([c for r in (1, 2) for c in self.pair(r, 1.1)], "expandable")
        self.assertIsNone(found.low)

    def test_results_in_any_order_of_files_say_the_same(self):
        lines = [c for r, f in [(1, 1.1), (2, 1.5), (3, 1.2)] for c in self.pair(r, f)]
        self.assertEqual(row(lines, "expandable"), row(lines[::-1], "expandable"))


class Interval(unittest.TestCase):
    def test_the_median_of_a_resample_has_the_distribution_that_drawing_gives(self):
        for n in (1, 2, 5, 12):
            values = [i * i for i in range(n)]
            rng = random.Random(7)
            short = [summary.median_drawn_anew(values, rng) for _ in range(20000)]
            long = [statistics.median(rng.choices(values, k=n)) for _ in range(20000)]
            for share in (0.025, 0.25, 0.5, 0.75, 0.975):
                at = int(share * 20000)
                near = sorted(long)[max(0, at - 250):at + 250]
                self.assertTrue(near[0] <= sorted(short)[at] <= near[-1], (n, share))

    def test_it_covers_the_truth_about_as_often_as_it_says(self):
        rng = random.Random(5)
        covered = 0
        for trial in range(60):
            runs = [[shift + rng.gauss(0, 0.03) for _ in range(30)] for shift in (rng.gauss(1, 0.01) for _ in range(8))]
            low, high = summary.interval(runs, str(trial))
            covered += low <= 1 <= high
        self.assertTrue(50 <= covered <= 60, covered)


if __name__ == "__main__":
    unittest.main()
