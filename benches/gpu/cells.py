"""Cells as child processes that are made ready ahead: while one runs on the device the next
ones import their packages and make their weights, on other cores, and then wait for a word.
Knows nothing of what a cell measures.
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def waiting_cores():
    """Cores for cells that wait: the upper half, so that they disturb the one that runs little."""
    count = os.cpu_count()
    return range(count // 2, count) if count >= 4 else range(count)


class Child:
    """One process of `program` (a script of this folder) that waits for `go`."""

    def __init__(self, program, arguments, environment, descriptors=()):
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.began = None
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, program), *arguments, "--wait"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=self.out, stderr=self.err, start_new_session=True, pass_fds=descriptors,
            preexec_fn=lambda: os.sched_setaffinity(0, waiting_cores()))

    def go(self, **words):
        self.began = time.monotonic()
        try:
            self.process.stdin.write(f"go {json.dumps(words)}\n")
            self.process.stdin.close()
        except BrokenPipeError:
            pass                                # it has ended; finish() says how

    def running(self):
        return self.process.poll() is None

    def ready(self):
        """Has it nothing to do but wait? (It says so by a first line; or it has ended.)"""
        return os.fstat(self.out.fileno()).st_size > 0 or not self.running()

    def keep_to(self, cores):
        """All its threads run on these cores from now on."""
        with contextlib.suppress(OSError):      # it has ended
            for thread in os.listdir(f"/proc/{self.process.pid}/task"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread), cores)

    def libraries(self):
        """The shared libraries of the packages that it has loaded, and those beside them."""
        try:
            with open(f"/proc/{self.process.pid}/maps") as maps:
                mapped = {line.split(maxsplit=5)[5].strip() for line in maps if "-packages/" in line and ".so" in line}
        except OSError:
            return set()                        # it has ended
        folders = {os.path.dirname(file) for file in mapped if os.path.basename(file).startswith("lib")}
        beside = {entry.path for folder in folders for entry in os.scandir(folder) if ".so" in entry.name and entry.is_file()}
        return mapped | beside

    def seconds(self):
        return time.monotonic() - self.began

    def finish(self, limit):
        """Its JSON line; what went wrong as {status, error}. Killed with its children at `limit` seconds after go."""
        try:
            status = self.process.wait(max(0.1, limit - self.seconds()))
        except subprocess.TimeoutExpired:
            self.end()
            status = 124
        seconds = round(self.seconds(), 1)
        self.out.seek(0)
        self.err.seek(0)
        out, said = self.out.read(), self.err.read().splitlines()
        self.out.close()
        self.err.close()
        lines = [line for line in out.splitlines() if line.startswith("{")]
        try:
            result = json.loads(lines[-1])
        except (IndexError, json.JSONDecodeError):
            result = dict(status=1)
        if status == 124:
            result.update(status=status, error=f"not done after {limit:.0f} s")
        if status and not result.get("error"):
            words = [line for line in said if line.strip()]
            result.update(status=status, error=f"status {status}: {words[-1][:300] if words else '(no message)'}")
        warnings = [line[:300] for line in said if line.startswith("memcuda:")][:20]
        return dict(result, wall_s=seconds, **({"said": warnings} if warnings else {}))

    def end(self):
        """Kills it and whatever it started."""
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if not self.process.stdin.closed:
            self.process.stdin.close()


def read_libraries(children):
    """Reads the libraries of those that wait, whole. Kernels are loaded when they are first
    launched, so else the first cell on a machine would wait for the disk in its steps."""
    began, size = time.monotonic(), 0
    for file in set().union(*(child.libraries() for child in children)):
        with open(file, "rb", buffering=0) as library:
            while block := library.read(1 << 24):
                size += len(block)
    print(f"{size >> 20} MiB of libraries read ahead in {time.monotonic() - began:.0f} s", flush=True)


class Ahead:
    """Hands out the children of a plan in order and keeps the next `count` of them waiting; with
    `batches` it starts others only when none waits, so that nothing is prepared while one is timed."""

    def __init__(self, plan, start, count=3, batches=False):
        self.plan, self.start, self.count, self.batches, self.waiting = list(plan), start, count, batches, []

    def fill(self):
        if self.batches and self.waiting:
            return
        while self.plan and len(self.waiting) < self.count:
            item = self.plan.pop(0)
            self.waiting.append((item, self.start(item)))

    def next(self):
        """The next item and its child, None at the end."""
        self.fill()
        if not self.waiting:
            return None
        got = self.waiting.pop(0)
        if not self.batches:
            self.fill()
        return got

    def quiet(self):
        """Is nothing being prepared?"""
        return all(child.ready() for _, child in self.waiting)

    def read_libraries(self):
        read_libraries(child for _, child in self.waiting)

    def peek(self):
        self.fill()
        return self.waiting[0][0] if self.waiting else None

    def drop(self):
        """Ends those that still wait; returns how many items were not handed out."""
        left = len(self.plan) + len(self.waiting)
        for _, child in self.waiting:
            child.end()
        self.plan, self.waiting = [], []
        return left
