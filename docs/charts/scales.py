"""From values to places and round numbers: linear and logarithmic axes."""
import math


class Linear:
    def __init__(self, low, high, begin, end):
        """`low` is drawn at `begin`, `high` at `end`."""
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, value):
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


class Logarithmic(Linear):
    def __init__(self, low, high, begin, end):
        super().__init__(math.log10(low), math.log10(high), begin, end)

    def __call__(self, value):
        return super().__call__(math.log10(value))


def ticks(low, high, most):
    """Round values from low to high, at most so many."""
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10, 20) if (high - low) / (s * power) < most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def around(low, high, steps):
    """Ends of a logarithmic axis that holds low and high: powers of ten times one of these."""
    ends = [s * 10.0 ** p for p in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2) for s in steps]
    return max(e for e in ends if e <= low * 1.0001), min(e for e in ends if e >= high * 0.9999)


def powers(low, high, steps=(1,)):
    """Powers of ten times these from low to high."""
    found = [s * 10 ** p for p in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for s in steps]
    return [v for v in found if low * 0.9999 <= v <= high * 1.0001]


def size(bytes):
    """Bytes as one writes the size of a request."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes >= unit:
            return f"{bytes / unit:.4g} {name}"
    return f"{bytes:g} B"


def gib(bytes):
    value = bytes / (1 << 30)
    return f"{value:.1f} GiB" if value < 100 else f"{value:.0f} GiB"


def apart(places, gap, low, high):
    """Moves labels that stand closer than `gap` apart, all together as little as that takes,
    and none beyond low or high while there is room. In the order given, which need not be
    sorted."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    # With n gaps taken off the n-th label, "far enough apart" is "not falling": where it
    # falls, neighbours go to their mean.
    groups = []
    for n, i in enumerate(order):
        groups.append([places[i] - n * gap, 1])
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, k), (b, m) = groups[-2:]
            groups[-2:] = [[(a * k + b * m) / (k + m), k + m]]
    level = [min(max(mean, low), high - (len(places) - 1) * gap) for mean, k in groups for _ in range(k)]
    return [level[n] + n * gap for n in sorted(range(len(order)), key=lambda n: order[n])]


def plain(values):
    """These numbers, all with as many decimals as they need to be told apart."""
    for digits in range(6):
        said = [f"{v:,.{digits}f}" for v in values]
        if all(abs(float(s.replace(",", "")) - v) < 1e-9 + abs(v) * 1e-6 for s, v in zip(said, values)):
            return said
    return [f"{v:g}" for v in values]
