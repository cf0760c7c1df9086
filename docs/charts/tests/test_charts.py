"""What is drawn is what was measured, it can be read, and what is missing is said."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import made_up
from made_up import GIB, JOBS, cells, everything, line, parsed, recorded, words
import comparisons
import draw
import live_blocks
import over_time
from summary import Results
from tables import called

DRAW = os.path.join(os.path.dirname(made_up.HERE), "draw.py")


def of_class(picture, name):
    return [e for e in picture.iter() if name in (e.get("class") or "").split()]


class EveryChart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.charts = draw.charts(everything())

    def test_each_is_drawn_and_is_xml(self):
        for name, text in self.charts.items():
            self.assertIsNotNone(text, name)
            self.assertEqual(parsed(text).tag, made_up.SVG + "svg", name)

    def test_no_text_leaves_the_paper_or_covers_another(self):
        for name, text in self.charts.items():
            self.assertEqual(list(made_up.crowded(parsed(text))), [], name)

    def test_the_check_for_that_sees_both(self):
        text = self.charts["efficiency.svg"]
        self.assertTrue(list(made_up.crowded(parsed(text.replace('x="12"', 'x="470"')))))
        self.assertTrue(list(made_up.crowded(parsed(text.replace(">short<", f">{'short ' * 9}<")))))

    def test_text_is_never_smaller_than_a_phone_needs(self):
        for name, text in self.charts.items():
            sizes = [float(e.get("font-size")) for e in parsed(text).iter(made_up.SVG + "text")]
            self.assertGreaterEqual(min(sizes), 11.5, name)

    def test_who_does_not_see_it_is_told_the_same(self):
        for name, text in self.charts.items():
            picture = parsed(text)
            title, told = (picture.find(made_up.SVG + tag).text for tag in ("title", "desc"))
            self.assertTrue(title and len(told) > 100, name)
        told = parsed(self.charts["efficiency.svg"]).find(made_up.SVG + "desc").text
        self.assertIn("short, memcuda native: 83.3 %", told)

    def test_each_has_both_schemes_and_says_its_source(self):
        for name, text in self.charts.items():
            self.assertIn("prefers-color-scheme:dark", text, name)
            self.assertIn("NVIDIA H200, driver 580.159.04", " ".join(words(parsed(text))), name)
            self.assertIn("2026-01-02", text, name)

    def test_the_same_results_give_the_same_files(self):
        self.assertEqual(self.charts, draw.charts(everything()))

    def test_of_nothing_nothing_is_drawn(self):
        self.assertEqual(set(draw.charts(Results([])).values()), {None})


class Comparisons(unittest.TestCase):
    def test_bars_are_as_long_as_the_share(self):
        picture = parsed(comparisons.efficiency(everything()))
        wide = float(of_class(picture, "track")[0].get("width"))
        bar = float(of_class(picture, "f-native")[0].get("width"))
        self.assertAlmostEqual(bar / wide, 10 / 24, delta=0.01)

    def test_what_was_not_run_and_what_failed_has_no_bar(self):
        lines = list(cells("job", ["native", "memcuda-native"]))
        lines.append(line("cell", workload="job", allocator="expandable", repeat=0, status=1, error="out of memory"))
        picture = parsed(comparisons.efficiency(Results(lines)))
        self.assertEqual((words(picture).count("failed"), words(picture).count("not run")), (1, 1))
        self.assertEqual(len(of_class(picture, "track")), 2)
        self.assertIn("expandable_segments: failed", picture.find(made_up.SVG + "desc").text)

    def test_an_interval_is_drawn_and_without_one_the_dot_alone(self):
        for repeats, bars in ((4, 1), (2, 0)):
            picture = parsed(comparisons.step_ratio(Results(cells("job", ["native", "memcuda-native"], repeats))))
            marks = of_class(picture, "f-memcuda-native")
            self.assertEqual([e.tag for e in marks].count(made_up.SVG + "rect"), bars)
            self.assertEqual([e.tag for e in marks].count(made_up.SVG + "circle"), 1)

    def test_a_ratio_beyond_the_scale_ends_in_an_arrow_and_keeps_its_number(self):
        lines = list(cells("job", ["native", "memcuda-native"]))
        for c in lines:
            if c["allocator"] == "memcuda-native":
                c["step_ms"] = [3 * s for s in c["step_ms"]]
        picture = parsed(comparisons.step_ratio(Results(lines)))
        marks = of_class(picture, "f-memcuda-native")
        self.assertNotIn(made_up.SVG + "circle", [e.tag for e in marks])
        self.assertTrue([w for w in words(picture) if w.startswith("3.")], words(picture))

    def test_alternatives_are_drawn_for_the_workloads_that_they_ran(self):
        lines = list(cells("all")) + list(cells("four", comparisons.FOUR))
        said = words(parsed(comparisons.efficiency_alternatives(Results(lines))))
        self.assertIn("all", said)
        self.assertNotIn("four", said)
        self.assertIn("RMM pool", said)

    def test_batches_of_a_workload_are_compared_with_its_largest(self):
        picture = parsed(comparisons.out_of_memory(everything()))
        track = float(of_class(picture, "track")[0].get("width"))
        bars = [float(e.get("width")) for e in of_class(picture, "f-native")]
        self.assertAlmostEqual(bars[0] / track, 4 / 6, delta=0.01)
        self.assertEqual(words(picture).count("not run"), len(JOBS))

    def test_batches_in_other_room_stand_apart(self):
        lines = [line("oom", workload="job", allocator="native", room_bytes=n * GIB, batch=n, failed=n + 1) for n in (8, 16)]
        said = words(parsed(comparisons.out_of_memory(Results(lines))))
        self.assertTrue({"job in 8 GiB", "job in 16 GiB"} <= set(said), said)

    def test_where_no_batch_fits_that_is_said(self):
        lines = [line("oom", workload="job", allocator="native", room_bytes=GIB, batch=0, failed=1)]
        self.assertIn("none fits", words(parsed(comparisons.out_of_memory(Results(lines)))))


class OverTime(unittest.TestCase):
    def test_who_ran_and_was_not_recorded_is_named(self):
        results = Results([*cells("job", ["native", "expandable"], 1), recorded("job", "native", 20)])
        text = over_time.memory(results)
        self.assertIn("Not recorded: expandable_segments.", text)
        self.assertEqual(len(of_class(parsed(text), "l-expandable")), 0)

    def test_zeros_alone_are_no_record(self):
        blind = recorded("job", "expandable", 0)
        self.assertIsNone(over_time.memory(Results([blind])))
        text = over_time.memory(Results([recorded("job", "native", 20), blind]))
        self.assertIn("Not recorded: expandable_segments.", text)

    def test_needed_is_what_missed_its_peak_by_least(self):
        results = Results([recorded("job", "native", 20, live=False), recorded("job", "memcuda-native", 9)])
        self.assertIn("as recorded under memcuda native", over_time.memory(results))
        self.assertNotIn("as recorded under", over_time.memory(Results([recorded("job", "native", 20)])))
        missed = recorded("job", "native", 20)
        missed["timeline"] = [(t, live // 2, held) for t, live, held in missed["timeline"]]
        text = over_time.memory(Results([missed, recorded("job", "memcuda-native", 9)]))
        self.assertIn("as recorded under memcuda native", text)

    def test_the_workload_on_which_the_four_are_recorded_is_drawn(self):
        four = [recorded("detect_varsize", a, 20) for a in ("native", "expandable", "memcuda-native", "memcuda-async")]
        many = [recorded("llm_lora_recompute", a, 20) for a in ("native", "async", "rmm-pool", "rmm-async", "memcuda-async")]
        self.assertIn("detect_varsize: the area", over_time.memory(Results(many + four)))

    def test_without_any_need_there_is_no_area(self):
        picture = parsed(over_time.memory(Results([recorded("job", "native", 20, live=False)])))
        self.assertEqual(of_class(picture, "base"), [])
        self.assertIn("what it needs was not recorded", picture.find(made_up.SVG + "desc").text)

    def test_peaks_are_told(self):
        said = words(parsed(over_time.memory(Results([recorded("job", "native", 20)]))))
        self.assertIn("20.0 GiB", said)
        self.assertIn(called("native"), said)

    def test_a_level_line_keeps_its_ends(self):
        level = [(0, 1), (1, 5), (2, 5), (3, 5), (4, 2)]
        self.assertEqual(over_time.thinned(level), [(0, 1), (1, 5), (3, 5), (4, 2)])


class LiveBlocks(unittest.TestCase):
    def test_a_single_number_of_blocks_is_no_line(self):
        lines = [line("cpu", what="hit", size=512, threads=1, live=1000, median_ns=90)]
        self.assertIsNone(live_blocks.cost(Results(lines)))

    def test_of_what_was_measured_again_the_middle_is_drawn_and_the_band_is_of_all(self):
        lines = [line("cpu", what="any", size=512, threads=1, live=live, median_ns=ns, low_ns=ns - 9, high_ns=ns + 9)
                 for live in (1000, 10_000) for ns in (142, 175, 227)]
        self.assertEqual(live_blocks.measured(lines)["any"]["512 B"][0], (1000, 175, 133, 236))

    def test_threads_are_another_matter(self):
        lines = [dict(r, threads=16) for r in made_up.cpu()]
        self.assertIsNone(live_blocks.cost(Results(lines)))

    def test_blocks_of_sizes_that_differ_are_one_line(self):
        lines = [line("cpu", what="any", size=700 + live, threads=1, live=live, median_ns=90 + live / 1e4) for live in (1000, 10_000)]
        self.assertIn("any size", words(parsed(live_blocks.cost(Results(lines)))))

    def test_results_that_do_not_say_on_what_are_said_to(self):
        lines = [{k: v for k, v in r.items() if k != "machine"} for r in made_up.cpu()]
        self.assertIn("The results do not say on what they were measured.", live_blocks.cost(Results(lines)))


class Command(unittest.TestCase):
    def run_it(self, *words):
        return subprocess.run([sys.executable, "-B", DRAW, *words], capture_output=True, text=True)

    def test_it_draws_what_there_is_and_takes_away_what_there_is_no_longer(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "results.jsonl")
            with open(file, "w") as f:
                f.write("".join(json.dumps(r) + "\n" for r in made_up.cpu()))
            with open(os.path.join(folder, "efficiency.svg"), "w") as f:
                f.write("of earlier results")
            ran = self.run_it("--out", folder, file)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(sorted(os.listdir(folder)), ["cost-live-blocks.svg", "results.jsonl"])
            self.assertIn("efficiency.svg: the results hold nothing to draw", ran.stdout)

    def test_wrong_input_is_told_in_a_line(self):
        for words, said in ((["/no/such.jsonl"], "no file /no/such.jsonl"), (["--workload", "x"], "no record of memory over time of x")):
            ran = self.run_it(*words)
            self.assertEqual(ran.returncode, 2)
            self.assertIn(said, ran.stderr)


class Committed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = Results.read(draw.committed())
        cls.charts = draw.charts(cls.results)

    def test_the_charts_are_those_of_the_committed_results(self):
        folder = os.path.dirname(DRAW)
        there = {}
        for name in os.listdir(folder):
            if name.endswith(".svg"):
                with open(os.path.join(folder, name)) as f:
                    there[name] = f.read()
        made = {name: text for name, text in self.charts.items() if text}
        self.assertEqual(sorted(there), sorted(made), "make charts")
        for name in made:
            self.assertTrue(there[name] == made[name], f"{name} is of other results: make charts")

    def test_the_tables_are_those_of_the_committed_results(self):
        for page, text in draw.written(self.results, self.charts).items():
            with open(os.path.join(draw.ROOT, page)) as f:
                self.assertTrue(f.read() == text, f"{page} is of other results: make charts")

    def test_no_text_of_them_leaves_the_paper_or_covers_another(self):
        for name, text in self.charts.items():
            self.assertEqual(list(made_up.crowded(parsed(text))) if text else [], [], name)


if __name__ == "__main__":
    unittest.main()
