#!/usr/bin/env python3
"""PyTorch's own reader of snapshots over those of `memcuda snapshot`.

    make test-compat

The reader is one file of torch's wheel that needs nothing else of it; the wheel
is that of another system, a tenth as large. A program on the simulated GPU is
looked at while it allocates and frees, and once it has run out of memory; it
records itself, so that what happened is in the snapshots; in that of a report as long
as the recording is where the report says, or is named.
"""
import os
import random
import subprocess
import sys
import tempfile

from fetch import ROOT, RELEASE, fail, ready, run, wheel

TORCH = "2.11.0"
SHA256 = "4b5866312ee6e52ea625cd211dcb97d6a2cdc1131a5f15cc0d87eec948f6dd34"
ELSEWHERE = ["--platform", "macosx_11_0_arm64", "--python-version", "3.12"]
CHECK = os.path.join(ROOT, "tests/support/memory_viz.py")
MEMCUDA = os.path.join(RELEASE, "memcuda")
LIMIT = 1 << 30


class Holder:
    """shim/tests/pictures/holder.c, preloaded."""

    def __init__(self, folder, library, driver):
        program = os.path.join(folder, "holder")
        sim = os.path.dirname(driver)
        run(["cc", "-std=gnu11", "-O1", "-o", program,
             os.path.join(ROOT, "shim/tests/pictures/holder.c"), "-L" + sim, "-l:libcuda.so.1",
             "-ldl", "-lpthread"])
        settings = {name: value for name, value in os.environ.items()
                    if not name.startswith("MEMCUDA_")}
        settings |= {"LD_PRELOAD": library, "LD_LIBRARY_PATH": sim, "MEMCUDA_KEEPER": "off",
                     "MEMCUDA_SIM_MEMORY": "4GiB", "MEMCUDA_LIMIT": str(LIMIT),
                     "MEMCUDA_OOM_REPORT": os.path.join(folder, "reports"),
                     "MEMCUDA_TRACE": os.path.join(folder, "trace"), "MEMCUDA_TRACE_STACKS": "c"}
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=settings)
        self.hear("ready")

    def hear(self, expected=""):
        line = self.process.stdout.readline()
        if not line.startswith(expected):
            fail(f"the program said {line!r}, not {expected!r}")

    def tell(self, line, expected=""):
        print(line, file=self.process.stdin, flush=True)
        self.hear(expected)


def main():
    library, driver = ready()
    torch = wheel("torch", TORCH, SHA256, *ELSEWHERE)
    reader = os.path.join(torch, "torch/cuda/_memory_viz.py")
    rng = random.Random(11)
    with tempfile.TemporaryDirectory() as folder:
        holder, live, most = Holder(folder, library, driver), [], 0

        def check(source, expected, *options):
            snapshot = os.path.join(folder, "snapshot.pickle")
            run([MEMCUDA, "snapshot", source, "-o", snapshot, *options])
            said = run([sys.executable, CHECK, snapshot, reader]).strip()
            print(f"ok: torch {TORCH} reads {said}")
            if expected not in said:
                fail(f"no {expected}")

        for turn in range(600):
            if live and rng.random() < 0.4:
                holder.tell("free", "0")
                live.pop()
            else:
                size = rng.randrange(1, rng.choice([256 << 10, 4 << 20, 10 << 20]))
                stream = rng.randrange(4)
                holder.tell(f"malloc {size}" if rng.random() < 0.3 else f"alloc {size} {stream}", "0")
                live.append(size)
            now = sum(live)
            most = max(most, now)
            if turn % 100 == 0:
                check(str(holder.process.pid), f"most {most} left {now}")
        holder.tell(f"malloc {LIMIT + 1}", "2")
        check(str(holder.process.pid), f"most {most} left {now}")
        reports = os.path.join(folder, "reports")
        report = os.path.join(reports, os.listdir(reports)[0])
        check(report, f"most {most} left {now}")
        moved = os.path.join(folder, "moved")
        os.rename(os.path.join(folder, "trace"), moved)
        check(report, "events 1 ")
        check(report, f"most {most} left {now}", "--trace", moved)
        holder.process.stdin.close()
        if holder.process.wait() != 0:
            fail("the program ended badly")


main()
