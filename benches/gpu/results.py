"""What the runners of the benches need of result files: what is there already, and adding
a line. What the lines mean together is summary.py's.
"""
import hashlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/gpu"))
import json_lines
import shim_run
import summary

SCHEMA = summary.SCHEMA
POINTS = 400            # of a timeline, at most: a line stays small


def library():
    """The first 12 digits of the sha256 of the library that is measured."""
    with open(shim_run.LIBRARY, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:12]


def good(files, kind):
    """The last good line of each (workload or what, allocator, repeat) in these files."""
    return {summary.key(line): line for line in summary.Results.read(files).of(kind) if not line.get("status")}


def append(path, line):
    json_lines.append(path, dict(schema=SCHEMA, **line))


def thinned(points):
    """A timeline of [seconds, live, physical] with few points: of each stretch the one with
    the highest physical bytes."""
    step = max(1, -(-len(points) // POINTS))
    return [max(points[i:i + step], key=lambda p: (p[2] or 0, p[1] or 0)) for i in range(0, len(points), step)]
