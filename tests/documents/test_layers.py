"""The layers that ARCHITECTURE.md names are those of the code: a module uses only modules
that the table has before it."""
import re
import unittest

from pages import ROOT, page

# Programs are made of files that nobody else uses.
NOT_MODULES = {"lib", "bin", "mod"}


def layers(folder):
    """The groups of modules of a folder, in the order of the table; those of one group may
    use one another."""
    section = page(ROOT / "ARCHITECTURE.md").text.split("\n## Layers\n")[1].split("\n## ")[0]
    rows = re.findall(rf"^\| `{folder}` \|[^|]*\|([^|]*)\|$", section, re.MULTILINE)
    groups = re.findall(r"\(([^)]*)\)|(`\w+`)", " ".join(rows))
    return [re.findall(r"`(\w+)`", circle or one) for circle, one in groups]


def uses(text, within=""):
    """What a file names of its own crate: what stands behind `crate::`, or behind a folder of it,
    as `crate::process::`."""
    begin = "crate::" + within
    text = re.sub(r"//[^\n]*", "", text)
    # Tests are nobody's layer.
    text = re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", text)[0]
    found = set(re.findall(rf"\b{begin}(\w+)", text))
    for many in re.findall(rf"\b{begin}\{{([^;]*)\}};", text):
        while "{" in many:
            many = re.sub(r"\{[^{}]*\}", "", many)
        found.update(re.findall(r"(?:^|,)\s*(\w+)", many))
    return found


def modules(folder):
    """Each module with its files."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*.rs")):
        name = path.relative_to(ROOT / folder).parts[0].removesuffix(".rs")
        if name not in NOT_MODULES and not path.stem.endswith("tests"):
            found.setdefault(name, []).append(path)
    return found


class Layers(unittest.TestCase):
    def check(self, folder, least, within=""):
        groups, there = layers(folder), modules(folder)
        self.assertEqual(sorted(name for group in groups for name in group), sorted(there),
                         f"ARCHITECTURE.md has every module of {folder} once")
        self.assertGreater(len(groups), least)
        place = {name: at for at, group in enumerate(groups) for name in group}
        for name, paths in there.items():
            for path in paths:
                for other in uses(path.read_text(), within) & set(there):
                    with self.subTest(file=str(path.relative_to(ROOT))):
                        self.assertLessEqual(place[other], place[name], f"{other} is above {name}")

    def test_the_library_has_them(self):
        self.check("src", 10)

    def test_the_shim_has_them(self):
        self.check("shim/src", 15)

    def test_the_rooms_of_the_shim_have_them(self):
        for room, least in {"process": 10, "libraries": 10, "driver": 8, "entry": 4, "engine": 4}.items():
            self.check(f"shim/src/{room}", least, f"{room}::")

    def test_what_a_file_uses_is_seen(self):
        text = """
            use crate::one::Thing; // crate::not
            use crate::{
                two, three::{self, Four}, five::{six::{Seven}, eight},
            };
            fn f() { crate::nine::ten() }
            #[cfg(test)]
            mod tests { use crate::eleven; }
        """
        self.assertEqual(uses(text), {"one", "two", "three", "five", "nine"})
        self.assertEqual(uses(text, "five::"), set())
        self.assertEqual(uses("use crate::five::{six, seven::Eight}; crate::five::nine()", "five::"), {"six", "seven", "nine"})


if __name__ == "__main__":
    unittest.main()
