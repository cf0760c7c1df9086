#!/usr/bin/env python3
"""PyTorch workloads under several allocators, interleaved: memory efficiency and
step time, with confidence intervals.

    python3 benches/gpu/allocators.py --repeats 5 --deadline 540

Each cell (workload, allocator, repeat) runs in a process of its own; its raw
result is one line appended to $OUT/results.jsonl (or --results FILE). Cells that
are already there, or in a --have FILE, are not run again, so a bench that was
cut off by --deadline goes on where it stopped. At the end, and with --table
alone, a table is printed.

Repeat 0 samples device memory by NVML in a thread of the workload; the others
do not, and only they are timed (unless there is no other). live is torch's
requested_bytes.all.peak of the same seed under its native allocator, physical
the pool's own counter or, without the pool, torch's reserved bytes.
Needs an NVIDIA GPU that nobody else uses, torch, transformers, peft,
torchvision and nvidia-ml-py.
"""
import argparse
import json
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/gpu"))
import json_lines
import shim_run

WORKLOADS = ["llm_lora_recompute", "detect_varsize", "llm_full_offload"]
ALLOCATORS = {
    "native": dict(),
    "expandable": dict(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
    "async": dict(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"),
    "memcuda-native": dict(MEMCUDA_TORCH="native"),
    "memcuda-async": dict(MEMCUDA_TORCH="async"),
    "memcuda-keep": dict(MEMCUDA_TORCH="keep"),
}
DEFAULT = ["native", "expandable", "async", "memcuda-native", "memcuda-async"]


def run_cell(workload, allocator, repeat, limit, extra):
    command = [sys.executable, os.path.join(HERE, "torch_workloads.py"), workload]
    if repeat:
        command.append("--no-sampler")
    pooled = allocator.startswith("memcuda")
    environment = dict(ALLOCATORS[allocator], **(extra if pooled else {}))
    result = shim_run.run(command, shim_run.LIBRARY if pooled else None, limit, **environment)
    cell = dict(workload=workload, allocator=allocator, repeat=repeat, status=result.status,
                wall_s=round(result.seconds, 1), extra=extra if pooled else {})
    if result.status == 0:
        cell["torch"] = json.loads(result.last_line)
    else:
        cell["error"] = result.reason()
    if pooled:
        cell["pool"] = result.counters
        if result.status == 0 and not (result.counters or {}).get("requests"):
            cell["status"], cell["error"] = 1, "the pool served nothing"
        cell["said"] = [line for line in result.err.splitlines() if line.startswith("memcuda:")][:20]
    return cell


def key(cell):
    return cell["workload"], cell["allocator"], cell["repeat"]


def step_ratio(native, ours):
    """How much longer a step takes in one run than in another. The same seed gives both
    the same steps, so each step is set against itself and the median step is quoted:
    sizes change from step to step, and a ratio of medians would compare two different ones."""
    steps = [theirs.get("step_ms") for theirs in (native, ours)]
    if all(steps):
        return statistics.median(b / a for a, b in zip(*steps))
    return ours["median_step_ms"] / native["median_step_ms"]


def ratio_interval(ratios, rounds=10000):
    """Median of the ratios of interleaved runs and its 95 % bootstrap interval."""
    if len(ratios) < 3:
        return statistics.median(ratios), None
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(rounds))
    return statistics.median(ratios), (medians[int(0.025 * rounds)], medians[int(0.975 * rounds) - 1])


def table(cells):
    good = {key(c): c for c in cells if c["status"] == 0}
    print(f"{'workload':20} {'allocator':15} {'live':>7} {'physical':>9} {'effic.':>7} {'NVML':>7} "
          f"{'step ms':>8} {'ratio':>6} {'95 % interval':>15} {'n':>2} {'driver':>7} {'hits':>7}  MiB, ms")
    for workload in WORKLOADS:
        native = {r: c["torch"] for (w, a, r), c in good.items() if (w, a) == (workload, "native")}
        live = max((t["peak_requested_mib"] for t in native.values()), default=0)
        for allocator in ALLOCATORS:
            mine = {r: c for (w, a, r), c in good.items() if (w, a) == (workload, allocator)}
            bad = [c for c in cells if (c["workload"], c["allocator"]) == (workload, allocator) and c["status"]]
            for c in bad[-1:]:
                print(f"{workload:20} {allocator:15} FAILED {len(bad)} times: {c.get('error', '')[:120]}")
            if not mine:
                continue
            timed = sorted(r for r in mine if r) or sorted(mine)
            step = statistics.median(mine[r]["torch"]["median_step_ms"] for r in timed)
            pools = [c["pool"] for c in mine.values() if c.get("pool")]
            if pools:
                physical = max(p["peak_physical_bytes"] for p in pools) >> 20
                driver = f"{statistics.median(p['driver_ns'] for p in pools) / 1e9:.2f} s"
                hits = f"{100 * statistics.median(p['hits'] / max(1, p['requests']) for p in pools):.2f}%"
            else:
                physical, driver, hits = max(c["torch"]["peak_reserved_mib"] for c in mine.values()), "-", "-"
            nvml = max((c["torch"]["peak_device_mib"] for c in mine.values()), default=0)
            ratios = [step_ratio(native[r], mine[r]["torch"]) for r in timed if r in native]
            ratio, interval = ratio_interval(ratios) if ratios else (float("nan"), None)
            spread = f"{interval[0]:.3f} - {interval[1]:.3f}" if interval else "-"
            share = f"{100 * live / physical:.1f} %" if live and physical else "-"
            print(f"{workload:20} {allocator:15} {live:7} {physical:9} {share:>7} {nvml or '-':>7} {step:8.1f} "
                  f"{ratio:6.3f} {spread:>15} {len(timed):2} {driver:>7} {hits:>7}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--workloads", default=",".join(WORKLOADS))
    ap.add_argument("--allocators", default=",".join(DEFAULT), help=f"of {', '.join(ALLOCATORS)}")
    ap.add_argument("--repeats", type=int, default=5, help="timed repeats, beside the one that samples memory")
    ap.add_argument("--only-repeat", type=int, help="just this repeat (0 samples memory)")
    ap.add_argument("--limit", type=int, default=150, help="seconds that a cell may take")
    ap.add_argument("--deadline", type=float, default=float("inf"), help="begin no cell that may end after so many seconds")
    ap.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "results.jsonl"))
    ap.add_argument("--have", action="append", default=[], metavar="FILE", help="results of earlier runs")
    ap.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="environment of the memcuda cells")
    ap.add_argument("--table", action="store_true", help="run nothing, print the table")
    a = ap.parse_args()
    workloads, allocators = a.workloads.split(","), a.allocators.split(",")
    for name, known in [(w, WORKLOADS) for w in workloads] + [(x, ALLOCATORS) for x in allocators]:
        if name not in known:
            ap.error(f"unknown {name}; known: {', '.join(known)}")
    if any("=" not in s for s in a.set):
        ap.error("--set takes NAME=VALUE")
    files = a.have + [a.results]
    if not a.table:
        shim_run.need_gpu()
        if any(x.startswith("memcuda") for x in allocators):
            shim_run.need_library()
        extra = dict(s.split("=", 1) for s in a.set)
        done = {key(c) for c in json_lines.read(files) if c["status"] == 0}
        begin, longest, left_out, failed = time.time(), {}, 0, 0
        repeats = [a.only_repeat] if a.only_repeat is not None else range(a.repeats + 1)
        for repeat in repeats:
            for workload in workloads:
                # Another order each time, so that no allocator always follows the same one.
                order = allocators[:]
                random.Random(f"{repeat}{workload}").shuffle(order)
                for allocator in order:
                    if (workload, allocator, repeat) in done:
                        continue
                    expected = longest.get(workload, 60)
                    if time.time() - begin + expected > a.deadline:
                        left_out += 1
                        continue
                    left = a.deadline - (time.time() - begin)
                    cell = run_cell(workload, allocator, repeat, min(a.limit, left), extra)
                    longest[workload] = max(longest.get(workload, 0), cell["wall_s"] * 1.15)
                    failed += cell["status"] != 0
                    json_lines.append(a.results, cell)
                    brief = cell.get("torch") or {}
                    print(f"{workload} {allocator} #{repeat}: " + (f"{brief['median_step_ms']} ms, reserved {brief['peak_reserved_mib']} MiB"
                          if brief else cell.get("error", "?")) + f", {cell['wall_s']} s", flush=True)
        if left_out:
            print(f"{left_out} cells left for another run")
    table(json_lines.read(files))
    if not a.table:
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
