"""The charts of workloads and allocators: efficiency, step ratio, out-of-memory point.

Each takes the results and gives the SVG, or None where they hold nothing of that kind.
"""
from dataclasses import dataclass

import summary
from allocators import ALLOCATORS, FOUR
from grid import Grid
from scales import size, ticks
from svg import Picture
from tables import called

# The scale of ratios holds the first range at least and the second at most: one that is
# far away would press all others together.
NEAR, FAR = (0.95, 1.05), (0.8, 1.3)


@dataclass
class View:
    """Which cells stand where: a workload a row, or, turned, a column."""
    at: dict
    jobs: list
    shown: list
    turned: bool

    def grid(self, picture):
        names = [called(a).replace("_", " ") for a in self.shown]
        return Grid(picture, *((names, self.jobs) if self.turned else (self.jobs, names)))

    def cells(self):
        """((row, column), workload, allocator, what is known of it or None)"""
        for n, job in enumerate(self.jobs):
            for k, allocator in enumerate(self.shown):
                yield (k, n) if self.turned else (n, k), job, allocator, self.at.get((job, allocator))

    def told(self, said):
        """All of it in words."""
        return "; ".join(f"{job}, {called(allocator)}: {said(known)}" for _, job, allocator, known in self.cells())


def everywhere(rows, has, shown):
    """Every workload of which somebody has that figure, with those who run everywhere."""
    jobs = dict.fromkeys(r.workload for r in rows if has(r))
    return jobs and View({(r.workload, r.allocator): r for r in rows}, list(jobs), shown, turned=False)


def alternatives(rows, has, besides=()):
    """The workloads that more allocators ran, with all of them."""
    more = {r.workload for r in rows if r.allocator not in FOUR}
    kept = [r for r in rows if r.workload in more and r.allocator not in besides]
    view = everywhere(kept, has, [a for a in ALLOCATORS if any(r.allocator == a for r in kept)])
    if view:
        view.turned = True
    return view


def why_not(row):
    return "not run" if row is None else "failed" if not row.runs else "no figure"


def efficiency(results):
    return shares(results, everywhere(results.rows + results.together, lambda r: r.efficiency, FOUR))


def efficiency_alternatives(results):
    return shares(results, alternatives(results.rows, lambda r: r.efficiency))


def shares(results, view):
    if not view:
        return None
    below = "Peak of what the program needs / peak of what is held for it. A full bar is 100 %."

    def said(row):
        return f"{100 * row.efficiency:.1f} %" if row and row.efficiency else why_not(row)

    picture = Picture("Memory efficiency of each allocator", below, f"{below} {view.told(said)}.")
    best = {job: max(round(r.efficiency or 0, 3) for (w, _), r in view.at.items() if w == job) for job in view.jobs}
    grid = view.grid(picture)
    for cell, job, allocator, row in view.cells():
        if row and row.efficiency:
            grid.bar(cell, row.efficiency, said(row), allocator, round(row.efficiency, 3) == best[job])
        else:
            grid.missing(cell, said(row))
    return picture.end(summary.source(results.of("cell") + results.of("concurrency")))


def step_ratio(results):
    return ratios(results, everywhere(list(results.timed.values()) + results.together, lambda r: r.ratio, FOUR[1:]))


def step_ratio_alternatives(results):
    return ratios(results, alternatives(results.rows, lambda r: r.ratio, besides=[summary.BASE]))


def ratios(results, view):
    if not view:
        return None
    below = ("Step time / that of torch's own allocator, with 95 % interval. Left of the mark at 1 is faster. "
             "No bar: too few runs for an interval.")

    def said(row):
        return f"{row.ratio:.3f}" if row and row.ratio else why_not(row)

    def told(row):
        return said(row) + (f" ({row.low:.3f} to {row.high:.3f})" if row and row.low else "")

    picture = Picture("Step time against torch native", below, f"{below} {view.told(told)}.")
    scale = reach([v for *_, r in view.cells() if r and r.ratio for v in (r.ratio, r.low, r.high) if v])
    grid = view.grid(picture)
    for cell, _, allocator, row in view.cells():
        if row and row.ratio:
            grid.whisker(cell, scale, row.ratio, row.low, row.high, said(row), allocator)
        else:
            grid.missing(cell, said(row))
    grid.scale(scale, ticks(*scale, 3))
    return picture.end(summary.source([line for kind in ("cell", "turns", "concurrency") for line in results.of(kind)]))


def reach(values):
    """The scale that holds these, but nothing beyond FAR."""
    return (min(NEAR[0], max(FAR[0], min(values) - 0.005)), max(NEAR[1], min(FAR[1], max(values) + 0.005)))


def out_of_memory(results):
    if not results.largest:
        return None
    rooms = dict.fromkeys(room for _, room in results.largest)
    jobs = {workload if len(rooms) == 1 else f"{workload} in {size(room)}": points
            for (workload, room), points in results.largest.items()}
    points = {(job, allocator): p for job, those in jobs.items() for allocator, p in those.items()}
    shown = [a for a in ALLOCATORS if a in FOUR or any(allocator == a for _, allocator in points)]
    view = View(points, list(jobs), shown, turned=True)
    left = " or ".join(map(size, rooms))
    below = f"Largest batch that ran while another process left {left} of the card. Bars of a column compare."

    def said(point):
        return "not run" if point is None else f"{point['batch']:g}" if point.get("batch") else "none fits"

    picture = Picture("Largest batch before memory runs out", below, f"{below} {view.told(said)}.")
    most = {job: max(p["batch"] or 0 for p in those.values()) for job, those in jobs.items()}
    grid = view.grid(picture)
    for cell, job, allocator, point in view.cells():
        if point and point.get("batch"):
            grid.bar(cell, point["batch"] / most[job], said(point), allocator, point["batch"] == most[job])
        else:
            grid.missing(cell, said(point))
    return picture.end(summary.source(results.of("oom")))
