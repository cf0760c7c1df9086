#!/usr/bin/env python3
"""CUDA IPC of pooled memory on a real GPU: what programs do with it bare and with
the library, which must come to the same.

    python3 tests/gpu/ipc.py              # everything; two GPUs for the all-reduce
    python3 tests/gpu/ipc.py cases torch  # some of it

  cases       tests/gpu/ipc_cases.c: every answer, and what the calls cost
  torch       torch.multiprocessing with CUDA tensors in queues, unchanged: torch shares
              segments by CUDA IPC, pages of expandable segments by descriptors
  segments    torch's memory by CUDA IPC without torch's help: range start, handle,
              offset; ranges that grow and shrink, and what libraries ask of them
  killed      a consumer is killed with a kernel running: its memory comes back,
              and nothing writes to it afterwards
  allreduce   over IPC handles as vLLM's custom all-reduce does it: range start,
              handle, offset; eager and in a CUDA graph

The last four are programs of tests/gpu/ipc_programs.

Prints a PASS or FAIL line each and the table last; exits with 1 where anything
failed or is missing. Needs NVIDIA GPUs, torch, cupy, gcc and `make build`; the
keeper that the library starts is stopped at the end.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run

HERE = os.path.dirname(os.path.abspath(__file__))
MEMCUDA = os.path.join(shim_run.ROOT, "target/release/memcuda")
PROGRAMS = os.path.join(HERE, "ipc_programs")

# What may differ in ipc_cases: with the library memory stays as long as
# anybody has it open, whatever its exporter does.
BETTER = ("open of what was freed", "open after the exporter's end", "the bytes after the exporter's end", "open when all are gone")


def cases(verdicts, table):
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "ipc_cases")
        subprocess.run(["gcc", "-O2", "-o", program, os.path.join(HERE, "ipc_cases.c"), "-ldl"], check=True)
        bare, pooled = shim_run.run([program], limit=120), shim_run.run([program], shim_run.LIBRARY, 120, True)
    for side, run in (("bare", bare), ("with", pooled)):
        if run.status:
            return verdicts.say(False, "cases", f"{side}: {run.reason()}")
    lines = lambda run: dict(line.split(": ", 1) for line in run.out.splitlines() if ": " in line)
    left, right = lines(bare), lines(pooled)
    for name in left:
        if name.startswith("us to"):
            table.append((name, left[name], right.get(name, "-")))
            continue
        same = left[name] == right.get(name)
        verdicts.say(same or name in BETTER, f"case {name}", left[name] if same else f"bare {left[name]}; with {right.get(name)}")
    verdicts.say(pooled.served > 0, "cases are served by the pool", str(pooled.served))


def compared(verdicts, table, name, profiles, bare_too=True):
    """A program bare and under profiles: the results are the same."""
    command = [sys.executable, PROGRAMS, name]

    def once(preload, **environment):
        run = shim_run.run(command, preload, 280, True, **environment)
        try:
            return run, json.loads(run.last_line)
        except json.JSONDecodeError:
            return run, dict(refused=run.reason())

    bare = once(None)[1] if bare_too else {}
    if "refused" in bare:
        return verdicts.say(False, name, f"bare: {bare['refused']}")
    of_bare = bare.pop("other", {})
    for profile in profiles:
        run, said = once(shim_run.LIBRARY, MEMCUDA_TORCH=profile)
        title = f"{name} ({profile})"
        if "refused" in said:
            lines = [line for line in run.err.splitlines() if line.startswith("memcuda:")]
            verdicts.say(False, title, f"{said['refused']}; {' | '.join(lines[:3])}")
            continue
        other = said.pop("other", {})
        good = not bare_too or said == bare
        why = "" if good else f"bare {bare}; with {said}"
        if good and not run.served:
            good, why = False, "equal, but the pool served nothing"
        verdicts.say(good, title, why or f"{run.served} served")
        for key in other:
            table.append((f"{title} {key}", of_bare.get(key, "-"), other[key]))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["cases", "torch", "segments", "killed", "allreduce"]
    ap.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)} (default: all)")
    a = ap.parse_args()
    wanted = a.parts or parts
    for part in wanted:
        if part not in parts:
            ap.error(f"unknown part {part}; known: {', '.join(parts)}")
    shim_run.need_gpu()
    shim_run.need_library()
    shim_run.need_library(MEMCUDA)
    verdicts, table = shim_run.Verdicts(), []
    if "cases" in wanted:
        cases(verdicts, table)
    if "torch" in wanted:
        compared(verdicts, table, "torch_queues", ["expandable", "segments", "keep", "auto"])
        compared(verdicts, table, "torch_killed", ["expandable", "segments", "keep"])
    if "segments" in wanted:
        compared(verdicts, table, "segments", ["expandable", "segments", "keep"])
    if "killed" in wanted:
        compared(verdicts, table, "stray_writes", ["auto"], bare_too=False)
    if "allreduce" in wanted:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60).stdout
        if len(re.findall(r"^GPU \d", listing, re.M)) < 2:
            verdicts.say(False, "allreduce", "this needs two GPUs")
        else:
            compared(verdicts, table, "allreduce", ["expandable", "segments", "keep"])
    status = subprocess.run([MEMCUDA, "keeper", "status"], capture_output=True, text=True)
    print(status.stdout or status.stderr)
    subprocess.run([MEMCUDA, "keeper", "stop", "--force"], capture_output=True)
    print(f"{'':58} {'bare':>24} {'with':>24}")
    for name, left, right in table:
        print(f"{name:58} {str(left):>24} {str(right):>24}")
    verdicts.finish()


if __name__ == "__main__":
    main()
