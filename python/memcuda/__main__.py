"""`python -m memcuda VERB ...` is `memcuda VERB ...`, where the command is not on
PATH. A program that ends in .py is run by this Python:

    python -m memcuda run train.py
    python -m memcuda compare --repeat 5 -- train.py
"""
from __future__ import annotations

import os
import signal
import sys

from .errors import Absent
from .installed import command


# The verbs that run a program, and which options of each have a value as the next word.
_PROGRAMS = {"run": ("--trace",), "compare": ("--repeat", "--profiles"), "doctor": ()}


def with_python(words: list[str]) -> list[str]:
    """The words of the command line, this Python put in front of a script. What
    stands behind the program is the program's own, `--` too."""
    valued = _PROGRAMS.get(words[0]) if words else None
    if valued is None:
        return words
    at = 1
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 2 if word in valued else 1
        if word == "--":
            break
    script = at < len(words) and words[at].endswith(".py")
    return words[:at] + [sys.executable] * script + words[at:]


def main() -> None:
    """Becomes the command."""
    try:
        path = command()
    except Absent as absent:
        sys.exit(f"memcuda: {absent}")
    # Which Python ignores, and the program would.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(path, [path, *with_python(sys.argv[1:])])


if __name__ == "__main__":
    main()
