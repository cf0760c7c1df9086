#!/usr/bin/env python3
"""NVIDIA's own CUDA runtimes over the simulated driver: do they find the hooks?

    make test-compat

Each runtime is asked for memory, once bare and once under libmemcuda.so. It
looks all its driver functions up (419 in CUDA 12.9, 481 in 13.5), and then ends
with an error, because the simulator has no cuGetExportTable; that is far
enough. tests/compat/probe.c reads from the runtime's memory which functions it
keeps. Proven where under the library none of those that are hooked is the
driver's, and as many are the library's as were the driver's before. The last
row goes past the library on purpose: there the probe must see it.

The newest runtime comes with the driver's header, which must declare the functions that
docs/entry-points.md is held against.
"""
import os
import re
import sys

from fetch import FOLDER, ROOT, fail, ready, run, wheel

CUDA_12 = "nvidia-cuda-runtime-cu12"
CUDA_13 = "nvidia-cuda-runtime"
WHEELS = [
    (CUDA_12, "12.1.105", "6e258468ddf5796e25f1dc591a31029fa317d97a0a94ed93468fc86301d61e40"),
    (CUDA_12, "12.4.127", "64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5"),
    (CUDA_12, "12.8.90", "adade8dcbd0edf427b7204d480d6066d33902cab2a4707dcfc48a2d0fd44ab90"),
    (CUDA_12, "12.9.79", "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3"),
    (CUDA_13, "13.0.96", "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"),
    (CUDA_13, "13.5.37", "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d"),
]
# The versions whose wheel has libcudart_static.a as well.
STATIC = ["12.9.79", "13.0.96", "13.5.37"]
# The fewest hooked functions that a runtime looks up: fewer, and the probe does
# not see what it should.
FEWEST = 40
HERE = os.path.dirname(os.path.abspath(__file__))


def functions(library):
    """Names by offset of what a library defines."""
    found = {}
    for line in run(["nm", "-D", "--defined-only", library]).splitlines():
        offset, _, name = line.split()
        found.setdefault(int(offset, 16), []).append(name)
    return found


def file_of(folder, name):
    for where, _, files in os.walk(folder):
        for file in files:
            if file == name or name.endswith(".") and file.startswith(name):
                return os.path.join(where, file)
    fail(f"{folder} has no {name}")


def probe(name, *arguments):
    path = os.path.join(FOLDER, name)
    run(["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path,
         os.path.join(HERE, "probe.c"), *arguments, "-ldl", "-lpthread", "-lrt"])
    return path


def kept(command, library, driver, deepbind="strip"):
    """Offsets of the functions that the runtimes keep: the driver's, the library's."""
    environment = {k: v for k, v in os.environ.items()
                   if k != "LD_PRELOAD" and not k.startswith("MEMCUDA_")}
    environment["LD_LIBRARY_PATH"] = os.path.dirname(driver)
    environment["MEMCUDA_DEEPBIND"] = deepbind
    if library:
        environment["LD_PRELOAD"] = library
    words = {"driver": [], "memcuda": []}
    for line in run(command, env=environment).splitlines():
        kind, rest = line.split(maxsplit=1)
        if kind in words:
            words[kind].append(int(rest, 16))
    return words["driver"], words["memcuda"]


def declared(header):
    """The driver's functions in cuda.h."""
    with open(header) as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.DOTALL)
    return sorted(set(re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", text)))


def main():
    library, driver = ready()
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(ROOT, "shim/exports.txt")) as exports:
        hooks = {name for name in exports.read().split() if name.startswith("cu")}
    driver_names, library_names = functions(driver), functions(library)
    hooked = lambda offset: not hooks.isdisjoint(driver_names.get(offset, []))
    # The runtime's references that the loader bound, which it did not look up.
    linked = lambda offset: any(not name.startswith("cu") for name in library_names.get(offset, []))

    folders = {version: wheel(package, version, sha256) for package, version, sha256 in WHEELS}
    with open(os.path.join(ROOT, "shim/tests/lifetime/cuda_functions.txt")) as listed:
        other = set(listed.read().split()) ^ set(declared(file_of(folders["13.5.37"], "cuda.h")))
    if other:
        fail(f"cuda_functions.txt and cuda.h of 13.5.37 differ: {sorted(other)}")
    shared = {version: file_of(folder, "libcudart.so.") for version, folder in folders.items()}
    dynamic = probe("probe")
    rows = [(version, "shared", [dynamic, path]) for version, path in shared.items()]
    for version in STATIC:
        archive = file_of(folders[version], "libcudart_static.a")
        path = probe(f"probe-{version}", "-DSTATIC", archive, "-lstdc++")
        rows.append((version, "static", [path]))
    pair = ["12.1.105", "13.5.37"]
    rows.append((" + ".join(pair), "both shared", [dynamic, *(shared[v] for v in pair)]))
    for version in pair:
        rows.append((version, "RTLD_DEEPBIND", [dynamic, "deepbind", shared[version]]))
    past = (version, "past the hooks", rows[-1][2])
    rows.append(past)

    print(f"{'runtime':20} {'how':14} {'kept':>6} {'hooked':>7} {'ours':>6} {'left':>6}")
    failed = 0
    for row in rows:
        version, how, command = row
        before, _ = kept(command, None, driver)
        after, ours = kept(command, library, driver, "keep" if row is past else "strip")
        of_hooks, left = sum(map(hooked, before)), sum(map(hooked, after))
        served = sum(not linked(offset) for offset in ours)
        want = (0, of_hooks) if row is past else (of_hooks, 0)
        # What is not hooked stays the driver's.
        others = (len(before) - of_hooks, len(after) - left)
        proven = of_hooks >= FEWEST and (served, left) == want and others[0] == others[1]
        failed += not proven
        print(f"{version:20} {how:14} {len(before):6} {of_hooks:7} {served:6} {left:6}"
              f"  {'PASS' if proven else 'FAIL'}")
    print("kept: words of the runtime's memory that are a driver function; hooked: those of them\n"
          "that the library replaces; ours, left: what they are under it")
    if failed:
        sys.exit(f"FAIL: {failed} of {len(rows)}")


if __name__ == "__main__":
    main()
