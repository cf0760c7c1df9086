"""What the documents mention exists: variables, verbs and their options, targets of make,
files, images, lines of the log, figures of measurements."""
import functools
import glob
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import pages
from pages import DOCS, ROOT

# The command that cargo has just built; by hand, the one of `make build`.
COMMAND = os.environ.get("MEMCUDA_COMMAND") or ROOT / "target/release/memcuda"
CODE = ["src", "shim/src", "shim/tests", "sim", "tests", "benches", "include", "python", "packaging", ".ci", "Makefile"]


@functools.cache
def help_of(*verb):
    """What `--help` says of a verb; None where there is no such verb."""
    done = subprocess.run([COMMAND, *verb, "--help"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def verbs_in(text):
    """The verbs that a help text lists."""
    _, _, listed = text.partition("\nCommands:\n")
    return set(re.findall(r"^  ([a-z-]+)", listed, re.MULTILINE)) - {"help"}


@functools.cache
def source(*places):
    """All code there, as one text, with blanks as they are when a string goes over lines."""
    files = [path for place in places for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))]
    keep = {".rs", ".py", ".c", ".h", ".sh", ".cu", ".mk", ""}
    texts = [path.read_text(errors="ignore") for path in files if path.is_file() and path.suffix in keep]
    return re.sub(r"\\\n\s*", "", "\n".join(texts))


def lines_said(code):
    """(level, text) of the lines of the log whose text stands where they are written."""
    text = r'"((?:[^"\\]|\\.)*)"'
    calls = [rf"\blog(?:_once)?!\(\s*(Error|Warn|Info|Debug),\s*{text}", rf"\b(error|warn|info|debug)!\(\s*{text}",
             rf"\bnotice::(warn|info)\(\|\| \{{?\s*(?:format!\(\s*)?{text}"]
    found = [match for call in calls for match in re.findall(call, code)]
    return [({"warn": "warning"}.get(level.lower(), level.lower()), text) for level, text in found]


