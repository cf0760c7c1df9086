"""What a request costs while more and more blocks are live: a panel for each kind of
request, a line for each size, both axes logarithmic."""
import statistics

import summary
from scales import Logarithmic, apart, around, powers, size
from svg import MARGIN, SMALL, TEXT, WIDE, Picture, width

LEFT, HIGH = 58, 132
COLOURS = ["memcuda-native", "expandable", "memcuda-async", "async", "rmm-pool", "memcuda-direct"]


def cost(results):
    """The SVG, or None where nothing was measured with several numbers of live blocks."""
    panels = measured(results.of("cpu"))
    if not panels:
        return None
    below = "Median time of an allocation and its free on the CPU, one thread; the band is the spread of all runs."
    told = [f"{what}, {sized}: " + ", ".join(f"{live:,} live {middle:,.0f} ns" for live, middle, _, _ in points)
            for what, lines in panels.items() for sized, points in lines.items()]
    picture = Picture("Cost of a request against live blocks", below, f"{below} {'; '.join(told)}.")
    every = [p for lines in panels.values() for points in lines.values() for p in points]
    across = around(min(p[0] for p in every), max(p[0] for p in every), (1,))
    right = WIDE - MARGIN - 22 - max(width(sized, SMALL) for lines in panels.values() for sized in lines)
    for n, (what, lines) in enumerate(panels.items()):
        panel(picture, what, lines, across, right, last=n == len(panels) - 1)
    return picture.end(summary.source(results.of("cpu")))


def measured(cpu):
    """{what: {size as text: [(live, median, low, high)]}}, in ns, of one thread and of what
    was measured with more than one number of live blocks."""
    found = {}
    for r in cpu:
        if r.get("live") and r.get("threads", 1) == 1 and r.get("median_ns"):
            found.setdefault(r["what"], {}).setdefault(r["size"], {}).setdefault(r["live"], []).append(r)
    found = {what: {size: {live: repeated(live, rows) for live, rows in points.items()} for size, points in sizes.items()}
             for what, sizes in found.items()}
    panels = {}
    for what, sizes in found.items():
        lines = {size(bytes): line(sizes[bytes]) for bytes in sorted(sizes) if len(sizes[bytes]) > 1}
        if not lines and len(sizes) > 1 and all_differ(sizes.values()):
            # The mean of sizes that differ is another beside another number of blocks.
            lines = {"any size": line({live: p for points in sizes.values() for live, p in points.items()})}
        if lines:
            panels[what] = lines
    return panels


def repeated(live, rows):
    """The middle of what was measured again and again, and the ends of all of it."""
    lows, highs = ([r[end] for r in rows if r.get(end)] for end in ("low_ns", "high_ns"))
    return live, statistics.median(r["median_ns"] for r in rows), min(lows, default=None), max(highs, default=None)


def line(points):
    return [points[live] for live in sorted(points)]


def all_differ(points):
    lives = [live for p in points for live in p]
    return len(set(lives)) == len(lives)


def panel(picture, what, lines, across, right, last):
    every = [p for points in lines.values() for p in points]
    up = around(min(p[2] or p[1] for p in every), max(p[3] or p[1] for p in every), (1, 2, 5))
    picture.y += TEXT + 4
    picture.text(MARGIN, picture.y, what.replace("_", " "), TEXT, bold=True)
    top, bottom = picture.y + 14, picture.y + HIGH
    x, y = Logarithmic(*across, LEFT, right), Logarithmic(*up, bottom, top)
    for value in few(powers(*up, (1, 2, 5))):
        picture.line([(LEFT, y(value)), (right, y(value))], "grid")
        picture.text(LEFT - 6, y(value) + 4, nanoseconds(value), SMALL, "soft", "end")
    for value in powers(*across):
        picture.line([(x(value), bottom), (x(value), bottom + 4)], "axis")
        if last:
            picture.text(x(value), bottom + 17, f"{value:,}", SMALL, "soft", "middle")
    picture.line([(LEFT, bottom), (right, bottom)], "axis")
    places = apart([y(points[-1][1]) for points in lines.values()], SMALL + 3, top + 4, bottom - 2)
    for n, ((sized, points), place) in enumerate(zip(lines.items(), places)):
        kind = COLOURS[n % len(COLOURS)]
        if all(low and high for _, _, low, high in points):
            band = [(x(p[0]), y(p[2])) for p in points] + [(x(p[0]), y(p[3])) for p in reversed(points)]
            picture.line(band, f"f-{kind} band", closed=True)
        picture.line([(x(live), y(middle)) for live, middle, _, _ in points], f"line l-{kind}")
        for live, middle, _, _ in points:
            picture.dot(x(live), y(middle), f"f-{kind}", 2.5)
        picture.dot(right + 14, place, f"f-{kind}", 3)
        picture.text(right + 22, place + 4, sized, SMALL)
    if last:
        picture.text((LEFT + right) / 2, bottom + 32, "live blocks", SMALL, "soft", "middle")
    picture.y = bottom + (36 if last else 10)


def few(values):
    """Powers of ten alone where there are many."""
    tens = [v for v in values if f"{v:.0e}".startswith("1")]
    return values if len(values) <= 5 or len(tens) < 2 else tens


def nanoseconds(value):
    return f"{value:g} ns" if value < 1000 else f"{value / 1000:g} µs" if value < 1e6 else f"{value / 1e6:g} ms"
