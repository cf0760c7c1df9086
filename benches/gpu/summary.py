"""What the results of the benchmarks say: files merged, medians, ratios with their
intervals, tables. Never runs anything; needs the standard library alone.

A result is a JSON object a line of schema "memcuda.bench/1". The last good line of
a (workload, allocator, repeat) counts. A step is set only against the same step of
torch's own allocator in the same repeat of the same run of the bench (`run`):
another run may have had another machine.

Bytes are bytes and times milliseconds unless a name says otherwise; None is what
was not measured.
"""
import os
import random
import statistics
import sys
from dataclasses import dataclass
from functools import cached_property

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tests/gpu")]
import json_lines
from allocators import ALLOCATORS
from workloads import WORKLOADS

SCHEMA = "memcuda.bench/1"
KINDS = {"cell", "oom", "concurrency", "turns", "cpu"}
BASE = "native"
BESIDE_RMM = {"async", "rmm-pool", "rmm-async"}
# Fewer interleaved runs than this say nothing of how runs differ.
LEAST_PAIRS = 3
ROUNDS = 2000
# Where threads meet otherwise each time, what one run needs at its peak is not what another one does.
OWN_NEED = {"threads"}


@dataclass
class Row:
    """One allocator on one workload, over all its repeats."""
    workload: str
    allocator: str
    runs: int = 0            # that ended well
    failed: int = 0
    error: str = None        # of the last that failed, where none ended well
    live: int = None         # torch's peak of requested bytes, under its own allocator; of OWN_NEED under this one
    physical: int = None     # peak
    physical_by: str = None  # who counted it: pool, torch, process (NVML)
    own_live: int = None     # the same with other libraries' requests, as `physical` of the pool has them
    step_ms: float = None
    pairs: int = 0           # timed repeats with one of torch's own allocator beside
    ratio: float = None
    low: float = None        # of the ratio, 95 % bootstrap interval
    high: float = None
    run_ratio: float = None
    first_ratio: float = None
    stall_share: float = None
    stalls: float = None
    same: bool = None        # the workload's check equals that under torch's own allocator

    @property
    def efficiency(self):
        return self.live / self.physical if self.live and self.physical else None

    @property
    def own_efficiency(self):
        return self.own_live / self.physical if self.own_live and self.physical else None


class Results:
    """The results of any number of files."""

    def __init__(self, lines):
        """Takes those of our schema. A smoke test of the scripts is no result."""
        self.lines = [line for line in lines if line.get("schema") == SCHEMA and line.get("kind") in KINDS
                      and "smoke" not in line]

    @classmethod
    def read(cls, paths):
        return cls(json_lines.read(paths))

    def of(self, kind):
        return [line for line in self.lines if line["kind"] == kind]

    @cached_property
    def rows(self):
        """An allocator on a workload each, as `merged` says."""
        return merged(self.of("cell"))

    @cached_property
    def together(self):
        """The same, of several GPUs, threads or processes at once."""
        return merged(self.of("concurrency"))

    @cached_property
    def turns(self):
        """The same, of steps that were made in turns: there all runs of the bench with the last build count."""
        return merged(of_last_builds(self.of("turns")), lambda cell: (*key(cell), cell.get("run")))

    @cached_property
    def timed(self):
        """By (workload, allocator), the row that tells how long steps take: that of steps in turns,
        where it has an interval."""
        return {(r.workload, r.allocator): r for r in self.rows + [r for r in self.turns if r.low]}

    @property
    def largest(self):
        """The out-of-memory points by (workload, room in bytes) and allocator, the last line
        of each: {(workload, room): {allocator: point}}."""
        found = {}
        for p in self.of("oom"):
            found.setdefault((p["workload"], p["room_bytes"]), {})[p["allocator"]] = p
        order = in_order((workload for workload, _ in found), WORKLOADS)
        return dict(sorted(found.items(), key=lambda it: (order.index(it[0][0]), it[0][1])))


def name(cell):
    return cell.get("workload") or cell.get("what")


def key(cell):
    return name(cell), cell["allocator"], cell["repeat"]


def turn(cell):
    """Cells of one turn ran beside each other."""
    return name(cell), cell.get("run"), cell["repeat"]


def good(cells, which=key):
    """The last of each key that ended well."""
    return list({which(c): c for c in cells if c.get("status") == 0}.values())


