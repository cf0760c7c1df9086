"""The tables say what the results say, and what they do not."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tables
from summary import SCHEMA, Results
from test_summary import MIB, cell


class Tables(unittest.TestCase):
    LINES = [cell("native", live_torch_bytes=900 * MIB, reserved_bytes=1800 * MIB, step_ms=[100.0], check="x"),
             cell("expandable", status=1, error="CUDA error | line\ntwo"),
             cell("memcuda-native", physical_bytes=1000 * MIB, step_ms=[101.0], check="y"),
             dict(schema=SCHEMA, kind="oom", workload="job", allocator="native", room_bytes=1 << 30, batch=3, failed=4),
             dict(schema=SCHEMA, kind="oom", workload="job", allocator="memcuda-native", room_bytes=1 << 30, batch=None, failed=1)]

    def test_markdown(self):
        said = tables.text(Results(self.LINES), markdown=True)
        for line in ("| job | 900 | 50.0 % | failed | 90.0 % | - | 1.01x (1 pair) | - |",
                     "| job | torch native | 900 | 1,800 | 50.00 % | - | 1 |",
                     "| | expandable_segments | 900 | - | failed | - | 0, 1 failed |",
                     "| job | expandable_segments | 1 | CUDA error / line two |",
                     "| torch native | 3 (not 4) |", "| memcuda native | none fits (not 1) |"):
            self.assertIn(line + "\n", said)
        self.assertIn("OTHER WORK than under torch's own allocator: job under memcuda native", said)

    def test_columns_of_text_stand_below_each_other(self):
        lines = tables.text(Results(self.LINES), ["memory"]).splitlines()
        end = lines[0].index("live, MiB") + len("live, MiB")
        self.assertEqual([line[end - 3:end] for line in lines[1:4]], ["900"] * 3)

    def test_nothing_measured(self):
        self.assertEqual(tables.text(Results([])), "no results\n")


if __name__ == "__main__":
    unittest.main()
