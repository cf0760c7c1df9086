#!/usr/bin/env python3
"""Who asked, in a recording of PyTorch: functions of Python, libraries, a snapshot's history.

    python3 tests/gpu/stacks.py                 about 60 s

A small training job runs by itself (--job), its tensors served by the pool (MEMCUDA_TORCH=async), without a
recording, with one, and with stacks of C and of Python. Right where of the allocations that the job's own
thread makes in its forward pass every one has the job's functions, with their lines, where all but a few have a
library, and where a snapshot of the process, taken while it runs, has a history that the viewer can go through.

Exit status: 0 as it should be, 1 not, 2 wrong arguments. Needs a GPU and torch.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import shim_run

MEMCUDA = os.path.join(shim_run.ROOT, "target/release/memcuda")
CHECK = os.path.join(shim_run.ROOT, "tests/support/memory_viz.py")
HERE = os.path.abspath(__file__)
LAYERS, STEPS = 6, 40


def job():
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(LAYERS))

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return x

    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(rows):
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(rows, 1024, device="cuda")).square().mean().backward()
        optimizer.step()

    step(64)
    torch.cuda.synchronize()
    began = time.monotonic()
    for number in range(STEPS):
        step(64 + number % 7 * 32)
    torch.cuda.synchronize()
    print(json.dumps({"seconds": time.monotonic() - began}), flush=True)
    sys.stdin.read()


def run(folder, stacks):
    """The job's seconds, its trace as rows, what the check says of a snapshot."""
    env = {n: v for n, v in os.environ.items() if n != "LD_PRELOAD" and not n.startswith(("MEMCUDA_", "PYTORCH_"))}
    env.update(LD_PRELOAD=shim_run.LIBRARY, MEMCUDA_TORCH="async")
    trace, snapshot = (os.path.join(folder, f"{stacks}.{name}") for name in ("trace", "pickle"))
    if stacks != "off":
        env.update(MEMCUDA_TRACE=trace, MEMCUDA_TRACE_STACKS=stacks)
    child = subprocess.Popen([sys.executable, HERE, "--job"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said = child.stdout.readline()
    rows, checked = [], ""
    if said and stacks != "off":
        subprocess.run([MEMCUDA, "snapshot", str(child.pid), "-o", snapshot], check=True)
        check = subprocess.run([sys.executable, CHECK, snapshot], capture_output=True, text=True)
        checked = check.stdout.strip() or check.stderr.strip()
    child.communicate()
    if not said or child.returncode:
        sys.exit(f"FAIL: the job ended with {child.returncode}")
    if stacks != "off":
        text = subprocess.run([MEMCUDA, "trace", trace, "-o", "-"], check=True, capture_output=True, text=True).stdout
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        names = lines[0].split(",")
        rows = [dict(zip(names, line.split(","))) for line in lines[1:]]
    return json.loads(said)["seconds"], rows, checked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().job:
        return job()
    shim_run.need_gpu()
    for path in (shim_run.LIBRARY, MEMCUDA):
        shim_run.need_library(path)
    right = True
    with tempfile.TemporaryDirectory() as folder:
        for stacks in ("off", "none", "c", "python"):
            seconds, rows, checked = run(folder, stacks)
            allocs = [row for row in rows if row["op"] == "alloc"]
            result = {"kind": "stacks", "stacks": stacks, "ms_a_step": 1e3 * seconds / STEPS, "allocs": len(allocs),
                      "with_library": sum(bool(row["caller"]) for row in allocs), "snapshot": checked,
                      "libraries": sorted({row["caller"] for row in allocs})}
            if rows:
                right &= len(allocs) > STEPS * LAYERS and checked.startswith("segments ")
                right &= result["with_library"] > 0.9 * len(allocs)
            if stacks == "python":
                forward = [row for row in allocs if "!Model.forward" in row["stack"] or "<locals>.Model.forward" in row["stack"]]
                whole = [row for row in forward if f"{HERE}:" in row["stack"] and row["stack"].endswith("!<module>")]
                result.update(in_forward=len(forward), whole=len(whole), example=forward[0]["stack"] if forward else "")
                right &= len(forward) >= STEPS * LAYERS and len(whole) == len(forward)
            print(json.dumps(result), flush=True)
    print("as it should be" if right else "NOT as it should be")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
