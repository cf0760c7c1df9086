#!/usr/bin/env python3
"""The command of `make wheel-portable` under old glibcs: by the loaders of Debian
11, Ubuntu 18.04 and 16.04. That of an ordinary build is refused there.

    make test-compat
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

from fetch import RELEASE, ROOT, fail, ready, unpacked
from old_glibc import DEBIAN, OLDER, PACKAGES, UBUNTU, version

TRACE = os.path.join(ROOT, "tests/traces/detect_varsize.csv.zst")


def unpack(folder):
    """The command and the library of the wheel, side by side."""
    wheels = glob.glob(os.path.join(ROOT, "target/portable/wheels/memcuda-*.whl"))
    if len(wheels) != 1:
        fail(f"{len(wheels)} wheels in target/portable/wheels; make wheel-portable")
    if "-manylinux_2_23_" not in wheels[0]:
        fail(f"{wheels[0]} is not for glibc 2.23")
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(os.path.join(folder, "wheel"))
    for name in ("scripts/memcuda", "data/libexec/memcuda/libmemcuda.so"):
        found = glob.glob(os.path.join(folder, "wheel/*.data", name))
        shutil.copy(found[0], folder)


def run(loader, libraries, *command):
    """Its status and what it said, run by this loader."""
    done = subprocess.run([loader, "--library-path", libraries, *command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def main():
    ready()
    own = os.path.join(unpacked(DEBIAN, "bullseye", PACKAGES), "lib/x86_64-linux-gnu")
    glibcs = [own] + [os.path.join(unpacked(UBUNTU, suite, [package]), "lib/x86_64-linux-gnu")
                      for suite, package in OLDER]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        unpack(folder)
        command = os.path.join(folder, "memcuda")
        for libc in glibcs:
            # The command looks beside what the kernel started, and that is the loader.
            loader = shutil.copy(os.path.join(libc, "ld-linux-x86-64.so.2"), folder)
            libraries = ":".join(dict.fromkeys([libc, own]))
            print(f"glibc {version(loader, libc)}")
            for what, words, expected in (
                    ("starts", [command, "--version"], lambda status, said: status == 0 and said.startswith("memcuda ")),
                    ("finds the library", [command, "env"],
                     lambda status, said: (status, said) == (0, f"export LD_PRELOAD='{folder}/libmemcuda.so'\n")),
                    ("replays a trace", [command, "replay", "--profile", "native", TRACE],
                     lambda status, said: status == 0 and "detect_varsize" in said),
                    ("an ordinary build is refused", [os.path.join(RELEASE, "memcuda"), "--version"],
                     lambda status, said: status != 0 and "`GLIBC_2." in said)):
                status, said = run(loader, libraries, *words)
                passed = expected(status, said)
                failed += not passed
                print(f"  {what:30}{'PASS' if passed else f'FAIL: {status} {said!r}'}")
    if failed:
        sys.exit(f"FAIL: {failed} of {4 * len(glibcs)}")


if __name__ == "__main__":
    main()
