"""Marked parts of a page are written anew, all else stays."""
import unittest

import made_up
import draw
import pages
from summary import Results

PAGE = """# Title
<!-- table: efficiency short -->
old
<!-- end -->
between
<!-- chart: efficiency -->
<!-- end -->
<!-- source -->
<!-- end -->
<!-- a comment --> stays
"""


class Pages(unittest.TestCase):
    def test_tables_and_pictures_come_where_they_are_asked_for(self):
        results = made_up.everything()
        text = pages.filled(PAGE, results, draw.charts(results), "docs/measurements/page.md")
        for line in ("| workload | live, MiB | torch native |", "| short | 10,240 | 41.7 % |", "between\n",
                     "(../charts/efficiency.svg)", "Measured on NVIDIA H200, driver 580", "<!-- a comment --> stays\n"):
            self.assertIn(line, text)
        self.assertNotIn("old", text)
        self.assertNotIn(made_up.JOBS[0], text)
        again = pages.filled(text, results, draw.charts(results), "docs/measurements/page.md")
        self.assertEqual(again, text)
        self.assertIn("(docs/charts/efficiency.svg)", pages.filled(PAGE, results, draw.charts(results), "README.md"))

    def test_what_was_not_measured_is_said(self):
        results = Results([])
        text = pages.filled(PAGE, results, draw.charts(results), "README.md")
        self.assertEqual(text.count(pages.MISSING), 3)

    def test_that_nothing_failed_is_a_result(self):
        part = "<!-- table: failures -->\n<!-- end -->"
        self.assertIn("Nothing did.", pages.filled(part, made_up.everything(), {}, "README.md"))
        self.assertIn(pages.MISSING, pages.filled(part, Results([]), {}, "README.md"))
        failed = Results([made_up.line("cell", workload="job", allocator="native", repeat=0, status=1, error="killed")])
        self.assertIn("| job | torch native | 1 | killed |", pages.filled(part, failed, {}, "README.md"))

    def test_every_chart_has_words_for_who_does_not_see_it(self):
        self.assertEqual(set(pages.ABOUT), set(draw.CHARTS))

    def test_a_table_that_does_not_exist_is_an_error(self):
        with self.assertRaises(KeyError):
            pages.filled("<!-- table: wrong -->\n<!-- end -->", Results([]), {}, "README.md")


if __name__ == "__main__":
    unittest.main()
