#!/usr/bin/env python3
"""The real allocators of torch's releases over the simulated GPU, with and without the library.

    make test-torch
    tests/compat/torch_allocators.py 2.13.0 2.15.0      # of these alone

Each release's own libc10_cuda.so serves the same random tensors (torch_allocators.cc): bare,
and under every profile of libmemcuda.so. Proven where all runs end well and read the same
from their tensors, each of which lies in one allocation, torch counts under `keep` what it counts bare, the library told torch what
it should and knew every segment for torch's own, the native profile held no more than torch
by itself, and served a device on which torch by itself runs out of memory.

The first time, pip fetches a wheel of each release (7 GB in all, one at a time), of which
the two libraries stay.
"""
import itertools
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fetch import FOLDER, RELEASE, ROOT, fail, ready, run
from torch_releases import HEADER, releases

HERE = os.path.dirname(os.path.abspath(__file__))
CALLED = ["init", "allocate", "raw_deleter", "raw_alloc_with_stream", "raw_delete", "recordStream", "emptyCache",
          "beginAllocateToPool", "endAllocateToPool", "beginAllocateStreamToPool", "endAllocateStreamToPool",
          "releasePool", "getDeviceStats", "shareIpcHandle", "createOrIncrefPool", "setUseOnOOM"]
# Those that the shim looks for and this test does not call.
WATCHED = ["enable", "setMemoryFraction", "getBaseAllocation"]
# Between what the native profile needs and what torch by itself does.
SMALL = ("MEMCUDA_SIM_MEMORY", "800MiB")
OUT_OF_MEMORY = 3
# Programs in which a pool is given up whose tensors live on: torch ends if it was in expandable segments.
LIVE_ON = ("17", "34", "36")
# Freed memory is overwritten: who reads it is seen.
OVERWRITES = (("MALLOC_PERTURB_", "165"), ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"))
# Each tensor is asked whether it lies in one allocation, when it comes and when it goes.
RANGES = ("RANGES", "1")
# What users set; a release that does not know one ends, bare and under the library.
USERS = ("garbage_collection_threshold:0.6,per_process_memory_fraction:0.2", "roundup_power2_divisions:4",
         "max_split_size_mb:64", "large_segment_size_mb:40", "large_segment_size_mb:25", "expandable_segments:False",
         "expandable_segments:True", "expandable_segments_reserve:0.005", "throw_on_cudamalloc_oom:True",
         "release_lock_on_cudamalloc:True", "graph_capture_record_stream_reuse:True", "backend:native", "no_such_key:3")
# These look for a function in libcuda that the simulated one lacks, once there is a
# management library.
WITHOUT_NVML = ("2.6.0", "2.7.0")

# What management libraries say of a fabric beside that there is none.
KNOWS = {"before": ["-DBEFORE_HOPPER"], "fabric": ["-DFABRIC"]}

TELLS = "torch is told PYTORCH_CUDA_ALLOC_CONF="
SEGMENTS = TELLS + "max_split_size_mb:32"
PAGES = TELLS + "expandable_segments:True,large_segment_size_mb:12,max_split_size_mb:192"
KEEPS = "torch keeps its own settings: MEMCUDA_TORCH=keep"
ASYNC = TELLS + "backend:cudaMallocAsync"
ASKED = "torch was asked to give memory back: "
OTHERS = "not torch's own"


@dataclass
class Play:
    status: int
    # What the program counted, by its name, and what was said beside it.
    said: dict
    log: str

    def mib(self, name):
        return int(self.said.get(name, "0")) >> 20

    def fared(self):
        """Its end in a line."""
        lines = [line for line in self.log.splitlines() if not line.startswith(("memcuda: ", "frame #"))]
        telling = [line for line in lines if re.match(r"FAIL|memcuda-sim|  what", line)]
        return f"status {self.status}, {(telling + lines + ['nothing said'])[0].strip()[:200]}"


def machine(release, nvml):
    """A folder beside the release with a driver, a runtime and a management library: `now`, one of before
    Hopper, one that knows of a `fabric`, or `none`, which a file stands for that cannot be loaded, whatever
    else the machine has."""
    folder = os.path.join(os.path.dirname(release.library), f"nvml-{nvml}")
    os.makedirs(folder, exist_ok=True)
    sim = os.path.join(RELEASE, "sim")
    for name, file in (("libcuda.so.1", "libcuda.so.1"), ("libcuda.so", "libcuda.so.1"),
                       (f"libcudart.so.{release.cuda}", "libcudart.so.13")):
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            os.remove(path)
        os.symlink(os.path.join(sim, file), path)
    path = os.path.join(folder, "libnvidia-ml.so.1")
    if nvml == "none":
        open(path, "w").close()
    else:
        run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path,
             os.path.join(HERE, "torch_nvml.c"), *KNOWS.get(nvml, [])])
    return folder


