#!/usr/bin/env python3
"""The files against which programs are linked that are to run on every machine
since glibc 2.23: Ubuntu 16.04's, fetched by apt-get and checked by hash.

    packaging/sysroot.py DIRECTORY
"""
import os
import platform
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/compat"))
from fetch import fail, unpacked  # noqa: E402

UBUNTU = "http://archive.ubuntu.com/ubuntu"
SUITES = {
    "xenial-updates": [
        ("libc6", "2.23-0ubuntu11.3", "d7825ca7a85a2a5c12ff653b9acf7218a86413c79dfe4e52035d63fe1285d642"),
        ("libc6-dev", "2.23-0ubuntu11.3", "b5b9102c8df4c0fff770a236c0feb9ab2d430ebddb910359927a3a1725c93a37"),
        ("linux-libc-dev", "4.4.0-210.242", "4f001a906759ad51884486fb7f44276b456ac169a83609c7d5cb8dac62634fc8"),
    ],
    "xenial": [("libgcc1", "1:6.0.1-0ubuntu1", "6e374d7b6ee1ffbcff568705b7f9ec7b9befbfcf17e683a21ef6480dc9d0cfe0")],
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: packaging/sysroot.py DIRECTORY")
    if platform.machine() != "x86_64":
        fail(f"glibc 2.23's files are known for x86_64 only, not {platform.machine()}; make wheel is for its own glibc")
    directory = sys.argv[1]
    shutil.rmtree(directory, ignore_errors=True)
    for suite, packages in SUITES.items():
        root = unpacked(UBUNTU, suite, packages)
        shutil.copytree(root, directory, symlinks=True, dirs_exist_ok=True)
    keep_links_inside(directory)


def keep_links_inside(directory):
    """Development links are absolute, and would lead to this machine's libraries."""
    for folder, _, names in os.walk(directory):
        for path in (os.path.join(folder, name) for name in names):
            if os.path.islink(path) and os.path.isabs(os.readlink(path)):
                inside = os.path.join(directory, os.readlink(path).lstrip("/"))
                os.remove(path)
                os.symlink(os.path.relpath(inside, folder), path)


if __name__ == "__main__":
    main()