def of_last_builds(cells):
    """Without what builds of the library before the last one did with the same job under the same
    allocator, and without those that took turns with nobody else."""
    last = {}
    for c in cells:
        if c.get("library") and c.get("status") == 0:
            at = name(c), c["allocator"]
            last[at] = max(last.get(at, ("", "")), (c["run"], c["library"]))

    def counts(c):
        return not c.get("library") or last.get((name(c), c["allocator"]), ("", c["library"]))[1] == c["library"]

    alone = {turn(c) for c in cells if not counts(c)} - {turn(c) for c in cells if counts(c) and c["allocator"] != BASE}
    return [c for c in cells if counts(c) and turn(c) not in alone]


def merged(cells, which=key):
    """A row for each allocator on each workload, in the order of their tables; what those do
    not know comes last. Of the cells of one key the last counts."""
    ended_well = good(cells, which)
    base = {turn(c): c for c in cells if c["allocator"] == BASE and c.get("status") == 0}
    found = []
    for workload in in_order(map(name, cells), WORKLOADS):
        here = [c for c in cells if name(c) == workload]
        known = in_order((c["allocator"] for c in here), ALLOCATORS)
        runs = {a: [c for c in ended_well if (name(c), c["allocator"]) == (workload, a)] for a in known}
        for allocator in known:
            every = [c for c in here if c["allocator"] == allocator]
            if every:
                own = {allocator: runs[allocator]}
                need = needed(own if workload in OWN_NEED else alike(runs, allocator))
                found.append(row(every, runs[allocator], base, need))
    return found


def alike(runs, allocator):
    """The runs whose bytes are this allocator's to be set against: a timed run has libraries
    loaded before its first step that one which samples memory has not."""
    sampled = any(c["repeat"] == 0 for c in runs[allocator])
    same = {a: [c for c in cells if (c["repeat"] == 0) == sampled] for a, cells in runs.items()}
    return same if needed(same) else runs


def in_order(names, known):
    """These names once each, in the order of `known`, the others behind as they came."""
    places = {n: place for place, n in enumerate(known)}
    return sorted(dict.fromkeys(names), key=lambda n: places.get(n, len(places)))


def needed(runs):
    """What the tensors asked for at their peak, as torch counts it under its own allocator;
    where that never ended well, as torch counts the same under another."""
    counts = ([c.get("live_torch_bytes") for c in runs[a]] for a in runs)
    return next(filter(None, map(middle, counts)), None)


def row(every, mine, base, live):
    """Of all cells of an allocator on a workload, of which those in `mine` count; `base` are
    torch's own by turn."""
    r = Row(name(every[0]), every[0]["allocator"], runs=len(mine), live=live)
    bad = [c for c in every if c.get("status") != 0]
    r.failed = len(bad)
    if not mine:
        r.error = bad[-1].get("error") or f"status {bad[-1].get('status')}"
        return r
    weighed = [c for c in mine if c["repeat"] == 0] or mine
    r.physical, r.physical_by = physical(weighed)
    r.own_live = middle([own_live(c) for c in weighed])
    timed = [c for c in mine if c["repeat"] and c.get("step_ms")]
    r.step_ms = middle([statistics.median(warm(c, c["step_ms"])) for c in timed])
    paired = [(base[turn(c)], c) for c in sorted(timed, key=lambda c: c["repeat"]) if base.get(turn(c), {}).get("step_ms")]
    if r.allocator != BASE and paired:
        r.pairs = len(paired)
        ratios = [step_ratios(a, b) for a, b in paired]
        r.ratio = statistics.median(map(statistics.median, ratios))
        r.low, r.high = interval(ratios, f"{r.workload} {r.allocator}")
        r.run_ratio = statistics.median(whole_run(a, b) for a, b in paired)
        r.first_ratio = middle([b["first_step_ms"] / a["first_step_ms"] for a, b in behind_the_first(paired)
                                if a.get("first_step_ms") and b.get("first_step_ms")])
    stalled = [c for c in timed or mine if c.get("stall_ns") is not None and c.get("warm_s")]
    r.stall_share = middle([c["stall_ns"] / 1e9 / c["warm_s"] for c in stalled], zero=True)
    r.stalls = middle([c.get("stalls") for c in stalled], zero=True)
    checks = {str(c["check"]) for c in base.values() if name(c) == r.workload and c.get("check") is not None}
    if r.allocator != BASE and checks and all(c.get("check") is not None for c in mine):
        r.same = {str(c["check"]) for c in mine} == checks
    return r


