"""The table of the matrix: a row for each workload and allocator, medians over the repeats.
Reads merged results; runs nothing.
"""
import statistics

import ratios
from allocators import ALLOCATORS
from results import by_repeat, merge
from workloads import WORKLOADS

COLUMNS = ["workload", "allocator", "live MiB", "physical MiB", "efficiency", "by own live", "step ratio", "95 % interval",
           "rounds", "whole run", "first step", "stalls > 1 ms", "step ms"]


def middle(cells, field):
    """The median of a field over the cells that have it and more than zero of it, or None."""
    values = [c[field] for c in cells if c.get(field)]
    return statistics.median(values) if values else None


def physical_bytes(allocator, cells):
    """The pool's own peak; torch's reserved bytes; NVML's figure of the process where torch is told nothing."""
    if ALLOCATORS[allocator].shim:
        return middle(cells, "physical_bytes")
    return middle(cells, "reserved_bytes") or middle(cells, "process_bytes")


def run_ms(cell):
    return sum(cell["step_ms"])


def stall_share(cells):
    """Share of the warm time in requests longer than 1 ms: median over the cells that say."""
    shares = [c["stall_ns"] / 1e9 / c["warm_s"] for c in cells if c.get("stall_ns") is not None and c.get("warm_s")]
    return statistics.median(shares) if shares else None


def row(workload, allocator, cells, natives, native_cells):
    """One row as numbers. `cells` are {repeat: cell}, `natives` torch's runs by (repeat, run):
    a run is compared with torch's of the same round on the same machine only."""
    every = list(cells.values())
    timed = {r: c for r, c in cells.items() if r}
    beside = {r: natives[r, c.get("run")] for r, c in timed.items() if (r, c.get("run")) in natives}
    live, physical = middle(native_cells, "live_torch_bytes"), physical_bytes(allocator, every)
    own = middle(every, "live_bytes") if allocator in ("memcuda-async", "memcuda-direct") else None
    return dict(
        workload=workload, allocator=allocator, live=live, physical=physical,
        efficiency=live / physical if live and physical else None,
        own_efficiency=own / physical if own and physical else None,
        ratio=ratios.interval([ratios.of_steps(beside[r], timed[r]) for r in sorted(beside)]), rounds=len(beside),
        run=ratios.of_rounds(beside, timed, run_ms), first=ratios.of_rounds(beside, timed, lambda c: c["first_step_ms"]),
        stall=stall_share(list(timed.values()) or every),
        step=statistics.median(statistics.median(c["step_ms"][c["warm_from"]:]) for c in (timed or cells).values()),
        checks={c["check"] for c in every})


def rows(files):
    """Every row that the files have, in the order of the tables of workloads and allocators."""
    good, _, all_natives = merge(files)
    table = by_repeat(good.values())
    for workload in WORKLOADS:
        native_cells = list(table.get((workload, "native"), {}).values())
        natives = {(r, run): c for (w, r, run), c in all_natives.items() if w == workload}
        for allocator in ALLOCATORS:
            cells = table.get((workload, allocator))
            if cells:
                made = row(workload, allocator, cells, natives, native_cells)
                expected = {c["check"] for c in native_cells}
                yield dict(made, other_work=bool(expected) and made["checks"] != expected)


def shown(row):
    """A row as text."""
    def text(value, form):
        return "-" if value is None else format(value, form)
    mib = lambda value: text(value and value / 2**20, ",.0f")
    ratio, low, high = row["ratio"] or (None, None, None)
    return [row["workload"], row["allocator"] + (" (OTHER WORK THAN NATIVE)" if row["other_work"] else ""),
            mib(row["live"]), mib(row["physical"]), text(row["efficiency"], ".1%"), text(row["own_efficiency"], ".1%"),
            text(ratio, ".3f"), f"{low:.3f} - {high:.3f}" if low is not None else "-", str(row["rounds"]),
            text(row["run"], ".3f"), text(row["first"], ".2f"), text(row["stall"], ".3%"), text(row["step"], ".1f")]


def aligned(lines, markdown):
    """Lines of cells as a table: text to the left in the first two columns, numbers to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for number, line in enumerate(lines):
        cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        yield f"| {' | '.join(cells)} |" if markdown else "  ".join(cells)
        if markdown and not number:
            yield "|" + "|".join("-" * (w + 1) + ("-" if i < 2 else ":") for i, w in enumerate(widths)) + "|"


def show(files, markdown=False):
    lines = [COLUMNS] + [shown(r) for r in rows(files)]
    print(*aligned(lines, markdown), sep="\n")
    good, bad, _ = merge(files)
    for (_, workload, allocator, repeat), cell in sorted(bad.items(), key=str):
        print(f"FAILED: {workload} {allocator} #{repeat}: {cell.get('error', '?')}")
    builds = {c["library"] for c in good.values() if c.get("library")}
    if len(builds) > 1:
        print(f"measured with {len(builds)} builds of the library: {', '.join(sorted(builds))}")
