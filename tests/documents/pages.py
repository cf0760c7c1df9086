"""The documents of the repository, as the tests of this folder read them: text, headings
as anchors, links, code."""
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
# What users read first, beside all of docs.
OTHERS = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "python/README.md", "sim/README.md", "tests/traces/README.md"]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Page:
    """One document."""

    def __init__(self, path):
        self.path, self.text = path, path.read_text()
        self.name = str(path.relative_to(ROOT))
        self.prose = FENCE.sub("", self.text)

    @functools.cached_property
    def anchors(self):
        """What a link may have behind its `#`: headings as forges and mdbook name them."""
        seen, found = {}, set()
        for heading in re.findall(r"^#+ (.+?)\s*$", self.prose, re.MULTILINE):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
            anchor = re.sub(r"[^\w -]", "", plain.lower()).replace(" ", "-")
            times = seen[anchor] = seen.get(anchor, -1) + 1
            found.add(f"{anchor}-{times}" if times else anchor)
        return found

    @property
    def links(self):
        """Those within the repository."""
        links = re.findall(r"\]\(([^()\s]+)\)", self.prose)
        return [link for link in links if not re.match(r"[a-z]+:", link)]

    @property
    def blocks(self):
        """(what the fence says, the text)"""
        return FENCE.findall(self.text)

    @property
    def code(self):
        """Lines of code: spans, boxes, indented ones. Not boxes of text: what programs say."""
        for kind, block in self.blocks:
            if not kind.startswith("text"):
                yield from block.replace("\\\n", " ").splitlines()
        yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", self.prose)
        yield from re.findall(r"^    (\S.*)$", self.prose, re.MULTILINE)


@functools.cache
def page(path):
    return Page(path)


def every():
    """All pages, the summary of the book aside."""
    paths = [path for path in sorted(DOCS.rglob("*.md")) if path.name != "SUMMARY.md"]
    return [page(path) for path in paths + [ROOT / other for other in OTHERS]]
