#!/usr/bin/env python3
"""The licences of what is linked into the command and the library, as one file: the crates
that cargo names, each with its own text, that of several once. Never fetches anything
but what cargo needs for a build.

    packaging/notices.py FILE CARGO...
"""
import json
import pathlib
import re
import subprocess
import sys

OURS = ("memcuda", "memcuda-shim")
TEXT = re.compile(r"(un)?licen[cs]e|copyright|notice", re.IGNORECASE)
HEAD = """\
memcuda itself is licensed MIT or Apache-2.0 (LICENSE-MIT, LICENSE-APACHE). Its command and its library
contain what follows, and parts of Rust's standard library (MIT or Apache-2.0, The Rust Project Developers).
"""


def main():
    file, cargo = pathlib.Path(sys.argv[1]), sys.argv[2:]
    texts = {}
    for crate in sorted(linked(cargo), key=lambda it: (it["name"], it["version"])):
        name = f"{crate['name']} {crate['version']} ({crate['license']}), {crate['repository']}"
        for text in notices(crate):
            texts.setdefault(text, []).append(name)
    rule = "\n" + "-" * 78 + "\n"
    parts = [HEAD] + ["\n".join(names) + "\n\n" + text + "\n" for text, names in texts.items()]
    aside = file.with_suffix(".new")
    aside.write_text(rule.join(parts))
    aside.rename(file)


def linked(cargo):
    """The crates in our two files: not those of tests, build scripts and macros, nor of other systems."""
    def ask(*words):
        return subprocess.run([*cargo, *words], check=True, stdout=subprocess.PIPE, text=True).stdout
    tree = ask("tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}",
               *(word for it in OURS for word in ("--package", it)))
    names = {tuple(line.split()[:2]) for line in tree.splitlines()}
    host = re.search(r"^host: (.+)$", ask("--version", "--verbose"), re.MULTILINE)[1]
    crates = json.loads(ask("metadata", "--locked", "--format-version", "1", "--filter-platform", host))["packages"]
    return [it for it in crates if it["source"] and (it["name"], f"v{it['version']}") in names]


def notices(crate):
    """The texts in a crate, also of what it brings from others; where one may choose MIT, that one."""
    folder = pathlib.Path(crate["manifest_path"]).parent
    paths = sorted(it for it in folder.rglob("*") if it.is_file() and TEXT.match(it.name))
    if "MIT" in crate["license"] and "AND" not in crate["license"]:
        paths = [it for it in paths if "MIT" in it.name] or paths
    if not paths:
        sys.exit(f"packaging/notices.py: {folder} has no licence")
    return [it.read_text().strip() for it in paths]


if __name__ == "__main__":
    main()
