#!/usr/bin/env python3
"""Finishes the book that mdbook has made of docs/: what its pages link to outside of
docs is put beside it, Markdown and folders as plain pages, all else as it is. Then
every link of every page must lead somewhere, its anchor too.

    packaging/book.py target/book     # mdbook's output is in target/book/docs
"""
import html
import pathlib
import re
import shutil
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLAIN = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title></head>
<body><pre style="white-space: pre-wrap">{text}</pre></body></html>
"""
FRONT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=docs/index.html">
<title>memcuda</title></head><body><a href="docs/index.html">memcuda</a></body></html>
"""


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and not re.match(r"[a-z]+:|//", value):
                self.links.add(value)


def add(book, target):
    """What lies at this place of the repository, at the same place of the book."""
    within = target.relative_to(book)
    source = ROOT / within
    if target.suffix == ".html":
        source = source.with_suffix(".md")
    if not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        target.mkdir(exist_ok=True)
        text = "\n".join(sorted(path.name for path in source.iterdir()))
        (target / "index.html").write_text(PLAIN.format(title=within, text=html.escape(text)))
    elif source.suffix == ".md":
        target.write_text(PLAIN.format(title=source.name, text=html.escape(source.read_text())))
    else:
        shutil.copyfile(source, target)


def main():
    book = pathlib.Path(sys.argv[1]).resolve()
    # The page for what is not found is served from anywhere; the one for printing has
    # all the others' links once more.
    pages = {path: Page(path) for path in (book / "docs").rglob("*.html") if path.name not in ("404.html", "print.html")}
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            place, _, anchor = link.partition("#")
            target = pathlib.Path(path.parent, unquote(place)).resolve() if place else path
            if not target.exists() and target.is_relative_to(book):
                add(book, target)
            if not target.exists():
                broken.append(f"{path.relative_to(book)}: {link} is not there")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                broken.append(f"{path.relative_to(book)}: {link} has no such heading")
    (book / "index.html").write_text(FRONT)
    print("\n".join(broken + [f"{len(pages)} pages, {len(broken)} broken links: {book / 'index.html'}"]))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
