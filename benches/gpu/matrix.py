#!/usr/bin/env python3
"""PyTorch jobs under every allocator: memory efficiency, step time, first step, stalls.

    python3 benches/gpu/matrix.py --memory --record traces          # what each holds, and traces
    python3 benches/gpu/matrix.py --repeats 5 --deadline 540        # the rest, timed
    python3 benches/gpu/matrix.py --table --have FILE --have FILE   # all of it as one table

A cell is a workload under an allocator, in a process of its own (cell.py); its result is a
line appended to --results. Cells that are there, or in a --have FILE, are not run again,
so a bench that --deadline cut off goes on where it stopped, on another machine too. Every
workload is run under native, expandable, memcuda-native and memcuda-async, three of them
under the others as well (--allocators and --workloads choose otherwise).

Repeat 0 samples memory and is not timed: several cells run at once where NVML tells what a
process holds. The repeats from 1 on are timed, each alone on the GPU, the allocators of a
workload one after the other in another order each time; torch native runs beside them
whenever one of them is missing, because a step is only compared with the same step of
torch's run of that round in that run of the bench. Whatever needs no GPU is done ahead of a cell's turn.
Needs an NVIDIA GPU that nobody else uses and what cell.py needs.
"""
import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile

import results
import rounds
import summary
import tables
from allocators import ALLOCATORS, FOUR, OTHERS, environment, shim_run
from cells import Child
from workloads import WORKLOADS

# The workloads that the other allocators run too: a model, images, a server.
BROAD = ["llm_lora_recompute", "detect_varsize", "serving_kv_growth"]
# How much more than its live bytes an allocator may take: for how many cells fit side by side.
WASTE, CONTEXT_MIB = {"native": 3.0, "rmm-pool": 3.0}, 800
WORST = {("two_streams", "native"): 9.0, ("two_streams", "expandable"): 3.5}


def run(a, files):
    """Runs what is missing; returns how many cells failed."""
    extra = dict(s.split("=", 1) for s in a.set)
    build = None if a.smoke else results.library()
    good = results.good(files, "cell")

    others = [x for x in OTHERS if a.smoke or a.wheels or not ALLOCATORS[x].rmm or importlib.util.find_spec("rmm")]
    if len(others) < len(OTHERS) and not a.allocators:
        print("RMM is NOT run: it is not installed and --wheels names no folder with it")

    def wanted(workload, repeat):
        return a.allocators or FOUR + (others if workload in BROAD and repeat <= a.others else [])

    def start(item):
        workload, allocator, repeat = item
        words = [workload]
        if a.smoke:
            return Child("cell.py", words + ["--device", "cpu", "--scale", "tiny"], environment("native"))
        if ALLOCATORS[allocator].rmm:
            words += ["--rmm", ALLOCATORS[allocator].rmm]
        if repeat == 0:
            words.append("--sample")
            if a.record and allocator == "native":
                words += ["--record", os.path.abspath(os.path.join(a.record, f"{workload}.csv.zst"))]
        return Child("cell.py", words, environment(allocator, wheels, extra))

    def line(item):
        shim = dict(library=build, extra=extra) if ALLOCATORS[item[1]].shim else {}
        return dict(kind="cell", workload=item[0], **shim)

    def need_mib(item):
        return WORKLOADS[item[0]].live_mib * WORST.get(item[:2], WASTE.get(item[1], 1.5)) + CONTEXT_MIB

    repeats = [0] if a.memory else range(a.first, a.repeats + 1)
    items = list(rounds.plan(a.workloads, wanted, repeats, good, build))
    with tempfile.TemporaryDirectory() as folder:
        wheels = install(a.wheels, folder) if a.wheels and any(ALLOCATORS[i[1]].rmm for i in items) else None
        bench = rounds.Rounds(a, items, rounds.expected_s(good), start, line, need_mib)
        bench.go()
    return bench.failed


def install(folder, into):
    """The wheels of a folder, unpacked where the RMM cells import from."""
    wheels = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".whl")]
    if not wheels:
        sys.exit(f"FAIL: no wheel in {folder}")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile",
                    "--target", into, *wheels], check=True)
    return into


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--workloads", help=f"of {', '.join(WORKLOADS)}")
    ap.add_argument("--allocators", help=f"of {', '.join(ALLOCATORS)}")
    ap.add_argument("--repeats", type=int, default=5, help="timed repeats, beside the one that samples memory")
    ap.add_argument("--others", type=int, default=3, metavar="REPEATS", help="timed repeats of the allocators that three workloads have")
    ap.add_argument("--first", type=int, default=0, help="begin with this repeat (1 leaves out the one that samples memory)")
    ap.add_argument("--memory", action="store_true", help="only the repeat that samples memory")
    ap.add_argument("--record", metavar="DIR", help="write torch native's allocator events there, in the repeat that samples memory")
    ap.add_argument("--wheels", metavar="DIR", help="wheels of RMM; without them its cells need rmm installed")
    ap.add_argument("--together", type=int, default=2, help="cells at once in the repeat that samples memory")
    ap.add_argument("--ahead", type=int, default=6, help="cells that are made ready while one runs")
    ap.add_argument("--limit", type=int, default=150, help="seconds that a cell may take")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="begin no cell that may end after so many seconds")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "matrix.jsonl"))
    ap.add_argument("--have", action="append", default=[], metavar="FILE", help="results of earlier runs")
    ap.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="environment of the memcuda cells")
    ap.add_argument("--table", action="store_true", help="run nothing, print the table")
    ap.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU, every allocator torch's own: tests these scripts, and no table takes it")
    ap.add_argument("--markdown", action="store_true", help="the table as Markdown")
    a = ap.parse_args()
    a.workloads = a.workloads.split(",") if a.workloads else list(WORKLOADS)
    a.allocators = a.allocators.split(",") if a.allocators else None
    for names, known in (a.workloads, WORKLOADS), (a.allocators or [], ALLOCATORS):
        for name in names:
            if name not in known:
                ap.error(f"unknown {name}; known: {', '.join(known)}")
    if any("=" not in s for s in a.set):
        ap.error("--set takes NAME=VALUE")
    return a


def main():
    a = arguments()
    files = a.have + [a.results]
    failed = 0
    if not a.table:
        if not a.smoke:
            shim_run.need_gpu()
            shim_run.need_library()
        if a.record:
            os.makedirs(a.record, exist_ok=True)
        failed = run(a, files)
    print(tables.text(summary.Results.read(files), markdown=a.markdown), end="")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
