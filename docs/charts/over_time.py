"""Memory over time: what one workload needs, and what each allocator holds for it."""
import summary
from allocators import ALLOCATORS, FOUR
from scales import Linear, apart, gib, ticks
from svg import MARGIN, SMALL, TEXT, WIDE, Picture, series, width
from tables import called
from workloads import WORKLOADS

LEFT, HIGH = 42, 290
# From the end of the plot to the text of a label.
THREAD = 36
GIB = 1 << 30
# On it each of the four holds something else.
SHOWN = "batch_neighbours"


def memory(results, workload=None):
    """The SVG of this workload, or of that which has the most of the four allocators that are
    compared, else the most of all, of several SHOWN before others; None where none was recorded."""
    recorded = timelines(results)
    if workload is None:
        known = summary.in_order(recorded, WORKLOADS)
        rank = {w: (len(recorded[w].keys() & set(FOUR)), len(recorded[w]), w == SHOWN) for w in known}
        workload = max(known, key=rank.get, default=None)
    if workload not in recorded:
        return None
    cells = recorded[workload]
    order = [a for a in ALLOCATORS if a in cells]
    need, who = needed(cells)
    peaks = {a: max(p for _, _, p in cells[a]["timeline"]) for a in order}
    missing = sorted({r.allocator for r in results.rows if r.workload == workload} - set(order), key=list(ALLOCATORS).index)
    below = (f"{workload}: the area is what the program needs, a line what an allocator holds for it, "
             "with its peak.")
    told = [f"needs at most {gib(max(v for _, v in need))}" if need else "what it needs was not recorded"]
    told += [f"{called(a)} holds at most {gib(peaks[a])}" for a in order]
    told += [f"{called(a)}: not recorded" for a in missing]
    picture = Picture("Memory held over time", below, f"{below} {'; '.join(told)}.")
    draw(picture, cells, order, need, peaks)
    if need and who != summary.BASE:
        picture.paragraph(f"What it needs is as recorded under {called(who)}.", SMALL)
    if missing:
        picture.paragraph(f"Not recorded: {', '.join(map(called, missing))}.", SMALL)
    return picture.end(summary.source(list(cells.values())))


def timelines(results):
    """Of each workload the cells with a record of memory, the last of each allocator."""
    found = {}
    for cell in results.of("cell"):
        timeline = cell.get("timeline") or []
        # Nothing but zeros is that nobody could tell, not that nothing was held.
        known = len(timeline) > 1 and any(held for _, _, held in timeline)
        if cell.get("status") == 0 and known and cell["allocator"] in ALLOCATORS:
            found.setdefault(cell["workload"], {})[cell["allocator"]] = cell
    return found


def needed(cells):
    """[(s, bytes)] of what the program needs, and under whom: whose samples missed its peak by least."""
    recorded = {}
    for allocator in [a for a in ALLOCATORS if a in cells]:
        need = [(t, live) for t, live, _ in cells[allocator]["timeline"] if live is not None]
        if any(live for _, live in need):
            recorded[allocator] = need
    if not recorded:
        return [], None
    who = max(recorded, key=lambda a: max(live for _, live in recorded[a]))
    return recorded[who], who


def draw(picture, cells, order, need, peaks):
    names = [called(a) for a in order] + ["needed"]
    labels = max(width(n, SMALL, bold=True) for n in names) + THREAD
    right = WIDE - MARGIN - labels
    top, bottom = picture.y + 14, picture.y + HIGH
    last = max(t for c in cells.values() for t, _, _ in c["timeline"])
    most = max(list(peaks.values()) + [v for _, v in need])
    up = ticks(0, most * 1.02 / GIB, 6)
    x, y = Linear(0, last, LEFT, right), Linear(0, most * 1.02, bottom, top)
    picture.text(MARGIN, top - 6, "GiB", SMALL, "soft")
    for value in up:
        picture.line([(LEFT, y(value * GIB)), (right, y(value * GIB))], "grid" if value else "axis")
        picture.text(LEFT - 6, y(value * GIB) + 4, f"{value:g}", SMALL, "soft", "end")
    for value in ticks(0, last, 6)[1:]:
        picture.text(x(value), bottom + 15, f"{value:g} s", SMALL, "soft", "middle")
    if need:
        area = [(need[0][0], 0)] + need + [(need[-1][0], 0)]
        picture.line(thinned([(x(t), y(v)) for t, v in area]), "base", closed=True)
    for allocator in order:
        points = [(x(t), y(held)) for t, _, held in cells[allocator]["timeline"]]
        picture.line(thinned(points), f"line l-{series(allocator)}")
    label(picture, right, top, bottom, cells, order, need, peaks, x, y)
    picture.y = bottom + 22


def label(picture, right, top, bottom, cells, order, need, peaks, x, y):
    """Names and peaks beside the ends of the lines, a thread to each, highest first."""
    ends = [(called(a), peaks[a], cells[a]["timeline"][-1], series(a)) for a in order]
    if need:
        ends.append(("needed", max(v for _, v in need), (need[-1][0], 0, need[-1][1]), None))
    ends.sort(key=lambda end: (end[1], end[2][2]), reverse=True)
    places = apart([y(held) for _, _, (_, _, held), _ in ends], 2 * SMALL + 5, top + 4, bottom - SMALL)
    for (name, peak, (t, _, held), kind), place in zip(ends, sorted(places)):
        text = right + THREAD
        if kind:
            picture.line([(x(t), y(held)), (right, y(held)), (text - 20, place)], "grid")
            picture.line([(text - 20, place), (text - 4, place)], f"line l-{kind}")
        else:
            picture.rect(text - 18, place - 5, 14, 10, "base")
        picture.text(text, place + 1, name, SMALL, bold=True)
        picture.text(text, place + SMALL + 2, gib(peak), SMALL, "soft")


def thinned(points):
    """Without the points in the middle of a level stretch, which the line passes anyway."""
    kept = points[:1]
    for before, point, after in zip(points, points[1:], points[2:]):
        if not before[1] == point[1] == after[1]:
            kept.append(point)
    return kept + points[-1:]
