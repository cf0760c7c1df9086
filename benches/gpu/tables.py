#!/usr/bin/env python3
"""The tables of the benchmarks, as text or as Markdown, from result files.

    python3 benches/gpu/tables.py results.jsonl more.jsonl --markdown
    python3 benches/gpu/tables.py results.jsonl --only efficiency

What was not measured stands as "-", what failed says so; nothing is filled in.
"""
import argparse
import os

import summary
from allocators import ALLOCATORS, FOUR
from workloads import WORKLOADS

MIB = 1 << 20


def called(allocator):
    return ALLOCATORS[allocator].title if allocator in ALLOCATORS else allocator


def mib(value):
    return "-" if value is None else f"{value / MIB:,.0f}"


def percent(value, digits=1):
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def times(value):
    return "-" if value is None else f"{value:.3f}"


def workloads(results):
    """What the programs do."""
    yield ["workload", "steps", "live, MiB", "what it does"]
    for row in results.rows:
        if row.allocator == summary.BASE and row.workload in WORKLOADS:
            known = WORKLOADS[row.workload]
            yield [row.workload, str(known.steps), mib(row.live), known.about]


def memory(rows):
    """What each allocator held."""
    yield ["workload", "allocator", "live, MiB", "physical, MiB", "efficiency", "by own live", "runs"]
    for row in rows:
        if not row.runs:
            yield [row.workload, called(row.allocator), mib(row.live), "-", "failed", "-", runs(row)]
            continue
        by = {"process": " (NVML)"}.get(row.physical_by, "")
        yield [row.workload, called(row.allocator), mib(row.live), mib(row.physical) + by,
               percent(row.efficiency, 2), percent(row.own_efficiency, 2), runs(row)]


def runs(row):
    return f"{row.runs}" + (f", {row.failed} failed" if row.failed else "")


def time(rows):
    """What each allocator cost in time."""
    yield ["workload", "allocator", "step, ms", "ratio", "interval", "pairs", "whole run", "first step",
           "stalls", "same work"]
    for row in rows:
        if row.step_ms is None:
            continue
        interval = f"{times(row.low)} - {times(row.high)}" if row.low else "-"
        yield [row.workload, called(row.allocator), f"{row.step_ms:,.1f}", times(row.ratio), interval,
               str(row.pairs or "-"), times(row.run_ratio), times(row.first_ratio), percent(row.stall_share, 3),
               {True: "yes", False: "NO", None: "-"}[row.same]]


def turns(rows):
    """Steps of which each was set against the same one a moment away."""
    yield ["workload", "allocator", "step, ms", "ratio", "interval", "pairs", "whole run", "first step", "stalls"]
    for row in rows:
        if row.step_ms is not None:
            interval = f"{times(row.low)} - {times(row.high)}" if row.low else "-"
            yield [row.workload, called(row.allocator), f"{row.step_ms:,.1f}", times(row.ratio), interval,
                   str(row.pairs or "-"), times(row.run_ratio), times(row.first_ratio), percent(row.stall_share, 3)]


def failures(results):
    """What ended badly every time it was tried."""
    yield ["workload", "allocator", "tried", "said last"]
    for row in results.rows + results.together:
        if not row.runs:
            said = " ".join(row.error.split()).replace("|", "/")
            yield [row.workload, called(row.allocator), str(row.failed), said[:100]]


def largest(results):
    """Out-of-memory points: the largest batch that fits, and the smallest that does not."""
    jobs = results.largest
    yield ["allocator"] + [f"{workload}, in {mib(room)} MiB" for workload, room in jobs]
    for allocator in ALLOCATORS:
        mine = [points.get(allocator) for points in jobs.values()]
        if any(mine):
            yield [called(allocator)] + [batch(p) for p in mine]


def batch(point):
    if point is None:
        return "-"
    return (f"{point['batch']:g}" if point.get("batch") else "none fits") + (
        f" (not {point['failed']:g})" if point.get("failed") else "")


def efficiency(results, workloads=None):
    """The small table: efficiency and step ratio of who runs every workload."""
    rows = {(r.workload, r.allocator): r for r in results.rows}
    yield ["workload", "live, MiB"] + [called(a) for a in FOUR] + ["step, native", "step, async"]
    known = list(dict.fromkeys(w for w, _ in rows))
    for workload in (workloads or known) if known else []:
        mine = [rows.get((workload, a)) for a in FOUR]
        live = next((r.live for r in mine if r and r.live), None)
        yield [workload, mib(live)] + [share(r) for r in mine] + [slower(results.timed.get((workload, a))) for a in FOUR[2:]]


def share(row):
    """Both sides of it count the same: torch's own bytes, or on the pool everybody's."""
    return "-" if row is None else percent(row.own_efficiency or row.efficiency) if row.runs else "failed"


def slower(row):
    if row is None or row.ratio is None:
        return "-"
    how_sure = f"{row.low:.2f} - {row.high:.2f}" if row.low else f"{row.pairs} pair" + "s" * (row.pairs > 1)
    return f"{row.ratio:.2f}x ({how_sure})"


TABLES = {
    "efficiency": efficiency,
    "memory": lambda results: memory(results.rows),
    "time": lambda results: time(results.rows),
    "together-memory": lambda results: memory(results.together),
    "together-time": lambda results: time(results.together),
    "turns": lambda results: turns(results.turns),
    "largest": largest,
    "failures": failures,
    "workloads": workloads,
}


def render(lines, markdown=False):
    """The lines of a table, its head first; "" where it has a head alone."""
    lines = list(lines)
    if len(lines) < 2:
        return ""
    lines = once(lines)
    if markdown:
        lines = lines[:1] + [["---:" if numbers(c) else "---" for c in zip(*lines[1:])]] + lines[1:]
        return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "".join(" ".join(cell.ljust(w) if n < 2 else cell.rjust(w)
                            for n, (cell, w) in enumerate(zip(line, widths))).rstrip() + "\n" for line in lines)


def numbers(column):
    return all(cell[:1].isdigit() or cell in ("-", "failed") for cell in column)


def once(lines):
    """Says each workload in the first of its lines only."""
    if lines[0][:2] != ["workload", "allocator"]:
        return lines
    return [[""] + line[1:] if n and line[0] == lines[n - 1][0] else line for n, line in enumerate(lines)]


# What a run prints at its end.
FIGURES = [name for name in TABLES if name != "workloads"]


def text(results, names=FIGURES, markdown=False):
    """These tables, one below the other, those with nothing to say left out."""
    made = [render(TABLES[n](results), markdown) for n in names]
    said = "\n".join(t for t in made if t) or "no results\n"
    differ = [f"{r.workload} under {called(r.allocator)}" for r in results.rows + results.together if r.same is False]
    said += "".join(f"\nOTHER WORK than under torch's own allocator: {d}\n" for d in differ)
    builds = sorted({line["library"] for line in results.lines if line.get("library")})
    return said + (f"\nMeasured with {len(builds)} builds of the library: {', '.join(builds)}\n" if len(builds) > 1 else "")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("results", nargs="+", metavar="FILE")
    ap.add_argument("--markdown", action="store_true")
    ap.add_argument("--only", action="append", choices=list(TABLES), help="just this table")
    a = ap.parse_args()
    missing = [path for path in a.results if not os.path.exists(path)]
    if missing:
        ap.error(f"no file {missing[0]}")
    results = summary.Results.read(a.results)
    print(text(results, a.only or FIGURES, a.markdown), end="")
    print(f"\n{summary.source(results.lines) or 'the results do not say on what they were measured'}")


if __name__ == "__main__":
    main()
