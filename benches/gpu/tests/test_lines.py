"""Lines that cells write: traces, timelines, several jobs as one cell."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import record
import results
import together_cell
from workloads import WORKLOADS, Job


def event(action, addr, size, stream=0, t=100):
    return dict(action=action, addr=addr, size=size, stream=stream, time_us=t)


class Traces(unittest.TestCase):
    def test_events_become_lines_with_numbers_and_times_from_zero(self):
        events = [event("segment_alloc", 0x1000, 2 << 20), event("alloc", 0x1000, 512, t=105), event("alloc", 0x1200, 512, stream=77, t=106),
                  event("free_requested", 0x1000, 512, t=107), event("free_completed", 0x1000, 512, t=108),
                  event("alloc", 0x1000, 256, t=109), event("snapshot", 0, 0), event("free_completed", 0x9999, 1)]
        self.assertEqual(list(record.lines(events)), [
            "t_us,op,id,bytes,stream", "0,segment_alloc,1000,2097152,0", "5,alloc,0,512,0", "6,alloc,1,512,1",
            "7,free,0,512,0", "8,free_done,0,512,0", "9,alloc,2,256,0"])


class Timelines(unittest.TestCase):
    def test_few_points_that_keep_the_peak(self):
        points = [(t / 100, t, 5000 if t == 3333 else t % 7) for t in range(10_000)]
        few = results.thinned(points)
        self.assertLessEqual(len(few), results.POINTS)
        self.assertIn((33.33, 3333, 5000), few)
        self.assertEqual([p[0] for p in few], sorted(p[0] for p in few))

    def test_short_ones_stay(self):
        self.assertEqual(results.thinned([(0, 1, 2), (1, None, 3)]), [(0, 1, 2), (1, None, 3)])
        self.assertEqual(results.thinned([]), [])


class SeveralJobs(unittest.TestCase):
    def job(self, steps, **more):
        return dict(step_ms=steps, warm_from=1, warm_s=2.0, check="c", losses=[1.0], machine=dict(gpu="x"), **more)

    def test_a_step_is_as_long_as_the_slowest_and_bytes_are_summed(self):
        cell = together_cell.merged([self.job([1, 5, 2], physical_bytes=10, stall_ns=3), self.job([2, 4, 3], physical_bytes=20, stall_ns=4)])
        self.assertEqual((cell["step_ms"], cell["physical_bytes"], cell["stall_ns"], cell["warm_s"]), ([2, 5, 3], 30, 7, 4.0))
        self.assertEqual(cell["status"], 0)

    def test_the_failure_that_broke_the_barrier_is_the_one_told(self):
        cell = together_cell.merged([dict(error="BrokenBarrierError: "), dict(error="OutOfMemoryError: CUDA out of memory."), self.job([1])])
        self.assertEqual((cell["status"], cell["error"], cell["out_of_memory"]), (1, "OutOfMemoryError: CUDA out of memory.", True))


class Jobs(unittest.TestCase):
    def test_what_was_drawn_makes_the_digest(self):
        one, same, other = (Job(WORKLOADS["two_streams"]) for _ in range(3))
        for job in (one, same):
            job.note(3, 4)
        other.note(4, 3)
        self.assertEqual(one.digest(), same.digest())
        self.assertNotEqual(one.digest(), other.digest())

    def test_every_workload_is_where_the_table_says(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../workloads")
        for name, workload in WORKLOADS.items():
            with open(os.path.join(folder, f"{workload.family}.py")) as f:
                self.assertIn(f"\ndef {name}(job):", f.read())
            self.assertGreater(workload.steps, workload.warm_from)


if __name__ == "__main__":
    unittest.main()
