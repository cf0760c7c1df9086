"""CONTRIBUTING.md's rule for files: one idea each, and never over 400 lines."""
import unittest

from pages import ROOT

FOLDERS = ["src", "shim", "sim", "tests", "benches", "python", "examples", "packaging", "docs", "include"]
ENDINGS = {".rs", ".py", ".c", ".h", ".cu", ".cuh", ".sh", ".js", ".css", ".html", ".lua", ".mk"}


class Files(unittest.TestCase):
    def test_none_is_over_400_lines(self):
        files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in ENDINGS]
        self.assertGreater(len(files), 500)
        long = {str(path.relative_to(ROOT)): lines for path in files
                if (lines := path.read_text().count("\n")) > 400}
        self.assertEqual(long, {}, "split these by what they are about")


if __name__ == "__main__":
    unittest.main()