class Player:
    """Runs the program over one release."""

    def __init__(self, program, library, release):
        self.program, self.library, self.release = program, library, release
        self.machines = {nvml: machine(release, nvml) for nvml in ("now", "before", "fabric", "none")}
        self.words = [f"{name}={place - HEADER}" for name, place in release.methods.items() if name in CALLED]
        self.usual = "none" if release.version in WITHOUT_NVML else "now"

    def play(self, what, *settings, bare=False, nvml=None):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("MEMCUDA_", "PYTORCH_", "TORCH_", "LD_"))}
        environment |= {"LD_LIBRARY_PATH": self.machines[nvml or self.usual],
                        "MEMCUDA_KEEPER": "off", "MEMCUDA_LOG": "info"}
        if not bare:
            environment["LD_PRELOAD"] = self.library
        environment |= dict(settings)
        try:
            done = subprocess.run([self.program, self.release.library, what, *self.words], text=True,
                                  capture_output=True, timeout=120, env=environment)
        except subprocess.TimeoutExpired:
            return Play(-1, {}, "not done after two minutes")
        said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
        return Play(done.returncode, said, done.stderr)


def same_counters(bare, again, keep):
    """Torch writes words that count nothing, too, such as 2.15: those are no two times the same."""
    words = [play.said.get("counters", "").split() for play in (bare, again, keep)]
    known = [i for i, (one, other) in enumerate(zip(*words[:2])) if one == other]
    return len(known) >= 100 and len({len(of) for of in words}) == 1 and all(
        words[0][i] == words[2][i] for i in known)


