"""Shared by the scripts of the GPU lane: run a program bare or on the pool, in
its own process with a time limit, and read the pool's counters while it runs.
"""
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(ROOT, "target/release/libmemcuda.so")
DEBUG_LIBRARY = os.path.join(ROOT, "target/debug/libmemcuda.so")

# The status of what was killed at its limit.
LATE = 124

PAGE_VERSION = 5
PAGE_BYTES = 141312
# src/stats_page.rs and src/pool/front/line.rs: lines of 16 words from word 1024 on.
LINES, LINE_WORDS = 1024, 16


def counter_names():
    """The words of a device block: two of the process, then the pool's counters
    as src/pool/stats.rs declares them."""
    with open(os.path.join(ROOT, "src/pool/stats.rs")) as f:
        declared = re.search(r"^counters! \{(.*?)^\}", f.read(), re.M | re.S).group(1)
    return ["ordinal", "foreign_frees"] + re.findall(r"^    (\w+),", declared, re.M)


COUNTERS = counter_names()


def need_gpu():
    """Ends the script where there is no GPU: a missing GPU is a failure, not a skip."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    if "GPU 0" not in listing:
        sys.exit("FAIL: this needs an NVIDIA GPU and its driver; nvidia-smi lists none")


def need_library(path=LIBRARY):
    if not os.path.exists(path):
        sys.exit(f"FAIL: {path} is missing; build it first (make build)")


def read_page(page):
    """The counters of the first device, or None while there are none."""
    words = struct.unpack(f"@{PAGE_BYTES // 8}Q", page[:PAGE_BYTES])
    if words[0] != int.from_bytes(b"memcuda1", "little"):
        return None
    if words[1] != PAGE_VERSION:
        sys.exit(f"FAIL: statistics page of version {words[1]}, this script reads {PAGE_VERSION}")
    if words[3] % 2 or not words[4]:
        return None
    counters = dict(zip(COUNTERS, words[8:8 + len(COUNTERS)]))
    for line in range(words[5]):
        add_line(counters, words[LINES + line * LINE_WORDS:])
    counters = {name: max((value + 2**63) % 2**64 - 2**63, 0) for name, value in counters.items()}
    return counters | dict(peak_live_bytes=max(counters["peak_live_bytes"], counters["live_bytes"]))


def add_line(counters, line):
    """What one front counts, to what the block of the device says, where hits are below 0 by what was none."""
    requests, frees, live, granted = line[:4]
    added = dict(requests=requests, hits=requests, frees=frees, live_bytes=live, granted_bytes=granted,
                 idle_bytes=-granted, peak_live_bytes=live + line[8])
    for name, value in added.items():
        counters[name] += value


class Page:
    """Keeps a process's page mapped, so that it can be read after its end."""

    def __init__(self, pid):
        self.map = None
        self.pid = pid

    def look(self):
        if self.map is not None:
            return True
        folder = f"/proc/{self.pid}/fd"
        try:
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if "memcuda-stats" in os.readlink(path):
                    with open(path, "rb") as f:
                        self.map = mmap.mmap(f.fileno(), PAGE_BYTES, prot=mmap.PROT_READ)
                    return True
        except (OSError, ValueError):
            # The process is gone, a descriptor was closed while we looked, or
            # the page has no length yet.
            pass
        return False

    def counters(self):
        if self.map is None:
            return None
        for _ in range(100):
            seen = read_page(self.map)
            if seen:
                return seen
            time.sleep(0.001)
        return None


class Pages:
    """The page of a child and, with a `mark` that its environment holds, of
    every process that has inherited it."""

    def __init__(self, pid, mark=None):
        self.mark = mark and mark.encode()
        self.pages, self.strangers = {pid: Page(pid)}, set()

    def look(self):
        """Looks once; True when there is nothing more to look for."""
        if self.mark:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                self.meet(int(pid))
        found = [page.look() for page in list(self.pages.values())]
        return all(found) and not self.mark

    def meet(self, pid):
        if pid in self.pages or pid in self.strangers:
            return
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                environment = f.read()
            if self.mark in environment:
                self.pages[pid] = Page(pid)
            elif environment:                   # none: a thread of the kernel, or in the middle of an exec
                self.strangers.add(pid)
        except OSError:
            pass                                # it ended meanwhile, or is not ours to read

    def counters(self):
        """Of each process that has a page, the child's own first."""
        seen = [page.counters() for page in self.pages.values()]
        return [counters for counters in seen if counters]


class Result:
    def __init__(self, status, out, err, processes, seconds):
        self.status, self.out, self.err = status, out, err
        self.processes, self.seconds = processes, seconds

    @property
    def counters(self):
        """The counters of the first process that has any, or None."""
        return self.processes[0] if self.processes else None

    @property
    def served(self):
        """Requests that pools served, in all processes."""
        return sum(counters["requests"] for counters in self.processes)

    @property
    def last_line(self):
        lines = [l for l in self.out.splitlines() if l.strip()]
        return lines[-1] if lines else ""

    def reason(self):
        lines = [l for l in self.err.splitlines() if l.strip()]
        return f"status {self.status}: {lines[-1][:300] if lines else '(no message)'}"


def run(command, preload=None, limit=300, descendants=False, folder=ROOT, **environment):
    """Runs a command in a folder; `preload` is the library or None. A variable set to None
    is removed. Whoever overruns the limit is killed with all its children and
    has the status LATE. With `descendants` the counters of the processes that the
    command starts are read too."""
    env = dict(os.environ)
    for name in list(env):
        if name.startswith("MEMCUDA_") or name in ("LD_PRELOAD", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            del env[name]
    if preload:
        env["LD_PRELOAD"] = preload
    for name, value in environment.items():
        env.pop(name, None) if value is None else env.__setitem__(name, str(value))
    mark = None
    if descendants:
        mark = env["GPU_LANE_RUN"] = f"{os.getpid()}-{time.monotonic_ns()}"
    begin = time.time()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, env=env, stdout=out, stderr=err, cwd=folder, start_new_session=True)
        pages = Pages(child.pid, mark)
        stop = threading.Event()

        def watch():
            while not stop.is_set() and not pages.look():
                time.sleep(0.02)

        watcher = threading.Thread(target=watch, daemon=True)
        if preload:
            watcher.start()
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            status = LATE
        seconds = time.time() - begin
        stop.set()
        if preload:
            watcher.join()
        out.seek(0)
        err.seek(0)
        return Result(status, out.read(), err.read(), pages.counters(), seconds)


class Verdicts:
    """Prints a PASS or FAIL line each and keeps the count."""

    def __init__(self):
        self.failed = 0
        self.passed = 0

    def say(self, good, name, detail=""):
        self.failed += not good
        self.passed += bool(good)
        print(f"{'PASS' if good else 'FAIL'} {name}{': ' + detail if detail else ''}", flush=True)

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed or not self.passed else 0)
