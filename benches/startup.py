#!/usr/bin/env python3
"""What the preload costs a process that never uses CUDA.

    make build && python3 benches/startup.py

Times whole processes (spawn to exit): bare, under libmemcuda.so, and, as the
floor of any preloaded library, under an empty C library, one that needs
libgcc_s as well (the unwinder, which Rust's panics need), and an empty Rust
library, all built into target/startup. The variants take turns, in another
order each round. The table has medians over --rounds in milliseconds; after
the +- stands half of the median's 95 % interval. Needs cc, rustc and git.
"""
import argparse
import math
import os
import random
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = os.path.join(ROOT, "target/release/libmemcuda.so")
FOLDER = os.path.join(ROOT, "target/startup")
COMMANDS = ["true", "bash -c :", "python3 -c pass", "git status"]


def build_floors():
    os.makedirs(FOLDER, exist_ok=True)
    path = lambda name: os.path.join(FOLDER, name)
    with open(path("empty.c"), "w") as f:
        f.write("int memcuda_empty;\n")
    with open(path("empty.rs"), "w") as f:
        f.write("#[unsafe(no_mangle)]\npub extern \"C\" fn memcuda_empty() {\n"
                "    let _ = std::panic::catch_unwind(|| std::env::args().count());\n}\n")
    build = lambda *command: subprocess.run(command, check=True, cwd=FOLDER)
    build("cc", "-O2", "-shared", "-fPIC", "-o", path("empty_c.so"), path("empty.c"))
    build("cc", "-O2", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", path("empty_gcc_s.so"), path("empty.c"), "-lgcc_s")
    build("rustc", "--edition", "2024", "-O", "--crate-type", "cdylib", "-o", path("empty_rust.so"), path("empty.rs"))
    return {"empty C": path("empty_c.so"), "empty C + libgcc_s": path("empty_gcc_s.so"),
            "empty Rust": path("empty_rust.so")}


def once(argv, environment):
    """Milliseconds from spawn to exit."""
    silence = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    begin = time.perf_counter()
    child = os.posix_spawn(argv[0], argv, environment, file_actions=silence)
    _, status = os.waitpid(child, 0)
    took = time.perf_counter() - begin
    if status:
        sys.exit(f"FAIL: {' '.join(argv)} ended with status {status}")
    return took * 1e3


def middle(values):
    """The median and half of its 95 % interval (by order statistics)."""
    values = sorted(values)
    n = len(values)
    reach = math.ceil(0.98 * math.sqrt(n))
    return values[n // 2], (values[min(n - 1, n // 2 + reach)] - values[max(0, n // 2 - reach)]) / 2


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=400)
    ap.add_argument("--library", action="append", default=[], metavar="NAME=PATH", help="a further variant")
    ap.add_argument("--only", action="append", metavar="COMMAND", help=f"of {', '.join(COMMANDS)}")
    a = ap.parse_args()
    if not os.path.exists(LIBRARY):
        sys.exit(f"FAIL: {LIBRARY} is missing; build it first (make build)")
    variants = {"bare": None, "bare again": None, **build_floors(), "libmemcuda.so": LIBRARY}
    for extra in a.library:
        name, equals, path = extra.partition("=")
        if not equals or not os.path.exists(path):
            ap.error(f"--library {extra}: NAME=PATH of a file that exists")
        variants[name] = os.path.abspath(path)
    bare = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("MEMCUDA_")}
    environments = {n: bare if p is None else dict(bare, LD_PRELOAD=p) for n, p in variants.items()}
    os.chdir(ROOT)
    rng = random.Random(1)
    print(f"{'':18}" + "".join(f"{name:>20}" for name in variants))
    for command in a.only or COMMANDS:
        argv = command.split()
        program = shutil.which(argv[0])
        if program is None:
            sys.exit(f"FAIL: {argv[0]} is missing")
        argv[0] = program
        times = {name: [] for name in variants}
        for _ in range(a.rounds):
            order = list(variants)
            rng.shuffle(order)
            for name in order:
                times[name].append(once(argv, environments[name]))
        cells = [middle(times[name]) for name in variants]
        print(f"{command:18}" + "".join(f"{f'{m:.3f} +- {h:.3f}':>20}" for m, h in cells), flush=True)


if __name__ == "__main__":
    main()
