#!/usr/bin/env python3
"""Does `memcuda explain --would-fit` say what runs under that limit do?

    python3 tests/gpu/would_fit.py                      a job, both profiles, about 90 s
    python3 tests/gpu/would_fit.py --profiles async --bisect --deadline 600

Records a workload of benches/gpu (a few steps), takes the least limit that its trace is
estimated to need, and runs it under MEMCUDA_LIMIT 3 % above that and 3 % below: above it
must end well, below it must be out of memory. With --bisect it goes on to the real least
limit while there is time. Torch's own allocator may give more of what it caches back when
the limit is reached, so under native and segments the estimate may be too high; too low it
must not be. Every run is a process of its own, and a line of JSON in --results.

Exit status: 0 as estimated, 1 not, 2 wrong arguments. Needs a GPU and torch.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import shim_run

CELL = os.path.join(shim_run.ROOT, "benches/gpu/cell.py")
MEMCUDA = os.path.join(shim_run.ROOT, "target/release/memcuda")
MIB = 1 << 20


class Jobs:
    def __init__(self, a, results):
        self.a, self.results, self.began = a, results, time.monotonic()

    def say(self, **words):
        line = json.dumps(dict(kind="would_fit", workload=self.a.workload, **words))
        print(line, flush=True)
        if self.results:
            print(line, file=self.results, flush=True)

    def left(self):
        return self.a.deadline - (time.monotonic() - self.began)

    def run(self, profile, **more):
        """Runs the job; its last line, and whether it had enough."""
        env = {n: v for n, v in os.environ.items() if n != "LD_PRELOAD" and not n.startswith(("MEMCUDA_", "PYTORCH_"))}
        env.update(LD_PRELOAD=shim_run.LIBRARY, MEMCUDA_TORCH=profile, NCCL_NVLS_ENABLE="0", **more)
        begun = time.monotonic()
        command = [sys.executable, CELL, self.a.workload, "--limit", str(self.a.steps)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        lines = done.stdout.strip().splitlines()
        cell = json.loads(lines[-1]) if lines else {}
        if done.returncode and not cell.get("out_of_memory"):
            sys.exit(f"FAIL: {self.a.workload} ended with {done.returncode}: {cell.get('error') or done.stderr[-600:]}")
        self.say(profile=profile, limit_bytes=int(more.get("MEMCUDA_LIMIT", 0)), enough=not done.returncode,
                 physical_bytes=cell.get("physical_bytes"), seconds=round(time.monotonic() - begun, 1))
        return cell, not done.returncode

    def estimate(self, profile, folder):
        trace = os.path.join(folder, profile)
        cell, enough = self.run(profile, MEMCUDA_TRACE=trace)
        if not enough:
            sys.exit("FAIL: the job does not fit this GPU")
        command = [MEMCUDA, "explain", trace, "--json", "--would-fit", str(cell["physical_bytes"])]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if report["lost_events"]:
            sys.exit(f"FAIL: {report['lost_events']} events were lost")
        return report["would_fit"]["least_limit_bytes"], cell["physical_bytes"], report

    def compare(self, profile, folder):
        least, physical, report = self.estimate(profile, folder)
        near = lambda part: int(least * part) // (2 * MIB) * 2 * MIB    # noqa: E731
        _, above = self.run(profile, MEMCUDA_LIMIT=str(near(1.03)))
        _, below = self.run(profile, MEMCUDA_LIMIT=str(near(0.97)))
        real = None
        if self.a.bisect:
            real = self.least(profile, near(0.7 if below else 0.97), near(1.03 if above else 1.4))
        # A program that gives memory back of its own accord when there is none may do with less.
        right = above and (not below or profile != "async")
        self.say(profile=profile, estimate_bytes=least, recorded_physical_bytes=physical, events=report["events"],
                 enough_3_percent_above=above, enough_3_percent_below=below, real_bytes=real,
                 off_percent=real and round(100 * (least - real) / real, 2), right=right)
        return right

    def least(self, profile, under, enough):
        """The least limit with which the job ends well, as far as there is time to find it."""
        while enough - under > enough // 100 and self.left() > self.a.reserve:
            middle = (under + enough) // 2 // (2 * MIB) * 2 * MIB
            _, had = self.run(profile, MEMCUDA_LIMIT=str(middle))
            under, enough = (under, middle) if had else (middle, enough)
        return enough


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="unet_mixed_sizes")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--profiles", default="async,native")
    parser.add_argument("--bisect", action="store_true")
    parser.add_argument("--deadline", type=float, default=90, help="seconds in all, for --bisect")
    parser.add_argument("--reserve", type=float, default=25, help="seconds that a run may take")
    parser.add_argument("--results", help="append results to this file")
    a = parser.parse_args()
    shim_run.need_gpu()
    for path in (shim_run.LIBRARY, MEMCUDA):
        shim_run.need_library(path)
    right = True
    with tempfile.TemporaryDirectory() as folder:
        results = open(a.results, "a") if a.results else None
        jobs = Jobs(a, results)
        for profile in a.profiles.split(","):
            right &= jobs.compare(profile, folder)
    print("as estimated" if right else "NOT as estimated")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
