"""A picture as SVG: colours, text of a known width, a heading and a source line.

Colours follow the reader's light or dark scheme, the paper is painted, and there is
no font but the reader's own. Widths of text are estimated from above, since nobody
knows that font: `width` is that of a broad one. Never decides what is drawn.
"""
from xml.sax.saxutils import escape

# In units of the picture. Shown at 1.5 times that on a page, at 0.7 times on a phone,
# so nothing is set smaller than SMALL.
WIDE = 480
MARGIN = 12
SMALL, TEXT, HEADING = 11.5, 13, 16
SHOWN = 720

# Of Okabe and Ito, told apart by every kind of eye; the second is for dark paper.
SERIES = {
    "native": ("#6e7781", "#9ea7b3"),
    "expandable": ("#d55e00", "#f0803c"),
    "async": ("#b3578c", "#d98cb8"),
    "rmm-pool": ("#c98a00", "#e6b022"),
    "rmm-async": ("#7a5230", "#b98a5e"),
    "memcuda-direct": ("#4aa3d8", "#6cc0f0"),
    "memcuda-native": ("#0064a8", "#3f9be0"),
    "memcuda-async": ("#00845f", "#1fb98a"),
    "memcuda-keep": ("#8c2d8c", "#c77dd1"),
}
OTHER = ("#444c56", "#c9d1d9")
PLAIN = {
    "paper": ("fill", "#ffffff", "#0d1117"),
    "ink": ("fill", "#1f2328", "#e6edf3"),
    "soft": ("fill", "#57606a", "#9da7b3"),
    "track": ("fill", "#eaeef2", "#21262d"),
    "base": ("fill", "#d0d7de", "#30363d"),
    "grid": ("stroke", "#d8dee4", "#2b3138"),
    "axis": ("stroke", "#57606a", "#9da7b3"),
}
# Lines of the same picture differ in more than colour.
DASHES = {"expandable": "6 3", "async": "2 2", "rmm-pool": "8 2 2 2", "rmm-async": "4 2", "memcuda-direct": "1.5 2.5"}

# The advance of each character, in ems, rounded up to a twentieth.
ADVANCES = {0.3: "IJijl", 0.35: " ,./:;\\|·", 0.4: "()-[]ft", 0.45: "!r", 0.5: "\"*_`–", 0.55: "?csz", 0.6: "FLkvxy",
            0.65: "$0123456789EPSTYabdeghnopqu{}µ", 0.7: "ABCKRVXZ", 0.75: "NU", 0.8: "&DGHOQ",
            0.85: "#+<=>^w~×≤≥", 0.9: "M"}
ADVANCE = {c: em for em, characters in ADVANCES.items() for c in characters}
BOLD = 1.1


def width(text, size, bold=False):
    """At most so wide is this text."""
    return sum(ADVANCE.get(c, 1.0) for c in text) * size * (BOLD if bold else 1)


def wrapped(text, size, room, bold=False, at=" "):
    """The lines of the text that fit into this room, broken after `at`."""
    words = text.split(at)
    parts = [w + at for w in words[:-1]] + words[-1:]
    lines = [""]
    for part in parts:
        if lines[-1] and width((lines[-1] + part).rstrip(), size, bold) > room:
            lines.append("")
        lines[-1] += part
    return [line.rstrip(" ") for line in lines]


def number(value):
    """A coordinate: a tenth of a unit is finer than a screen shows."""
    return f"{round(value, 1) or 0:g}" if abs(value) < 1e5 else f"{value:.0f}"


def series(name):
    return name if name in SERIES else "other"


def style():
    every = {**SERIES, "other": OTHER}

    def rules(dark):
        for name, (what, *colours) in PLAIN.items():
            yield f".{name}{{{what}:{colours[dark]}}}"
        for name, colours in every.items():
            yield f".f-{name}{{fill:{colours[dark]}}}.l-{name}{{stroke:{colours[dark]}}}"

    font = 'text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}'
    shapes = ".grid,.axis{stroke-width:1;fill:none}.line{stroke-width:2;fill:none;stroke-linejoin:round}.band{opacity:.2}"
    dashes = "".join(f".l-{name}.line{{stroke-dasharray:{dash}}}" for name, dash in DASHES.items())
    return f"{font}{shapes}{dashes}{''.join(rules(0))}@media (prefers-color-scheme:dark){{{''.join(rules(1))}}}"


class Picture:
    """Grows downwards: `y` is where the next thing may begin."""

    def __init__(self, title, below, described):
        """`below` is the line under the title, `described` what the picture shows, for
        who does not see it."""
        self.title, self.described = title, described
        self.parts = []
        self.y = MARGIN
        for line in wrapped(title, HEADING, WIDE - 2 * MARGIN, bold=True):
            self.y += HEADING * 1.25
            self.text(MARGIN, self.y - 4, line, HEADING, bold=True)
        self.paragraph(below)
        self.y += 10

    def paragraph(self, text, size=TEXT, kind="soft"):
        for line in wrapped(text, size, WIDE - 2 * MARGIN):
            self.y += size * 1.35
            self.text(MARGIN, self.y - 3, line, size, kind)

    def text(self, x, y, text, size=TEXT, kind="ink", anchor="start", bold=False):
        extra = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (' font-weight="600"' if bold else "")
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" class="{kind}"{extra}>'
                          f"{escape(text)}</text>")

    def rect(self, x, y, wide, high, kind, round=0):
        corner = f' rx="{number(round)}"' if round else ""
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{number(high)}"'
                          f'{corner} class="{kind}"/>')

    def line(self, points, kind, closed=False):
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) + ("Z" if closed else "")
        self.parts.append(f'<path d="{path}" class="{kind}"/>')

    def dot(self, x, y, kind, radius=3.5):
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{kind}"/>')

    def end(self, source):
        """The whole file; the source line comes last."""
        self.y += 8
        self.paragraph(f"Measured on {source}." if source else "The results do not say on what they were measured.", SMALL)
        high = number(self.y + MARGIN - 4)
        tall = number((self.y + MARGIN - 4) * SHOWN / WIDE)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" width="{SHOWN}" height="{tall}" '
            'role="img" aria-labelledby="title described">',
            f'<title id="title">{escape(self.title)}</title>',
            f'<desc id="described">{escape(self.described)}</desc>',
            f"<style>{style()}</style>",
            f'<rect width="{WIDE}" height="{high}" rx="6" class="paper"/>',
            *self.parts,
            "</svg>",
            "",
        ])
