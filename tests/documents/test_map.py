"""The map of ARCHITECTURE.md has every file of the library and of the preloaded one, in the
table of its folder."""
import re
import unittest

from pages import ROOT, page

# Folders whose files are named one by one, and the heading that they stand under. What is
# below another folder stands in a row of that name.
FOLDERS = {
    "src": "src",
    "src/driver": "src/driver",
    "src/pool": "src/pool",
    "src/pages": "src/pages",
    "src/trace": "src/trace",
    "src/keeper": "src/share",
    "src/keeper/clients": "src/share",
    "src/keeper/redis": "src/share",
    "src/keeper/requests": "src/share",
    "src/keeper/start": "src/share",
    "src/keeper/succession": "src/share",
    "shim/src": "shim/src",
    "shim/src/counters": "shim/src",
    "shim/src/driver": "shim/src",
    "shim/src/engine": "shim/src",
    "shim/src/entry": "shim/src",
    "shim/src/libraries": "shim/src",
    "shim/src/names": "shim/src",
    "shim/src/neighbours": "shim/src",
    "shim/src/pages": "shim/src",
    "shim/src/process": "shim/src",
    "shim/src/record": "shim/src",
    "shim/src/room": "shim/src",
    "shim/src/share": "shim/src",
    "shim/src/torch": "shim/src",
}
PLACES = ["src", "shim", "sim", "tests", "benches", "python", "packaging", "docs", "examples"]


def parts():
    """What stands under each heading of the map, by the first folder in the heading."""
    text = page(ROOT / "ARCHITECTURE.md").text.split("\n## Map\n")[1].split("\n## ")[0]
    found = {}
    for part in text.split("\n### ")[1:]:
        heading, _, below = part.partition("\n")
        found[re.search(r"`([\w/]+)`|$", heading)[1]] = below
    return found


class Map(unittest.TestCase):
    def test_it_has_every_file(self):
        count, there = 0, parts()
        for folder, heading in FOLDERS.items():
            words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", there[heading]))))
            for path in sorted((ROOT / folder).glob("*.rs")):
                if path.stem in {"lib", "mod", "fixture"} or path.stem.endswith("tests"):
                    continue
                with self.subTest(file=str(path.relative_to(ROOT))):
                    count += 1
                    self.assertTrue(path.stem in words, f"not in the map, under {heading}")
        self.assertGreater(count, 180)

    def test_it_has_no_file_that_is_gone(self):
        paths = [path for folder in PLACES for path in (ROOT / folder).rglob("*")]
        there = {path.stem for path in paths} | {*PLACES}
        for heading, text in parts().items():
            for row in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE):
                for name in re.findall(r"`([\w/.*-]+)`", row):
                    last = name.rstrip("/").split("/")[-1].split(".")[0]
                    with self.subTest(heading=heading, name=name):
                        self.assertTrue(last in there, "there is no such file")


if __name__ == "__main__":
    unittest.main()
