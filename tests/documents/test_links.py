"""Every link leads somewhere, to a heading that is there; every page is in the book; every
picture says what it shows."""
import re
import unittest

import pages
from pages import DOCS, ROOT


class Links(unittest.TestCase):
    def test_they_lead_somewhere(self):
        count = 0
        for page in pages.every():
            for link in page.links:
                count += 1
                with self.subTest(page=page.name, link=link):
                    place, _, anchor = link.partition("#")
                    target = (page.path.parent / place).resolve() if place else page.path
                    self.assertTrue(target.exists(), "no such file")
                    self.assertTrue(target.is_relative_to(ROOT), "outside of the repository")
                    if anchor and target.suffix == ".md":
                        self.assertIn(anchor, pages.page(target).anchors, "no such heading")
        self.assertGreater(count, 150)

    def test_every_page_is_in_the_book_once(self):
        listed = re.findall(r"\]\(([^)]+)\)", (DOCS / "SUMMARY.md").read_text())
        there = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.name != "SUMMARY.md"]
        self.assertEqual(sorted(listed), sorted(there), "docs/SUMMARY.md lists every page of docs once")

    def test_every_picture_says_what_it_shows(self):
        shown = [(page.name, *found) for page in pages.every() for found in re.findall(r"!\[([^]]*)\]\(([^)]+)\)", page.prose)]
        self.assertGreater(len(shown), 4)
        for name, words, file in shown:
            self.assertGreater(len(words), 15, f"{name}: {file}")
        for picture in DOCS.rglob("*.svg"):
            text = picture.read_text()
            for needed in ("<title", "<desc", 'role="img"', "prefers-color-scheme:dark"):
                self.assertTrue(needed in text, f"{picture.relative_to(ROOT)}: no {needed}")

    def test_anchors_are_those_of_headings(self):
        page = pages.Page(DOCS / "README.md")
        page.prose = "# A `b`: [c](d.md), e!\n## Twice\n## Twice\n"
        self.assertEqual(page.anchors, {"a-b-c-e", "twice", "twice-1"})


if __name__ == "__main__":
    unittest.main()
