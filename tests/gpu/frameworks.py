#!/usr/bin/env python3
"""Frameworks and programs with and without the pool: a table of rows, each a
program whose results, and where it counts them its allocated and requested
bytes, must be the same.

    python3 tests/gpu/frameworks.py                     # all rows of one GPU
    python3 tests/gpu/frameworks.py ROW...              # these, and those of libraries that few machines have
    python3 tests/gpu/frameworks.py --gpus 2            # the rows of two GPUs
    python3 tests/gpu/frameworks.py --have FILE         # go on after an earlier run
    python3 tests/gpu/frameworks.py --table             # the table for docs/measurements

Prints a PASS or FAIL line each, the table last, and appends each result to
frameworks.jsonl in $OUT or here. What is not installed is a FAIL. Needs an
NVIDIA GPU that nobody else uses with 140 GB of memory (less for most rows),
torch, triton, cupy, jax, numba, a C compiler, nvcc, compute-sanitizer, ncu and
cuda-gdb.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import json_lines
import shim_run
from rows import MIB, PROFILES, ROWS, table
from rows import torch_work, torch_memory, torch_sleep, arrays, programs, tools, libraries, nccl  # noqa: F401  each adds its rows to ROWS, in this order

# Under `auto` torch splits its blocks at other sizes, so one may be larger or
# smaller than it would be: at most by this share of what is allocated.
SPLIT = 0.05
PACKAGES = ["torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "jax", "numba", "numba-cuda", "nvidia-nccl-cu13", "nvidia-nccl-cu12",
            "xgboost", "bitsandbytes", "torchao", "liger-kernel", "openmm", "drjit"]


def child(name):
    """The program of a row. An exception is told in the last line too."""
    try:
        said = ROWS[name].body()
    except BaseException as error:
        traceback.print_exc()
        said = dict(refused=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300])
    print(json.dumps(said), flush=True)
    time.sleep(0.1)
    # Straight out: what a library does in its last moments is not looked at.
    sys.exit(3 if "refused" in said else 0)


class Run:
    """One run of a row."""

    def __init__(self, row, preload, environment, limit):
        command = [sys.executable, os.path.abspath(__file__), "--child", row.name]
        done = shim_run.run(command, preload, limit, row.processes, **{**row.environment, **environment})
        self.seconds, self.processes, self.served = round(done.seconds, 1), done.processes, done.served
        self.notes = [line for line in done.err.splitlines() if line.startswith("memcuda:")][:10]
        try:
            said = json.loads(done.last_line)
        except json.JSONDecodeError:
            said = {}
        said = said if isinstance(said, dict) else {}
        self.results, self.memory, self.other = (said.get(k) or {} for k in ("results", "memory", "other"))
        self.refused = said.get("refused", "")
        self.reason = ""
        if done.status or not self.results:
            self.reason = self.refused or (f"longer than {limit} s" if done.status == shim_run.LATE else done.reason())

    def record(self):
        peak = sum(counters["peak_physical_bytes"] for counters in self.processes)
        return dict(results=self.results, memory=self.memory, other=self.other, reason=self.reason, seconds=self.seconds,
                    served=self.served, peak_physical=peak, notes=self.notes)


def differences(profile, bare, pooled):
    """What differs that may not, by kind and name, and what differs that may."""
    wrong, allowed = {}, []
    for kind in ("results", "memory"):
        left, right = getattr(bare, kind), getattr(pooled, kind)
        for name in sorted({*left, *right}, key=str):
            a, b = left.get(name), right.get(name)
            if a == b:
                continue
            told = profile == "auto" and kind == "memory" and a and b
            if told and "allocated" in name and abs(b - a) <= a * SPLIT:
                allowed.append(f"{name} {a / MIB:.1f} -> {b / MIB:.1f} MiB (blocks split otherwise)")
            elif told and "requested peak" in name and b < a:
                allowed.append(f"{name} {a / MIB:.1f} -> {b / MIB:.1f} MiB (torch looks at its events sooner)")
            else:
                wrong[kind, name] = f"{name}: {str(a)[:90]} bare, {str(b)[:90]} with"
    return wrong, allowed


def judge(row, profile, bare, pooled, again):
    """PASS or FAIL, and why. `again` makes another bare run: a figure that
    differs between two of these says nothing about the pool."""
    if row.not_async and profile == "async" and "cudaMallocAsync" in bare.refused and bare.refused == pooled.refused:
        return "PASS", f"refused alike: {bare.refused}"
    if bare.reason or pooled.reason:
        sides = [f"{side}: {run.reason}" for side, run in (("bare", bare), ("with", pooled)) if run.reason]
        return "FAIL", "; ".join(sides)
    wrong, allowed = differences(profile, bare, pooled)
    if wrong:
        unstable, _ = differences("exact", bare, again())
        for kind, name in unstable:
            if kind == "memory" and wrong.pop((kind, name), None):
                allowed.append(f"{name} not compared, bare runs differ themselves")
    if wrong:
        if unstable:
            allowed.append(f"bare runs differ too: {next(iter(unstable.values()))} again")
        return "FAIL", "; ".join([*wrong.values(), *allowed])
    if not pooled.served:
        return "FAIL", "equal, but the pool served nothing"
    return "PASS", "; ".join(allowed)


class Session:
    """Runs rows and keeps what they gave."""

    def __init__(self, options, done, folder, machine):
        self.options, self.done, self.machine = options, done, machine
        self.caches = dict(TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"), TRITON_CACHE_DIR=os.path.join(folder, "triton"))
        self.begin, self.lock, self.cells, self.left = time.time(), threading.Lock(), [], []

    def time_left(self):
        return self.options.deadline - (time.time() - self.begin)

    def run(self, row):
        """All profiles of a row; bare runs of one environment are made once."""
        bare_runs = {}

        def once(preload, environment):
            limit = min(self.options.limit, self.time_left())
            return Run(row, preload, {**self.caches, **environment}, limit)

        for profile in row.profiles:
            if profile not in self.options.profiles or (row.name, profile) in self.done:
                continue
            if self.time_left() < self.options.reserve:
                self.left.append(f"{row.name} ({profile})")
                continue
            bare_environment, environment = PROFILES[profile]
            key = str(bare_environment)
            if key not in bare_runs:
                if row.warm:
                    once(None, bare_environment)
                bare_runs[key] = once(None, bare_environment)
            bare = bare_runs[key]
            pooled = once(shim_run.LIBRARY, environment)
            try:
                status, why = judge(row, profile, bare, pooled, lambda: once(None, bare_environment))
            except Exception as error:          # of this script: the other rows go on
                status, why = "FAIL", f"{type(error).__name__} while comparing: {error}"
            self.keep(dict(row=row.name, profile=profile, status=status, why=why, bare=bare.record(),
                           pooled=pooled.record(), machine=self.machine))

    def keep(self, cell):
        with self.lock:
            self.cells.append(cell)
            json_lines.append(self.options.results, cell)
            seconds = f"{cell['bare']['seconds']:.0f} and {cell['pooled']['seconds']:.0f} s"
            print(f"{cell['status']} {cell['row']} ({cell['profile']}): {cell['pooled']['served']} served, {seconds}"
                  f"{': ' + cell['why'] if cell['why'] else ''}", flush=True)

    def run_all(self, rows):
        """Rows that count the device's memory one by one, the others beside
        each other."""
        with ThreadPoolExecutor(self.options.jobs) as threads:
            for _ in threads.map(self.run, [row for row in rows if not row.alone]):
                pass
        for row in rows:
            if row.alone:
                self.run(row)


def machine():
    """What the figures were taken on."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    gpus = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip().splitlines()
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    with open(shim_run.LIBRARY, "rb") as f:
        library = hashlib.sha256(f.read()).hexdigest()[:12]
    return dict(gpus=gpus, packages=versions, date=time.strftime("%Y-%m-%d"), python=sys.version.split()[0], library=library)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("rows", nargs="*", metavar="ROW", help="names, or beginnings of names (default: all)")
    ap.add_argument("--gpus", type=int, default=1, help="run the rows for so many GPUs")
    ap.add_argument("--profiles", default=",".join(PROFILES), help=f"of {', '.join(PROFILES)}; each row has some of them")
    ap.add_argument("--jobs", type=int, default=3, help="rows at one time")
    ap.add_argument("--limit", type=float, default=200, help="seconds that a process may take")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="be done after so many seconds")
    ap.add_argument("--reserve", type=float, default=60, help="begin nothing with fewer seconds left than this")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "frameworks.jsonl"))
    ap.add_argument("--have", action="append", default=[], metavar="FILE", help="results of earlier runs: what passed there is not run again")
    ap.add_argument("--table", action="store_true", help="run nothing, print the table in Markdown")
    ap.add_argument("--list", action="store_true", help="print the names of the rows")
    ap.add_argument("--child", choices=sorted(ROWS), help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.child:
        return child(a.child)
    if a.list:
        return print("\n".join(f"{row.name}{f', {row.gpus} GPUs' if row.gpus > 1 else ''}{', where it is named' if row.named else ''}" for row in ROWS.values()))
    a.profiles = a.profiles.split(",")
    for profile in a.profiles:
        if profile not in PROFILES:
            ap.error(f"unknown profile {profile}; known: {', '.join(PROFILES)}")
    for name in a.rows:
        if not any(known.startswith(name) for known in ROWS):
            ap.error(f"unknown row {name}; known: {', '.join(ROWS)}")
    if a.jobs < 1:
        ap.error("--jobs is at least 1")
    wanted = [row for row in ROWS.values() if any(row.name.startswith(name) for name in a.rows)] if a.rows else \
        [row for row in ROWS.values() if row.gpus == a.gpus and not row.named]
    if not wanted:
        ap.error(f"no rows for {a.gpus} GPUs; there are rows for 1 and 2")
    if a.table:
        return print(table.markdown(json_lines.read([*a.have, a.results]), ROWS))
    earlier = json_lines.read(a.have)
    shim_run.need_gpu()
    shim_run.need_library()
    passed = {(cell["row"], cell["profile"]) for cell in earlier if cell["status"] == "PASS"}
    with tempfile.TemporaryDirectory() as folder:
        session = Session(a, passed, folder, machine())
        session.run_all(wanted)
    names = {row.name for row in wanted}
    cells = [cell for cell in table.latest(earlier + session.cells) if cell["row"] in names and cell["profile"] in a.profiles]
    print("\n" + table.text(cells, ROWS))
    builds = {cell["machine"]["library"] for cell in cells}
    if len(builds) > 1:
        print(f"taken with {len(builds)} builds of the library: run without --have for a table of one")
    failed = [cell for cell in cells if cell["status"] != "PASS"]
    left = f", {len(session.left)} left for another run: {', '.join(session.left)}" if session.left else ""
    print(f"{len(cells) - len(failed)} passed, {len(failed)} failed{left}")
    sys.exit(1 if failed or session.left or not cells else 0)


if __name__ == "__main__":
    main()
