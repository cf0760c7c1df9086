#!/usr/bin/env python3
"""The drawings of docs/how-it-works.md, as SVG that follows the reader's light or dark
scheme. Nothing in them is measured: what is, is a chart (docs/charts).

    python3 docs/drawings/draw.py            # all of them, into this folder
    python3 docs/drawings/draw.py --out DIR
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "charts"))

import svg
from svg import MARGIN, SMALL, TEXT, WIDE

# What the colours mean: two programs or tensors, what is new, what lies idle.
ONE, TWO, NEW, IDLE = "f-memcuda-native", "f-expandable", "f-memcuda-async", "track"


class Drawing(svg.Picture):
    """A picture of boxes and arrows; `end` adds no source, for nothing was measured."""

    def box(self, x, y, wide, high, label="", kind=IDLE, ink=None):
        self.rect(x, y, wide, high, kind, round=3)
        ink = ink or ("ink" if kind == IDLE else "paper")
        if label:
            assert svg.width(label, SMALL) <= wide, f"no room for {label!r}"
            self.text(x + wide / 2, y + high / 2 + SMALL * 0.36, label, SMALL, ink, anchor="middle")

    def arrow(self, x, y, to_x, to_y):
        """Straight, downwards or to the right."""
        down = x == to_x
        self.line([(x, y), (to_x, to_y)], "axis")
        back = 5
        tips = [(to_x - 3.5, to_y - back), (to_x + 3.5, to_y - back)] if down else [(to_x - back, to_y - 3.5), (to_x - back, to_y + 3.5)]
        self.line([tips[0], (to_x, to_y), tips[1]], "axis")

    def label(self, text, bold=False, kind="ink"):
        self.y += TEXT * 1.4
        self.text(MARGIN, self.y - 3, text, TEXT, kind, bold=bold)

    def row(self, cells, high=26, x=MARGIN, unit=None):
        """Boxes side by side: (width in units, label, kind)."""
        unit = unit or (WIDE - 2 * MARGIN) / sum(wide for wide, _, _ in cells)
        for wide, label, kind in cells:
            self.box(x + 1, self.y, wide * unit - 2, high, label, kind)
            x += wide * unit
        self.y += high + 4
        return unit

    def end(self):
        # A chart ends with its source: that line, and its room, are left out.
        self.y -= 20
        whole = super().end("nothing")
        at = whole.rindex("<text")
        return whole[:at] + whole[whole.index("</text>", at) + len("</text>\n"):]


def holes():
    d = Drawing("Free memory that nobody can use", "24 units of memory; a program asks for 6 more.",
                "Twenty-four units of memory. Between four tensors lie holes of three, two and four units. Without the pool the "
                "next tensor of six units fits in none of them, so six new units are taken from the device. With the pool "
                "the tensor is made of the first hole and part of the last, and nothing new is taken.")
    used = [(4, "tensor", ONE), (3, "hole", IDLE), (5, "tensor", ONE), (2, "hole", IDLE), (3, "tensor", ONE),
            (4, "hole", IDLE), (3, "tensor", ONE)]
    d.label("Without the pool: no hole is long enough, so more is taken", bold=True)
    unit = d.row(used, unit=(WIDE - 2 * MARGIN) / 30)
    d.box(MARGIN + 24 * unit + 1, d.y - 30, 6 * unit - 2, 26, "6 more", TWO)
    d.y += 6
    d.label("With it: two holes, one tensor", bold=True)
    d.row([(4, "tensor", ONE), (3, "new", NEW), (5, "tensor", ONE), (2, "hole", IDLE), (3, "tensor", ONE), (3, "new", NEW),
           (1, "", IDLE), (3, "tensor", ONE)], unit=unit)
    return d


def stitches():
    d = Drawing("Chunks, stitches, blocks", "Physical memory stays where it is; addresses are put together anew.",
                "Four chunks of physical memory, A to D, of which parts are used. Stitch one is a range of addresses over chunks A "
                "and B, stitch two one over B and D. A block is a window of a stitch: block x covers the end of A and the beginning of B, block y of stitch two "
                "the end of B and the beginning of D.")
    unit = (WIDE - 2 * MARGIN) / 16

    def chunks():
        for at, name in enumerate("ABCD"):
            d.text(MARGIN + (4 * at + 2) * unit, d.y + 10, f"chunk {name}", SMALL, "soft", anchor="middle")
        d.y += 16
        d.row([(1, "", IDLE), (3, "x", ONE), (2, "x", ONE), (2, "y", NEW), (4, "z", TWO), (3, "y", NEW), (1, "", IDLE)],
              unit=unit)

    d.label("What the program sees: blocks, each in one piece", bold=True)
    d.row([(5, "block x", ONE), (5, "block y", NEW), (4, "block z", TWO)], unit=unit)
    d.label("Stitches: ranges of addresses over whole chunks", bold=True)
    d.row([(4, "stitch 1: A", IDLE), (4, "then B", IDLE)], unit=unit)
    d.row([(4, "stitch 2: B", IDLE), (4, "then D", IDLE)], unit=unit, x=MARGIN + 8 * unit)
    d.label("Physical memory: B stands in both stitches", bold=True)
    chunks()
    d.paragraph("A block's bytes are used once, through whatever address. Stitches stay when blocks go: the next block of a size "
                "that was there before costs no driver call.", SMALL)
    return d


def route():
    d = Drawing("Where memcuda stands", "Nothing in the program changes; the driver stays NVIDIA's.",
                "A program calls cudaMalloc of the CUDA runtime. The runtime asks for driver functions by dlsym and "
                "cuGetProcAddress, and gets those of libmemcuda.so, which serves memory from its pool and calls the driver for "
                "physical handles. Launches, waits and nearly all copies go to the driver directly.")
    wide, high, x = 300, 34, MARGIN
    rows = [("your program: torch, JAX, CuPy, C", IDLE, "cudaMalloc, cudaMallocAsync"), ("NVIDIA's runtime (libcudart)", IDLE,
            "dlsym, cuGetProcAddress"), ("libmemcuda.so: the pool", ONE, "cuMemCreate, cuMemMap"), ("NVIDIA's driver (libcuda.so.1)", IDLE, "")]
    tops = []
    for label, kind, calls in rows:
        tops.append(d.y)
        d.box(x, d.y, wide, high, label, kind)
        d.y += high
        if calls:
            d.arrow(x + 40, d.y, x + 40, d.y + 26)
            d.text(x + 50, d.y + 17, calls, SMALL, "soft")
            d.y += 26
    # Past the pool.
    right = x + wide + 24
    d.line([(x + wide, tops[1] + high / 2), (right, tops[1] + high / 2), (right, tops[3] + high / 2), (x + wide, tops[3] + high / 2)], "axis")
    for at, line in enumerate(["launches, waits,", "nearly all copies:", "not touched"]):
        d.text(right + 8, tops[2] + 4 + at * SMALL * 1.3, line, SMALL, "soft")
    d.y += 4
    return d


def names():
    d = Drawing("One name, one memory", "Two processes hold the same bytes; the device has them once.",
                "Process one maps memory called weights, process two maps the same memory. The keeper, a small process without "
                "CUDA, holds a descriptor of it and knows who has it open.")
    third = (WIDE - 2 * MARGIN) / 3
    top = d.y
    for at, (label, kind) in enumerate([("process 1", ONE), ("memcuda keeper", IDLE), ("process 2", TWO)]):
        d.box(MARGIN + at * third + 6, top, third - 12, 34, label, kind)
        d.arrow(MARGIN + (at + 0.5) * third, top + 34, MARGIN + (at + 0.5) * third, top + 74)
    for at, line in [(0, "maps it"), (1, "holds it"), (2, "maps it")]:
        d.text(MARGIN + (at + 0.5) * third + 8, top + 58, line, SMALL, "soft")
    d.y = top + 74
    d.box(MARGIN, d.y, WIDE - 2 * MARGIN, 34, "device memory \"weights\", 2 GiB", NEW)
    d.y += 44
    d.paragraph("Who dies lets go. A name without holders is freed, unless it was made to stay. The keeper may be killed: its "
                "standby has duplicates, and what is mapped stays mapped.", SMALL)
    return d


DRAWINGS = {"holes": holes, "stitches": stitches, "route": route, "names": names}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=HERE, metavar="DIR")
    out = parser.parse_args().out
    for name, draw in DRAWINGS.items():
        with open(os.path.join(out, f"{name}.svg"), "w") as file:
            file.write(draw().end())


if __name__ == "__main__":
    main()
