"""Round numbers, places and labels that stand apart."""
import random
import unittest

import made_up  # noqa: F401  finds what is tested
import scales
import svg


class Scales(unittest.TestCase):
    def test_a_logarithmic_axis_has_its_ends_where_they_belong(self):
        at = scales.Logarithmic(10, 1000, 0, 200)
        self.assertEqual([round(at(v)) for v in (10, 100, 1000)], [0, 100, 200])

    def test_ticks_are_round_and_not_too_many(self):
        self.assertEqual(scales.ticks(0, 31.2, 6), [0, 10, 20, 30])
        self.assertEqual(scales.plain(scales.ticks(0.95, 1.05, 3)), ["0.95", "1.00", "1.05"])
        rng = random.Random(1)
        for _ in range(300):
            low = rng.uniform(0, 2)
            found = scales.ticks(low, low + 10 ** rng.uniform(-2, 3), 5)
            self.assertTrue(1 <= len(found) <= 5 and found == sorted(found), found)

    def test_ends_hold_the_values(self):
        self.assertEqual(scales.around(85, 210, (1, 2, 5)), (50, 500))
        self.assertEqual(scales.around(1000, 1000000, (1,)), (1000, 1000000))

    def test_labels_stand_apart_in_order_and_move_little(self):
        rng = random.Random(2)
        for _ in range(200):
            wanted = [rng.uniform(0, 100) for _ in range(6)]
            found = scales.apart(wanted, 12, 0, 100)
            self.assertTrue(all(-1e-9 <= p <= 100 + 1e-9 for p in found), found)
            ordered = [p for _, p in sorted(zip(wanted, found))]
            self.assertTrue(all(b - a >= 12 - 1e-9 for a, b in zip(ordered, ordered[1:])), ordered)
        self.assertEqual(scales.apart([10, 50, 90], 12, 0, 100), [10, 50, 90])
        self.assertEqual(scales.apart([52, 48], 10, 0, 100), [55, 45])

    def test_sizes(self):
        self.assertEqual([scales.size(b) for b in (512, 65536, 3 << 19, 1 << 30)], ["512 B", "64 KiB", "1.5 MiB", "1 GiB"])


class Text(unittest.TestCase):
    def test_lines_fit_and_lose_no_word(self):
        text = "some words of which a line of this width holds but a few"
        lines = svg.wrapped(text, 13, 120)
        self.assertEqual(" ".join(lines), text)
        self.assertTrue(all(svg.width(line, 13) <= 120 for line in lines), lines)

    def test_numbers_are_short(self):
        self.assertEqual([svg.number(v) for v in (0, -0.01, 3.0, 2.25, 1000.04, 120)], ["0", "0", "3", "2.2", "1000", "120"])


if __name__ == "__main__":
    unittest.main()