def tried(player):
    """What failed over one release, and its row of the table."""
    failures = []
    release = player.release
    told = PAGES if release.maps_pages else SEGMENTS

    def check(holds, what):
        if not holds:
            failures.append(f"torch {release.version}: {what}")

    bare, again = (player.play("whole", bare=True) for _ in range(2))
    check(bare.status == 0 and again.status == 0, f"bare: {bare.fared()}; {again.fared()}")
    check(bare.said.get("left") == "0", f"bare: {bare.said.get('left')} bytes held in the end")
    debug = ("MEMCUDA_LOG", "debug")
    plays = {
        "default": (told, player.play("whole", RANGES)),
        "keep": (KEEPS, player.play("whole", ("MEMCUDA_TORCH", "keep"), debug)),
        "async": (ASYNC, player.play("async", ("MEMCUDA_TORCH", "async"))),
        "segments": (SEGMENTS, player.play("whole", ("MEMCUDA_TORCH", "segments"))),
    }
    for name, (decided, play) in plays.items():
        check(play.status == 0, f"{name}: {play.fared()}")
        check(play.said.get("sum", name) == bare.said.get("sum"), f"{name}: its tensors held something else than bare")
        check(play.said.get("refused") == "1", f"{name}: {play.said.get('refused')} requests refused, not 1")
        check(f": {decided}\n" in play.log, f"{name}: the library does not say {decided!r}")
        check(not re.search("^memcuda: (warning|error)", play.log, re.M), f"{name}: the library warns")
    default, keep = plays["default"][1], plays["keep"][1]
    check(ASKED in default.log, "default: torch was never asked")
    for name in ("default", "segments"):
        held = plays[name][1].mib("physical")
        check(held <= bare.mib("physical"), f"{name}: held {held} MiB, bare {bare.mib('physical')}")
    check(same_counters(bare, again, keep), "keep: torch counted something else than bare")

    for seed in LIVE_ON:
        play = player.play("whole", ("SEED", seed), RANGES)
        check(play.status == 0, f"default, seed {seed}: {play.fared()}")

    for name in ("native", "segments"):
        play = player.play("whole", ("MEMCUDA_TORCH", name), *OVERWRITES)
        check(play.status == 0, f"{name}, where freed memory is overwritten: {play.fared()}")

    for setting in USERS:
        user = ("PYTORCH_CUDA_ALLOC_CONF", setting)
        alone, under = player.play("whole", user, bare=True), player.play("whole", user)
        check(under.status == alone.status and under.said.get("sum") == alone.said.get("sum"),
              f"{setting}: {under.fared()}; bare: {alone.fared()}")
        check(under.mib("physical") <= alone.mib("physical"), f"{setting}: holds more than bare")

    # A thread for each of two devices at once.
    two = ("MEMCUDA_SIM_DEVICES", "2")
    alone = player.play("devices", two, bare=True)
    check(alone.status == 0, f"bare on two devices: {alone.fared()}")
    for seed, name in itertools.product(("0", "1", "2", "3"), ("native", "segments")):
        play = player.play("devices", two, ("SEED", seed), ("MEMCUDA_TORCH", name))
        same = seed != "0" or play.said.get("sum") == alone.said.get("sum")
        check(play.status == 0 and same, f"{name} on two devices, seed {seed}: {play.fared()}")

    # Tensors alone, each in a segment of torch's own: extensions allocate in the other plays.
    known = player.play("tight", ("MEMCUDA_TORCH", "keep"), debug)
    check(known.status == 0 and OTHERS not in known.log, f"keep: segments were not known: {known.fared()}")
    check(OTHERS in keep.log, "keep: what extensions allocate was taken for torch's own")

    short = player.play("tight", SMALL, bare=True)
    check(short.status == OUT_OF_MEMORY, f"bare on {SMALL[1]}: {short.fared()}")
    native = player.play("tight", SMALL, ("MEMCUDA_TORCH", "native"))
    check(native.status == 0, f"native on {SMALL[1]}: {native.fared()}")
    check(native.said.get("sum", "") == known.said.get("sum"), "native: its tensors held something else than keep")
    check(f": {told}\n" in native.log and ASKED in native.log, "native: torch was not told, or never asked")
    check("[W" not in native.log, f"native: torch warned of what is no failure: {native.fared()}")

    if release.maps_pages:
        for name in ("native", "segments"):
            ended = player.play("ended", SMALL, ("MEMCUDA_TORCH", name))
            check(ended.status == 0 and ASKED in ended.log, f"{name} on {SMALL[1]}, after a pool: {ended.fared()}")

    # Another thread than the private pool's needs what torch holds idle, which is there once; the pool
    # itself needs most of the device.
    for case in ("beside", "private"):
        alone, under = player.play(case, SMALL, bare=True), player.play(case, SMALL, ("MEMCUDA_TORCH", "native"))
        check(alone.status == 0, f"bare, {case}: {alone.fared()}")
        check(under.status == 0, f"native, {case}: {under.fared()}")

    # Segments that a program wants by cudaMalloc, after pages, are of torch's own size.
    if release.maps_pages:
        for user in ([], [("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")]):
            alone, under = player.play("turned", SMALL, *user, bare=True), player.play("turned", SMALL, *user)
            check(alone.status == 0, f"bare, turned: {alone.fared()}")
            check(under.status == 0, f"turned: {under.fared()}")

    # Pinned memory asks for the settings as well, and nothing that is said to it is said to the device's allocator.
    for case, memory, *more in (("captures", "1500MiB", "512"), ("refusal", "1000MiB", "512"), ("tight", "16GiB")):
        pinned = [("PINNED", "1"), ("MEMCUDA_SIM_MEMORY", memory), *(("PYTORCH_ALLOC_CONF", f"max_split_size_mb:{mib}") for mib in more)]
        alone, under = player.play(case, *pinned, bare=True), player.play(case, *pinned)
        check(alone.status == 0, f"bare, {case} after pinned memory: {alone.fared()}")
        check(under.status == 0, f"{case} after pinned memory: {under.fared()}")
        warned = [play.log.count("[W") for play in (under, alone)]
        check(case != "tight" or warned[0] <= warned[1], f"{case} after pinned memory: torch warns: {under.fared()}")

    # A pool for graphs holds no more than by itself, and what they replay on is theirs, though it is
    # idle and the device full; in expandable segments of the user's, too.
    profiles = [("native",), ("segments",), ("keep",)]
    if release.maps_pages:
        profiles.append(("native", ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")))
    for case, memory in (("captures", "1500MiB"), ("refusal", "1000MiB")):
        for name, *settings in profiles:
            on = (("MEMCUDA_SIM_MEMORY", memory), *settings)
            alone, under = player.play(case, *on, bare=True), player.play(case, *on, ("MEMCUDA_TORCH", name))
            check(alone.status == 0, f"bare, {case}: {alone.fared()}")
            check(under.status == 0, f"{name}, {case}: {under.fared()}")
            check(under.mib("physical") <= alone.mib("physical"), f"{name}, {case}: holds more than bare")

    # Where torch is asked for nothing it waits for no stream whose work is yet to be launched.
    for name, play in (("bare", player.play("later", bare=True)),
                       ("keep", player.play("later", ("MEMCUDA_TORCH", "keep"))),
                       ("async", player.play("later", ("MEMCUDA_TORCH", "async")))):
        check(play.status == 0, f"{name}, where work is launched later: {play.fared()}")

    # What torch forgets is waited for.
    for name, play in (("bare", player.play("forgotten", bare=True)), ("default", player.play("forgotten")),
                       ("segments", player.play("forgotten", ("MEMCUDA_TORCH", "segments")))):
        check(play.status == 0, f"{name}, of which torch forgets a user: {play.fared()}")

    # Read by the allocators of 2.10 and later alone; what is set in it changes nothing here.
    other = player.play("tight", ("PYTORCH_ALLOC_CONF", "max_split_size_mb:2048"), ("MEMCUDA_TORCH", "segments"))
    known_to_it = tuple(map(int, release.version.split(".")[:2])) >= (2, 10)
    check(other.status == 0, f"another variable: {other.fared()}")
    check((f": {SEGMENTS}\n" in other.log) != known_to_it, "another variable: told as if it read the wrong one")

    # GPUs that map no memory, or have no handles for other processes.
    for lacks in ("vmm", "descriptors"):
        without = ("MEMCUDA_SIM_LACKS", lacks)
        alone, under = player.play("whole", without, bare=True), player.play("whole", without)
        check(alone.status == 0, f"bare without {lacks}: {alone.fared()}")
        same = under.said.get("sum") == alone.said.get("sum")
        check(under.status == 0 and same, f"default without {lacks}: {under.fared()}")
        # Of the plain driver torch is asked nothing back.
        check(lacks != "vmm" or ASKED not in under.log and under.mib("physical") == alone.mib("physical"),
              f"default without {lacks}: held {under.mib('physical')} MiB, bare {alone.mib('physical')}")

    # Where torch finds no fabric, or nobody who knows of one.
    for nvml, what in (("before", "a GPU before Hopper"), ("none", "no management library")):
        if not release.maps_pages:
            break
        alone, under = player.play("tight", bare=True, nvml=nvml), player.play("tight", nvml=nvml)
        check(alone.status == 0, f"bare with {what}: {alone.fared()}")
        check(under.status == 0, f"default with {what}: {under.fared()}")
        check("[W" not in under.log, f"default with {what}: torch warns: {under.fared()}")
    if release.maps_pages:
        there = ("MEMCUDA_SIM_FABRIC", "1")
        for name, play in (("bare", player.play("fabric", there, bare=True, nvml="fabric")),
                           ("default", player.play("fabric", there, nvml="fabric"))):
            check(play.status == 0, f"{name} with a fabric: {play.fared()}")
            check(play.said.get("access") == "1", f"{name} with a fabric: torch found none")
    row = [release.version, release.words, release.methods.get("raw_alloc_with_stream"), bare.mib("physical"),
           default.mib("physical"), plays["segments"][1].mib("physical"), plays["async"][1].mib("physical"),
           known.mib("physical"), native.mib("physical"), "FAIL" if failures else "PASS"]
    return failures, row


def main():
    library, _ = ready()
    program = os.path.join(FOLDER, "torch_allocators")
    found = list(releases(sys.argv[1:], CALLED + WATCHED))
    run(["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic", "-o", program,
         "-I", os.path.join(ROOT, "sim/include"), os.path.join(HERE, "torch_allocators.cc"),
         os.path.join(HERE, "torch_properties.cc"), "-ldl"])
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        results = list(threads.map(tried, [Player(program, library, release) for release in found]))
    failures = [failure for failed, _ in results for failure in failed]
    for failure in failures:
        print(failure)
    heads = ["torch", "words", "raw", "bare", "default", "segments", "async", "tight keep", "tight native", ""]
    print("  ".join(f"{head:>{max(len(head), 6)}}" for head in heads))
    for _, row in results:
        print("  ".join(f"{value:>{max(len(head), 6)}}" for head, value in zip(heads, row)))
    print("words, raw: of the allocator's vtable, and which one raw_alloc_with_stream is; then the most that\n"
          f"was held, in MiB. tight: a bare torch runs out of memory on {SMALL[1]}, where native is played")
    if failures:
        sys.exit(f"FAIL: {len(failures)}")


if __name__ == "__main__":
    main()