class Mentions(unittest.TestCase):
    def test_variables(self):
        listed = set(re.findall(r"^\| `(MEMCUDA_\w+)`", (DOCS / "reference/environment.md").read_text(), re.MULTILINE))
        self.assertGreater(len(listed), 15)
        header = set(re.findall(r"MEMCUDA_\w+", (ROOT / "include/memcuda.h").read_text()))
        code = set(re.findall(r"MEMCUDA_\w+", source(*CODE)))
        for page in pages.every():
            # Who works on memcuda meets more of them: those of tests, benches, the simulator.
            known = listed | header | {name for name in code if name.startswith("MEMCUDA_SIM_")}
            if not page.name.startswith("docs/") or page.name.startswith("docs/measurements/"):
                known = known | code
            for name in set(re.findall(r"\bMEMCUDA_[A-Z0-9_]*[A-Z0-9]\b(?!_?\*)", page.text)):
                with self.subTest(page=page.name, variable=name):
                    self.assertTrue(name in known, "there is no such variable")

    def test_split_sizes(self):
        """Torch is told two sizes from which on it splits nothing: pages say those of the code."""
        code = (ROOT / "src/reclaim.rs").read_text()
        pages_mb, segments_mb = (re.search(rf"const {name}: u64 = (\d+);", code)[1] for name in ("PAGES_SPLIT_MB", "SPLIT_MB"))
        differences = (DOCS / "differences.md").read_text().replace("\n", " ")
        self.assertIn(f"blocks of {pages_mb} MiB and more in expandable segments, of {segments_mb} MiB and more in segments", differences)
        recipe = (DOCS / "recipes/torch.md").read_text()
        self.assertIn(f"`max_split_size_mb:{pages_mb}`", recipe)

    def test_verbs_and_options(self):
        verbs = verbs_in(help_of())
        self.assertLessEqual({"run", "compare", "doctor", "keeper"}, verbs)
        count = 0
        for page in pages.every():
            for line in page.code:
                # The simulated device's name is no call of the command.
                for words in re.findall(r"(?:^|[\s(/'\"])memcuda ((?:[a-z-]+)(?![\w.:,=']).*)", line.replace("memcuda simulated GPU", "")):
                    with self.subTest(page=page.name, line=line):
                        count += 1
                        self.usage(words, verbs)
        self.assertGreater(count, 80)

    def usage(self, words, verbs):
        """`VERB [SUBVERB] [OPTIONS] [-- CMD]` is something that the command takes."""
        words = re.split(r"\s--\s|\s[|&;>#]|[|&;)`\"']", f"{words} ")[0].split()
        verb = words[:1]
        hidden = not set(verb) <= verbs
        text = help_of(*verb)
        self.assertIsNotNone(text, f"no verb {verb}")
        if len(words) > 1 and words[1] in verbs_in(text):
            text += help_of(verb[0], words[1])
        # What is behind a program's name is the program's.
        own = words[1:2] if verb == ["run"] else words[1:]
        for option in own:
            if option.startswith("--") and not hidden:
                self.assertRegex(text, rf"(?m){re.escape(option.partition('=')[0])}\b")

    def test_targets_and_files(self):
        makefile = "\n".join((ROOT / name).read_text() for name in ("Makefile", "packaging/install.mk"))
        targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
        for page in pages.every():
            for line in page.code:
                for target in re.findall(r"(?:^|[\s(])make ((?!-)[a-z-]+)", line):
                    with self.subTest(page=page.name, target=target):
                        self.assertIn(target, targets)
                for path in re.findall(r"(?:^|\s)((?:docs|tests|shim|src|examples|packaging|benches|python)/[\w./-]*\w)", line):
                    with self.subTest(page=page.name, path=path):
                        places = [ROOT, page.path.parent]
                        # A module may be named without its ending.
                        there = [glob.glob(str(place / path) + ending) for place in places for ending in ("", ".rs", ".*")]
                        self.assertTrue(any(there), "no such file")

    def test_images(self):
        made = re.findall(r"-t (memcuda:\S+)", (ROOT / "examples/container/Dockerfile").read_text())
        manifests = [(path.name, path.read_text()) for path in (ROOT / "examples").rglob("*.yaml")]
        named = [(name, image) for name, text in [*((page.name, page.text) for page in pages.every()), *manifests]
                 for image in re.findall(r"(?:image: |--from=)(memcuda:\S+)", text)]
        self.assertGreater(len(named), 3)
        self.assertEqual([it for it in named if it[1] not in made], [])

    def test_lines_of_the_log(self):
        code, count, of_levels = source("src", "shim/src"), 0, 0
        said = lines_said(code)
        for page in pages.every():
            for kind, block in page.blocks:
                if kind != "text log":
                    continue
                for line in block.splitlines():
                    level, message = re.match(r"(?:memcuda: (error|warning|info|debug): )?(.*)", line).groups()
                    parts = [part.strip(" ();:,") for part in message.split("...")]
                    for part in filter(lambda part: len(part) > 3, parts):
                        with self.subTest(page=page.name, part=part):
                            count += 1
                            self.assertTrue(part in code, "the code never says that")
                            levels = {there for there, text in said if part in text}
                            if level and levels:
                                of_levels += 1
                                self.assertIn(level, levels, "the code says that at another level")
        self.assertGreater(count, 40)
        self.assertGreater(of_levels, 30)

    def test_figures(self):
        """A table, a list or a paragraph under `<!-- figures of PAGE ... -->` says nothing that those pages do not."""
        count = 0
        for page in pages.every():
            for sources, text in re.findall(r"^<!-- figures of ([^>]*?) -->\n((?:.+\n)*)", page.text, re.MULTILINE):
                there = set(re.findall(r"[\d.,]*\d", "\n".join((page.path.parent / name).read_text() for name in sources.split())))
                # Digits that are a name, code or in a link are no figures.
                text = re.sub(r"\]\([^)]*\)|`[^`]*`|[A-Za-z]\w*-?\d\w*", "", text)
                # One digit alone says nothing.
                said = re.findall(r"(?<![\w.])\d[\d.,]*\d(?!\w)", text)
                with self.subTest(page=page.name, text=text):
                    self.assertTrue(said, "no figure under the mark")
                for figure in said:
                    with self.subTest(page=page.name, figure=figure):
                        count += 1
                        self.assertTrue(figure in there, f"not in {sources}")
        self.assertGreater(count, 40)

    def test_drawings_are_what_their_script_draws(self):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run(["python3", "-B", DOCS / "drawings/draw.py", "--out", out], check=True)
            names = sorted(os.listdir(out))
            self.assertEqual(names, sorted(path.name for path in (DOCS / "drawings").glob("*.svg")))
            for name in names:
                self.assertEqual(pathlib.Path(out, name).read_text(), (DOCS / "drawings" / name).read_text(), f"{name}: make drawings")


if __name__ == "__main__":
    unittest.main()
