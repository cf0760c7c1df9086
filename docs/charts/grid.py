"""Charts of workloads against allocators: a cell each, with its number and a bar or a
dot below. Rows and columns may be either; what was not measured is said in its cell.
"""
from scales import Linear, plain
from svg import MARGIN, SMALL, TEXT, WIDE, series, width

LABELS = 140
HIGH = 34
GAP = 10


def label(name, size, room):
    """A name in one line or, if that is too long, two of about the same length."""
    at = "_" if "_" in name else " "
    breaks = [n for n, c in enumerate(name, 1) if c == at]
    if width(name, size) <= room or not breaks:
        return [name]
    where = min(breaks, key=lambda n: max(width(name[:n].rstrip(), size), width(name[n:], size)))
    return [name[:where].rstrip(), name[where:]]


class Grid:
    def __init__(self, picture, rows, columns):
        """`rows` and `columns` are names as they are to be read."""
        self.picture, self.columns = picture, columns
        self.each = (WIDE - 2 * MARGIN - LABELS) / len(columns)
        heads = [label(c, SMALL, self.each - 2) for c in columns]
        deep = max(map(len, heads))
        for n, lines in enumerate(heads):
            for k, line in enumerate(lines):
                y = picture.y + SMALL * 1.2 * (deep - len(lines) + k + 1)
                picture.text(self.left(n), y, line, SMALL)
        self.top = picture.y + SMALL * 1.2 * deep + 8
        for n, name in enumerate(rows):
            lines = label(name, TEXT, LABELS - 8)
            for k, line in enumerate(lines):
                y = self.top + n * HIGH + (17 if len(lines) == 1 else 12 + 14 * k)
                picture.text(MARGIN, y, line)
        picture.y = self.top + HIGH * len(rows)

    def left(self, column):
        return MARGIN + LABELS + self.each * column

    def place(self, cell):
        """x, y and width of a cell, which is (row, column)."""
        row, column = cell
        return self.left(column), self.top + row * HIGH, self.each - GAP

    def missing(self, cell, why):
        x, y, _ = self.place(cell)
        self.picture.text(x, y + 17, why, SMALL, "soft")

    def bar(self, cell, share, said, allocator, best=False):
        """A bar of this share of the cell's width, above it what it says."""
        x, y, wide = self.place(cell)
        self.picture.text(x, y + 13, said, TEXT, bold=best)
        self.picture.rect(x, y + 17, wide, 7, "track", 2)
        self.picture.rect(x, y + 17, max(1, wide * share), 7, f"f-{series(allocator)}", 2)

    def whisker(self, cell, scale, value, low, high, said, allocator):
        """A dot with its interval, on a line on which 1 is marked. What lies beyond the
        scale ends in an arrow at its end; the number says where."""
        x, y, wide = self.place(cell)
        at = Linear(*scale, x, x + wide)
        middle = y + 22
        self.picture.text(x, y + 13, said, TEXT)
        self.picture.line([(x, middle), (x + wide, middle)], "grid")
        self.picture.line([(at(1), middle - 6), (at(1), middle + 6)], "axis")
        kind = series(allocator)
        if low is not None:
            ends = [min(max(at(v), x), x + wide) for v in (low, high)]
            self.picture.rect(ends[0], middle - 1.5, max(0.5, ends[1] - ends[0]), 3, f"f-{kind}", 1.5)
        if scale[0] <= value <= scale[1]:
            self.picture.dot(at(value), middle, f"f-{kind}")
        else:
            tip, back = (x + wide, -7) if value > scale[1] else (x, 7)
            self.picture.line([(tip, middle), (tip + back, middle - 4), (tip + back, middle + 4)], f"f-{kind}", closed=True)

    def scale(self, scale, marks):
        """The numbers of a scale, below each column of whiskers."""
        for column in range(len(self.columns)):
            x, _, wide = self.place((0, column))
            at = Linear(*scale, x, x + wide)
            for mark, said in zip(marks, plain(marks)):
                self.picture.text(at(mark), self.picture.y + SMALL, said, SMALL, "soft", "middle")
        self.picture.y += SMALL * 1.3
