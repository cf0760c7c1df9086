"""`python -m memcuda VERB ...` is `memcuda VERB ...`, where the command is not on
PATH. A program that ends in .py is run by this Python:

    python -m memcuda run train.py
    python -m memcuda compare --repeat 5 -- train.py
"""
from __future__ import annotations

import os
import sys

from .errors import Absent
from .installed import command


def with_python(words: list[str]) -> list[str]:
    """The words of the command line, this Python put in front of a script."""
    program = words.index("--") + 1 if "--" in words else 1 if words[:1] == ["run"] else len(words)
    script = words[program:program + 1]
    python = [sys.executable] if script and script[0].endswith(".py") else []
    return words[:program] + python + words[program:]


def main() -> None:
    """Becomes the command."""
    try:
        path = command()
    except Absent as absent:
        sys.exit(f"memcuda: {absent}")
    os.execv(path, [path, *with_python(sys.argv[1:])])


if __name__ == "__main__":
    main()
