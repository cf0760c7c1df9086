"""Results kept as JSON, a line each, by runs that may be killed at any moment.
"""
import json
import os
import sys


def append(path, cell):
    """Adds a line; what a killed run left of its last one is ended first."""
    with open(path, "ab+") as f:
        f.seek(0, os.SEEK_END)
        if f.tell():
            f.seek(-1, os.SEEK_END)
            if f.read(1) != b"\n":
                f.write(b"\n")
        f.write(json.dumps(cell).encode() + b"\n")


def read(paths):
    """Every line of these files, each file once; one that is missing has none."""
    cells = []
    for path in dict.fromkeys(paths):
        if not os.path.exists(path):
            continue
        with open(path) as f:
            for number, line in enumerate(f, 1):
                try:
                    cells.append(json.loads(line))
                except json.JSONDecodeError:
                    print(f"{path}:{number}: not a whole JSON line, left out", file=sys.stderr)
    return cells
