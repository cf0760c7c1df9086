#!/usr/bin/env python3
"""Draws the charts of the measurements, as SVG, from result files, and fills in the
tables of the pages that show them.

    python3 docs/charts/draw.py                          # the committed results
    python3 docs/charts/draw.py --out /tmp mine.jsonl    # others, elsewhere
    python3 docs/charts/draw.py --workload detect_varsize

Without files it takes the results of docs/measurements/raw and of its folder h200, not those
of other cards. The same results give
the same files. A chart of which the results hold nothing is not drawn, and one that is
there of earlier results is removed. Pages are left alone where the charts go elsewhere.
"""
import argparse
import glob
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "benches/gpu")]

import comparisons
import live_blocks
import over_time
import pages
from summary import Results

CHARTS = {
    "memory-over-time": over_time.memory,
    "efficiency": comparisons.efficiency,
    "efficiency-alternatives": comparisons.efficiency_alternatives,
    "step-ratio": comparisons.step_ratio,
    "step-ratio-alternatives": comparisons.step_ratio_alternatives,
    "out-of-memory": comparisons.out_of_memory,
    "cost-live-blocks": live_blocks.cost,
}
# What has tables or pictures of the results, from the root of the repository.
PAGES = ["README.md", "docs/performance.md", "docs/measurements/benchmarks-h200.md"]


def committed():
    raw = os.path.join(ROOT, "docs/measurements/raw")
    return sorted(glob.glob(f"{raw}/*.jsonl") + glob.glob(f"{raw}/h200/*.jsonl"))


def charts(results, workload=None):
    """{file name: SVG or None}"""
    return {f"{name}.svg": draw(results, workload) if draw is over_time.memory else draw(results)
            for name, draw in CHARTS.items()}


def written(results, drawn):
    """{page: its text}"""
    texts = {}
    for page in PAGES:
        with open(os.path.join(ROOT, page)) as f:
            texts[page] = pages.filled(f.read(), results, drawn, page)
    return texts


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("results", nargs="*", metavar="FILE")
    ap.add_argument("--out", default=HERE, metavar="FOLDER")
    ap.add_argument("--workload", help="whose memory is drawn over time")
    a = ap.parse_args()
    missing = [path for path in a.results if not os.path.exists(path)]
    if missing:
        ap.error(f"no file {missing[0]}")
    results = Results.read(a.results or committed())
    known = over_time.timelines(results)
    if a.workload and a.workload not in known:
        ap.error(f"no record of memory over time of {a.workload}; there are: {', '.join(known) or 'none'}")
    drawn = charts(results, a.workload)
    for name, svg in drawn.items():
        path = os.path.join(a.out, name)
        if svg is None:
            print(f"{name}: the results hold nothing to draw")
            if os.path.exists(path):
                os.remove(path)
            continue
        with open(path, "w") as f:
            f.write(svg)
        print(path)
    if os.path.realpath(a.out) == HERE:
        for page, text in written(results, drawn).items():
            with open(os.path.join(ROOT, page), "w") as f:
                f.write(text)


if __name__ == "__main__":
    main()
