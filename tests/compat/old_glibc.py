#!/usr/bin/env python3
"""libmemcuda.so under old glibcs, over the simulated driver.

    make test-compat
    tests/compat/old_glibc.py --libraries DIRECTORY     # of another glibc only

Programs are built against Debian 11's glibc 2.31, where dlopen and threads are
still libraries of their own, and run by its loader, by those of Ubuntu 18.04
and 16.04, or by that of another glibc that lies in a directory. Each runs bare
as well, where it must fare the same.
"""
import argparse
import os
import sys

from fetch import FOLDER, ROOT, ready, run, unpacked

PACKAGES = [
    ("libc6", "2.31-13+deb11u11", "05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282"),
    ("libc6-dev", "2.31-13+deb11u11", "e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3"),
    ("libgcc-s1", "10.2.1-6", "e478f2709d8474165bb664de42e16950c391f30eaa55bc9b3573281d83a29daf"),
]
DEBIAN = "http://deb.debian.org/debian"
UBUNTU = "http://archive.ubuntu.com/ubuntu"
OLDER = [
    ("bionic-updates", ("libc6", "2.27-3ubuntu1.6", "5b813d4512491cd8fb30b2eb9192349ee75ffe3c9f21ae136cc7b2429f70c3b2")),
    ("xenial-updates", ("libc6", "2.23-0ubuntu11.3", "d7825ca7a85a2a5c12ff653b9acf7218a86413c79dfe4e52035d63fe1285d642")),
]
TESTS = os.path.join(ROOT, "shim/tests")
HERE = os.path.dirname(os.path.abspath(__file__))


def build(root, output, source, *arguments, shared=False):
    """Compiles against the old glibc: its headers, start files and libraries."""
    of_system = os.path.join(root, "usr/lib/x86_64-linux-gnu")
    libraries = os.path.join(root, "lib/x86_64-linux-gnu")
    headers = [os.path.join(root, "usr/include"), os.path.join(root, "usr/include/x86_64-linux-gnu")]
    start = [] if shared else [os.path.join(of_system, name) for name in ("crt1.o", "crti.o", "crtn.o")]
    path = os.path.join(FOLDER, output)
    run(["cc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-nostdlib", "-fno-stack-protector",
         *(["-shared", "-fPIC"] if shared else ["-no-pie"]),
         *(word for folder in headers for word in ("-isystem", folder)),
         "-o", path, *start, source, f"-L{libraries}",
         # What else these libraries need is found when the program runs.
         "-Wl,--unresolved-symbols=ignore-in-shared-libs,--no-as-needed", *arguments,
         "-l:libc.so.6", os.path.join(of_system, "libc_nonshared.a"), "-lgcc"])
    return path


def version(loader, libraries):
    """What the libc in a folder says of itself when it is run."""
    command = [loader, "--library-path", libraries, os.path.join(libraries, "libc.so.6")]
    return run(command).split("version ")[1].split()[0].rstrip(".,")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", metavar="DIRECTORY",
                        help="of another glibc: its loader, libc, libdl and libpthread under their names")
    other = parser.parse_args().libraries
    library, driver = ready()
    root = unpacked(DEBIAN, "bullseye", PACKAGES)
    rows = programs(root, driver)
    own = os.path.join(root, "lib/x86_64-linux-gnu")
    older = [unpacked(UBUNTU, suite, [package]) for suite, package in OLDER] if not other else []
    glibcs = [os.path.abspath(other)] if other else [own, *(os.path.join(o, "lib/x86_64-linux-gnu") for o in older)]
    failed = sum(tried(libc, own, library, driver, rows) for libc in glibcs)
    if failed:
        sys.exit(f"FAIL: {failed} of {2 * len(rows) * len(glibcs)}")


def programs(root, driver):
    """What is run: words for it, command, settings, its output bare and under the library."""
    source = lambda name: os.path.join(TESTS, "loader", name)
    nothing = build(root, "nothing", os.path.join(HERE, "nothing.c"))
    weak = build(root, "weak", os.path.join(HERE, "nothing.c"), "-DWEAK")
    plugin = build(root, "libplugin.so", source("plugin.c"), f"-L{os.path.dirname(driver)}",
                   "-l:libcuda.so.1", "-l:libdl.so.2", shared=True)
    loads = build(root, "loads", source("loads.c"), "-rdynamic", "-l:libdl.so.2", "-l:libpthread.so.0")
    # NVIDIA's driver needs libdl and libpthread; the simulated one does not say so.
    linked = build(root, "linked", os.path.join(HERE, "linked.c"), f"-L{os.path.dirname(driver)}",
                   "-l:libcuda.so.1", "-l:libpthread.so.0", "-l:libdl.so.2", f"-I{TESTS}/support")

    ways = ["local", "global", "deepbind", "base"]
    def served(pooled, past):
        """What each way says; for those that are past the library, that they are."""
        return "".join(f"{way}: linked {pooled}, looked up {pooled}{', past it' if way in past else ''}\n" for way in ways)
    return [
        ("a program of libc alone", [nothing], {}, "", ""),
        ("the same, all bound at once", [nothing], {"LD_BIND_NOW": "1"}, "", ""),
        ("one that asks whether it has dlsym", [weak], {}, "no dlsym\n", "nothing found\n"),
        ("CUDA linked to", [linked], {}, "plain\n", "pooled\n"),
        ("CUDA loaded, each way", [loads, plugin, *ways], {}, served(0, ways), served(1, [])),
        # Then loads are left as they are asked for, and these two find the driver's own functions.
        ("CUDA loaded, switched off", [loads, plugin, *ways], {"MEMCUDA_DISABLE": "1"},
         served(0, ways), served(0, ["deepbind", "base"])),
    ]

def tried(libc, own, library, driver, rows):
    """Runs them all under one glibc; how many failed."""
    # libgcc_s has a floor of its own, and comes from the system that they are built for.
    searched = dict.fromkeys([libc, own, os.path.dirname(driver)])
    loader = os.path.join(libc, "ld-linux-x86-64.so.2")
    print(f"glibc {version(loader, libc)}")
    width = max(len(what) for what, *_ in rows) + 20
    failed = 0
    for what, command, settings, bare, with_library in rows:
        for preload, expected in ((None, bare), (library, with_library)):
            environment = {"LD_PRELOAD": preload, **settings} if preload else settings
            said = run([loader, "--library-path", ":".join(searched), *command], env=environment)
            passed = said == expected
            failed += not passed
            print(f"  {what + (', with the library' if preload else ', bare'):{width}}"
                  f"{'PASS' if passed else f'FAIL: {said!r}, not {expected!r}'}")
    return failed


if __name__ == "__main__":
    main()