def behind_the_first(pairs):
    """Those that were not the first of their run of the bench, if there are any: who is the first
    on a machine makes what is kept on its disk then, 1.4 s of lora's first step."""
    first = {}
    for _, c in pairs:
        first[c.get("run")] = min(c["repeat"], first.get(c.get("run"), c["repeat"]))
    return [(a, b) for a, b in pairs if b["repeat"] > first[b.get("run")]] or pairs


def own_live(cell):
    """What was asked for at the peak, other libraries' requests included, as the physical
    bytes of a cell on the pool include them; None without the pool. Where torch's own allocator
    is above it, the pool sees what torch reserves: of that counts what its tensors asked for."""
    live, reserved, tensors = (cell.get(f) for f in ("live_bytes", "reserved_bytes", "live_torch_bytes"))
    if cell["allocator"] in ("memcuda-native", "memcuda-segments", "memcuda-keep"):
        return tensors + max(0, live - reserved) if live and reserved and tensors else None
    return live


def middle(values, zero=False):
    """The median of those that are there; a zero is nobody's figure unless said so."""
    there = [v for v in values if v or (zero and v == 0)]
    return statistics.median(there) if there else None


def physical(cells):
    """Peak of what was held, by the best of those who count: the pool, torch, NVML. Of those that are
    set beside RMM, of which NVML alone tells, NVML first: it counts code and libraries' requests, too."""
    meters = [("pool", "physical_bytes"), ("torch", "reserved_bytes"), ("process", "process_bytes")]
    for who, field in meters[::-1] if cells[0]["allocator"] in BESIDE_RMM else meters:
        held = middle([c.get(field) for c in cells])
        if held:
            return held, who
    return None, None


def warm(cell, steps):
    """The steps after warm-up; all of them where that would leave none."""
    return steps[cell.get("warm_from") or 0:] or steps


def step_ratios(base, ours):
    """How much longer each warm step takes than the same step of the other run. The same
    seed gives both the same steps; a ratio of medians would compare two different ones."""
    each = [b / a for a, b in zip(base["step_ms"], ours["step_ms"])]
    return warm(ours, each)


def whole_run(base, ours):
    steps = min(len(base["step_ms"]), len(ours["step_ms"]))
    return sum(ours["step_ms"][:steps]) / sum(base["step_ms"][:steps])


def interval(ratios, seed):
    """The 95 % bootstrap interval of the median over runs of each run's median over
    steps: runs are drawn anew, and in each of them its steps."""
    if len(ratios) < LEAST_PAIRS:
        return None, None
    rng = random.Random(seed)
    ordered = [sorted(steps) for steps in ratios]
    drawn = sorted(statistics.median(median_drawn_anew(rng.choice(ordered), rng) for _ in ordered)
                   for _ in range(ROUNDS))
    return drawn[int(0.025 * ROUNDS)], drawn[int(0.975 * ROUNDS) - 1]


def median_drawn_anew(ordered, rng):
    """The median of as many values drawn, with replacement, from these. Which place the
    middle one of n draws has is known without drawing them: the k-th smallest of n
    uniform numbers is beta-distributed, and of the n - k larger ones the least is
    one power of a uniform number away."""
    n = len(ordered)
    k = (n + 1) // 2
    place = rng.betavariate(k, n - k + 1)
    first = ordered[min(int(n * place), n - 1)]
    if n % 2:
        return first
    place += (1 - place) * (1 - rng.random() ** (1 / (n - k)))
    return (first + ordered[min(int(n * place), n - 1)]) / 2


def source(lines):
    """What these were measured on and when, in one line; "" where none of them says."""
    machines = [line["machine"] for line in lines if line.get("machine")]

    def all_of(field):
        return ", ".join(sorted({str(m[field]) for m in machines if m.get(field)}))

    parts = [all_of("gpu") or all_of("cpu")]
    parts += [f"{field} {all_of(field)}" for field in ("driver", "torch") if all_of(field)]
    dates = sorted({str(m["date"])[:10] for m in machines if m.get("date")})
    parts.append(" to ".join(dict.fromkeys(dates[:1] + dates[-1:])))
    return ", ".join(p for p in parts if p)
