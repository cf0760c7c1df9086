"""The search for the largest batch, over made-up cards."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from bracket import Search


def settle(search, fits):
    """(largest that fits, smallest that does not, probes)"""
    probes = 0
    while (batch := search.next()) is not None:
        probes += 1
        assert probes < 40, "never settles"
        search.told(batch, fits(batch))
    return search.low, search.high, probes


class TheSearch(unittest.TestCase):
    def test_finds_the_point_from_any_guess(self):
        for point in (0, 1, 2, 7, 31, 32, 33, 64, 200):
            for guess in (1, 16, 32, 100):
                for step in (1, 4):
                    low, high, _ = settle(Search(guess, step), lambda b: b <= point)
                    self.assertEqual((low, high), (point, point + 1), f"guess {guess}, step {step}")

    def test_a_right_guess_needs_two_probes(self):
        self.assertEqual(settle(Search(40), lambda b: b <= 40), (40, 41, 2))

    def test_a_guess_three_too_low_needs_few(self):
        low, _, probes = settle(Search(40), lambda b: b <= 43)
        self.assertEqual(low, 43)
        self.assertLessEqual(probes, 6)

    def test_goes_on_from_earlier_probes(self):
        search = Search(32, 4)
        for batch, fits in ((32, True), (36, True), (44, False)):
            search.told(batch, fits)
        self.assertEqual(search.next(), 40)

    def test_where_probes_disagree_the_larger_batch_that_fits_counts(self):
        search = Search(10)
        search.told(10, False)
        search.told(12, True)
        self.assertEqual(search.low, 12)
        self.assertIsNone(search.high)
        self.assertGreater(search.next(), 12)

    def test_never_tries_less_than_one(self):
        self.assertEqual(settle(Search(3, 8), lambda b: False)[:2], (0, 1))


if __name__ == "__main__":
    unittest.main()
