"""Small made-up results of every kind, and what a test asks of a picture."""
import math
import os
import sys
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../../../benches/gpu")]
import summary
import svg
from allocators import ALLOCATORS

GIB = 1 << 30
MACHINE = dict(gpu="NVIDIA H200", driver="580.159.04", torch="2.11.0+cu130", date="2026-01-02")
JOBS = ["a_workload_with_a_long_name", "short"]
SVG = "{http://www.w3.org/2000/svg}"


def line(kind, **fields):
    return dict(schema=summary.SCHEMA, kind=kind, machine=MACHINE, **fields)


def cells(job, allocators=ALLOCATORS, repeats=4):
    for n, allocator in enumerate(allocators):
        for repeat in range(repeats):
            yield line("cell", workload=job, allocator=allocator, repeat=repeat, status=0, run="r", warm_from=1,
                       live_torch_bytes=10 * GIB, reserved_bytes=(24 - 2 * n) * GIB,
                       step_ms=[90 + repeat + s + n * (s % 3) for s in range(9)])


def recorded(job, allocator, held, live=True):
    points = [[t / 10, int(8 * GIB * abs(math.sin(t))) if live else None, int(held * GIB * min(1, t / 20))] for t in range(100)]
    return line("cell", workload=job, allocator=allocator, repeat=0, status=0, reserved_bytes=held * GIB, timeline=points)


def points():
    for job in JOBS:
        for n, allocator in enumerate(["native", "expandable", "memcuda-native"]):
            yield line("oom", workload=job, allocator=allocator, room_bytes=16 * GIB, batch=4 + n, failed=5 + n)


def cpu():
    for what, size in (("hit, live", 512), ("hit, live", 1 << 20)):
        for live in (1000, 10_000, 1_000_000):
            ns = 80 + math.log10(live) + size / 1e5
            yield line("cpu", what=what, size=size, threads=1, live=live, median_ns=ns, low_ns=ns * 0.9, high_ns=ns * 1.2)


def everything():
    lines = [c for job in JOBS for c in cells(job)] + list(points()) + list(cpu())
    return summary.Results(lines + [recorded(JOBS[0], a, 24 - 2 * n) for n, a in enumerate(ALLOCATORS)])


def parsed(text):
    return ElementTree.fromstring(text)


def words(picture):
    return [element.text for element in picture.iter(SVG + "text")]


def boxes(picture):
    """(left, top, right, bottom, text) of every text, by the widths of a broad font."""
    for element in picture.iter(SVG + "text"):
        size = float(element.get("font-size"))
        wide = svg.width(element.text, size, element.get("font-weight") is not None)
        x, y = float(element.get("x")), float(element.get("y"))
        left = x - wide * {None: 0, "middle": 0.5, "end": 1}[element.get("text-anchor")]
        yield left, y - size * 0.74, left + wide, y + size * 0.22, element.text


def crowded(picture):
    """What is wrong with where its texts stand: beyond the paper, or over one another."""
    _, _, wide, high = map(float, picture.get("viewBox").split())
    every = list(boxes(picture))
    for left, top, right, bottom, text in every:
        if left < 0 or top < 0 or right > wide or bottom > high:
            yield f"{text!r} leaves the paper: {left:.0f} to {right:.0f}, {top:.0f} to {bottom:.0f}"
    for n, a in enumerate(every):
        for b in every[n + 1:]:
            if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
                yield f"{a[4]!r} and {b[4]!r} stand over one another"
