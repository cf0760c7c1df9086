#!/usr/bin/env python3
"""The real allocators of torch's releases on a real GPU, of releases that need not be installed.

    python3 tests/gpu/torch_versions.py                    # those for CUDA 13, 20 s
    python3 tests/gpu/torch_versions.py 2.15.0 --seeds 20  # more programs, of this one alone
    python3 tests/gpu/torch_versions.py 2.10.0 --runtime /usr/local/cuda-12/lib64

Each release's own libc10_cuda.so serves the tensors of tests/compat/torch_allocators.cc, bare and under
every profile. Each kernel looks whether its tensor is still its own (random_on_gpu.cu). Proven where
all runs end well, read the same from their tensors, are refused once, and the library served.

Needs an NVIDIA GPU that nobody else uses, nvcc, libcudart.so of the releases' CUDA (--runtime, a
folder where the loader does not look) and their two libraries in target/compat/torch: the first time
pip fetches a wheel of each (up to 0.9 GB, which does not stay).
"""
import argparse
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "compat")]
import random_runs
import shim_run
from torch_allocators import CALLED, TELLS
from torch_releases import HEADER, PINNED, releases

COMPAT = os.path.join(shim_run.ROOT, "tests/compat")
PROFILES = {
    "keep": dict(MEMCUDA_TORCH="keep"),
    "native": dict(MEMCUDA_TORCH="native"),
    "segments": dict(MEMCUDA_TORCH="segments"),
    "async": dict(MEMCUDA_TORCH="async"),
}


def build(path):
    random_runs.build(path, "-std=c++17", "-DON_GPU", "-I", os.path.join(shim_run.ROOT, "sim/include"),
                      os.path.join(COMPAT, "torch_allocators.cc"), "-Xcompiler", "-pthread", "-Xlinker", "--export-dynamic",
                      "-ldl")


def counted(run):
    """What the program counted, by its name."""
    return dict(line.split(" ", 1) for line in run.out.splitlines() if " " in line)


def play(path, release, profile, seed, options):
    words = [f"{name}={place - HEADER}" for name, place in release.methods.items() if name in CALLED]
    folders = [os.path.dirname(release.library), *options.runtime, os.environ.get("LD_LIBRARY_PATH", "")]
    return shim_run.run([path, release.library, "async" if profile == "async" else "whole", *words],
                        preload=profile and os.path.abspath(options.library), limit=120,
                        LD_LIBRARY_PATH=":".join(filter(None, folders)), CUDA_MODULE_LOADING="EAGER", SEED=seed,
                        MEMCUDA_KEEPER="off", MEMCUDA_LOG="info", **PROFILES.get(profile, {}))


def wrong(run, bare, profile):
    """What is not as it should be under a profile."""
    said = counted(run)
    if run.status:
        yield run.reason()
    if said.get("sum") is None or said["sum"] != counted(bare).get("sum"):
        yield f"its tensors held {said.get('sum')}, bare {counted(bare).get('sum')}"
    if said.get("refused") != "1":
        yield f"{said.get('refused')} requests were refused, not 1"
    if not run.served:
        yield "the library served nothing"
    if profile != "keep" and TELLS not in run.err:
        yield "torch was told nothing"
    # Of what is refused torch warns by itself, from 2.13 on.
    yield from (line for line in run.err.splitlines()
                if line.startswith(("memcuda: warning", "memcuda: error")) or "[W" in line and "OOM on device" not in line)


def told(runs, faults):
    seconds = sum(run.seconds for run in runs)
    return f"{len(runs)} programs, {seconds:.1f} s" + "".join(f"\n     {fault}" for fault in faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="RELEASE", help=f"of: {', '.join(version for version, *_ in PINNED)}")
    parser.add_argument("--seeds", type=int, default=1, help="programs of each release under each profile")
    parser.add_argument("--runtime", action="append", default=[], metavar="DIR", help="where a libcudart.so of theirs lies")
    parser.add_argument("--library", default=shim_run.LIBRARY)
    options = parser.parse_args()
    shim_run.need_gpu()
    shim_run.need_library(options.library)
    wanted = options.versions or [version for version, cuda, *_ in PINNED if cuda == 13]
    verdicts = shim_run.Verdicts()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "torch_versions")
        build(path)
        for release in releases(wanted, CALLED):
            bare = [play(path, release, None, seed, options) for seed in range(options.seeds)]
            failed = [run.reason() for run in bare if run.status]
            verdicts.say(not failed, f"{release.version} bare", told(bare, failed))
            for profile in PROFILES:
                runs = [play(path, release, profile, seed, options) for seed in range(options.seeds)]
                faults = [f"seed {seed}: {fault}" for seed in range(options.seeds)
                          for fault in wrong(runs[seed], bare[seed], profile)]
                held = max((run.counters["peak_physical_bytes"] >> 20 for run in runs if run.counters), default=0)
                served = sum(run.served for run in runs)
                verdicts.say(not faults, f"{release.version} {profile}", f"{held:,} MiB held, {served:,} served, " + told(runs, faults))
    verdicts.finish()


if __name__ == "__main__":
    main()
