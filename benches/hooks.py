#!/usr/bin/env python3
"""What the library costs a program beyond what its runtime costs anyway: a pair
of malloc and free over a driver whose allocations do nothing (empty), on the
pool (shim), and without anything (bare); through libcudart and straight from
libcuda. Needs a C compiler.

    make build && python3 benches/hooks.py                     the simulated GPU
    python3 benches/hooks.py --cudart /path/libcudart.so.13    this machine's GPU

`above` is shim - empty: what the pool and the hooks take. `async` is
cudaMallocAsync and cudaFreeAsync; `malloc` is cudaMalloc and cudaFree, whose
free waits for the device, as it does bare; `ordered` is the same under
MEMCUDA_FREE=ordered, which does not wait. One thread is measured in processor
time, more by the clock on the wall, each on a stream of its own; x is how many
times one thread's pairs all of them do. Medians of all runs of all rounds, and
the lowest and highest median of a round; the variants take turns.

Exit status: 0 measured, 1 something failed, 2 wrong arguments.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = [512, 64 << 10, 1 << 20, 64 << 20]
THREADS = [1, 2, 4, 8, 16]
RUNS = 7


def machine():
    with open("/proc/cpuinfo") as info:
        models = [line.split(": ", 1)[1].strip() for line in info if line.startswith("model name")]
    return {"cpu": (models or ["unknown"])[0], "cores": os.cpu_count(), "date": datetime.date.today().isoformat()}


MACHINE = machine()


def build(folder):
    compiler = os.environ.get("CC", "cc")
    here = os.path.join(ROOT, "benches")
    flags = ["-O2", "-Wall", "-Wextra"]
    program, empty = os.path.join(folder, "hooks"), os.path.join(folder, "empty_driver.so")
    for command in ([compiler, *flags, "-o", program, f"{here}/hooks.c", "-ldl", "-lpthread"],
                    [compiler, *flags, "-shared", "-fPIC", "-o", empty, f"{here}/empty_driver.c", "-ldl"]):
        subprocess.run(command, check=True)
    return program, empty


def measured(command, preload, path, free, expected):
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("MEMCUDA_")}
    if path:
        environment["LD_LIBRARY_PATH"] = path
    if preload:
        environment["LD_PRELOAD"] = preload
    if free:
        environment["MEMCUDA_FREE"] = free
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"FAIL: {' '.join(command)}: {done.stderr.strip()}")
    served, *runs = done.stdout.split()
    if served != expected:
        sys.exit(f"FAIL: {' '.join(command)}: served by {served}, not {expected}")
    return [float(run) for run in runs]


def cases(quick):
    """(calls, size, threads); every size with one thread, every number of threads with one size."""
    for calls in ("async", "malloc"):
        yield from ((calls, size, 1) for size in (SIZES[2:3] if quick else SIZES))
    for size in (512, 1 << 20):
        yield from (("async", size, threads) for threads in THREADS[1:] if not quick)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cudart", help="NVIDIA's runtime, over this machine's driver; else all is simulated")
    parser.add_argument("--release", default=os.path.join(ROOT, "target/release"), help="where libmemcuda.so is")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=20000, help="of a run")
    parser.add_argument("--quick", action="store_true", help="one size, one thread")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    shim = os.path.join(options.release, "libmemcuda.so")
    sim = os.path.join(options.release, "sim")
    runtime = options.cudart or os.path.join(sim, "libcudart.so.13")
    for file in (shim, runtime):
        if not os.path.exists(file):
            sys.exit(f"FAIL: {file} is missing")
    path = None if options.cudart else sim

    with tempfile.TemporaryDirectory() as folder:
        program, empty = build(folder)
        # What is preloaded, MEMCUDA_FREE, who must have served.
        variants = {"empty": (empty, None, "empty"), "shim": (shim, None, "pool"), "bare": (None, None, "driver")}
        if not options.json:
            print(f"over {'the driver of this machine' if options.cudart else 'the simulated GPU'}, "
                  f"{os.cpu_count()} cores; ns a pair, [lowest, highest] of {options.rounds} rounds")
            print(f"{'library':8} {'calls':8} {'bytes':>9} {'threads':>7} {'bare':>9} {'empty':>9} "
                  f"{'shim':>9} {'above':>8}")
        alone = {}
        for library in (runtime, "libcuda.so.1"):
            name = "cudart" if library == runtime else "driver"
            for calls, size, threads in cases(options.quick):
                ways = dict(variants)
                if calls == "malloc":
                    ways["ordered"] = (shim, "ordered", "pool")
                found = {way: [] for way in ways}
                pairs = max(200, options.pairs // threads)
                for _ in range(options.rounds):
                    for way, (preload, free, expected) in ways.items():
                        command = [program, library, calls, str(size), str(threads), str(pairs), str(RUNS)]
                        found[way].append(statistics.median(measured(command, preload, path, free, expected)))
                for shown, way in (("shim", calls), ("ordered", "ordered")):
                    if shown in found:
                        show(options.json, name, way, size, threads, found, shown, alone)


def show(as_json, library, calls, size, threads, found, shown, alone):
    """A row: bare, empty, and the variant `shown`."""
    middle = {way: statistics.median(found[way]) for way in ("bare", "empty", shown)}
    if as_json:
        for way in ("bare", "empty", shown):
            print(json.dumps({
                "schema": "memcuda.bench/1", "kind": "cpu", "what": f"{library} {calls} {'shim' if way == shown else way}",
                "size": size, "threads": threads, "live": 1, "median_ns": round(middle[way], 1),
                "low_ns": min(found[way]), "high_ns": max(found[way]), "machine": MACHINE}), flush=True)
        return
    text = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1024 else f"{size} B"
    key = (library, calls, size)
    alone.setdefault(key, middle[shown])
    faster = f"  {threads * alone[key] / middle[shown]:.2f} x" if threads > 1 else ""
    print(f"{library:8} {calls:8} {text:>9} {threads:7} {middle['bare']:9.1f} {middle['empty']:9.1f} "
          f"{middle[shown]:9.1f} {middle[shown] - middle['empty']:8.1f} "
          f" [{min(found[shown]):.1f}, {max(found[shown]):.1f}]{faster}", flush=True)


if __name__ == "__main__":
    main()
