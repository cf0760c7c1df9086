"""The results of the benches: JSON, a line each, in files of any number of runs. Here they
are told apart, merged and looked up; nothing is measured or printed.
"""
import hashlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/gpu"))
import json_lines
import shim_run

SCHEMA = "memcuda.bench/1"


def key(cell):
    """What makes two lines the same measurement: of several the last good one counts."""
    return (cell.get("kind"), cell.get("what") or cell.get("workload"), cell.get("allocator"), cell.get("repeat"))


def library():
    """The first 12 digits of the sha256 of the library that is measured."""
    with open(shim_run.LIBRARY, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:12]


def usable(cell):
    """A smoke test of the scripts is no result, whatever it says."""
    return cell.get("schema") == SCHEMA and "smoke" not in cell


def merge(files, kind="cell"):
    """(good, bad, natives): the last good line of each key; of the keys that have none the last
    bad one; and torch's own good lines by (workload, repeat, run), since a step time is only
    compared with torch's of the same run of the bench: another may have had another machine."""
    good, bad, natives = {}, {}, {}
    for cell in json_lines.read(files):
        if not usable(cell) or cell.get("kind") != kind:
            continue
        (bad if cell.get("status") else good)[key(cell)] = cell
        if cell.get("allocator") == "native" and not cell.get("status"):
            natives[cell.get("what") or cell["workload"], cell["repeat"], cell.get("run")] = cell
    return good, {k: cell for k, cell in bad.items() if k not in good}, natives


def append(path, cell):
    json_lines.append(path, dict(schema=SCHEMA, **cell))


def by_repeat(cells):
    """The cells as {(workload, allocator): {repeat: cell}}."""
    table = {}
    for cell in cells:
        name = cell.get("what") or cell["workload"]
        table.setdefault((name, cell["allocator"]), {})[cell["repeat"]] = cell
    return table
