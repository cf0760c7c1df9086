"""What a program or library needs of the machine that runs it: read from the file
by `readelf`. Decides nothing but the name of the platform that follows."""
import os
import re
import subprocess

# What every machine with a manylinux platform has.
LIBRARIES = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s)\.so\.\d+|ld-linux-[a-z0-9-]+\.so\.\d+")
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
# The oldest glibc that is tested: what needs less is not said to run on less.
OLDEST = (2, 23)


class Unfit(Exception):
    """A file that no wheel can carry; the text says which and why."""


def read(path):
    """Machine (`x86_64`) and the newest glibc, `(2, 34)`, without which the loader refuses the file."""
    command = ["readelf", "--file-header", "--dynamic", "--version-info", "--wide", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        raise Unfit(f"readelf (binutils) is needed to pack a wheel: {error}") from None
    if done.returncode:
        raise Unfit(f"{path}: {done.stderr.strip()}")
    machine = MACHINES.get(_one(r"^ *Machine: *(.+?) *$", done.stdout))
    if machine is None:
        raise Unfit(f"{path} is for no machine that wheels are made for ({', '.join(MACHINES.values())})")
    for library in re.findall(r"\(NEEDED\).*\[(.+)\]", done.stdout):
        if not LIBRARIES.fullmatch(library):
            raise Unfit(f"{path} needs {library}, which not every machine has")
    # `Flags: WEAK`: the loader goes on where that version is missing.
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)\S* +Flags: none", done.stdout)
    if not versions:
        raise Unfit(f"{path} asks for nothing of glibc: its needs are not seen")
    return machine, max((int(major), int(minor)) for major, minor in versions)


def platform(paths):
    """The platform tag that fits all of them: `manylinux_2_34_x86_64`."""
    found = [read(path) for path in paths]
    machines = {machine for machine, _ in found}
    if len(machines) != 1:
        raise Unfit(f"{', '.join(paths)} are for several machines: {', '.join(sorted(machines))}")
    major, minor = max([glibc for _, glibc in found] + [OLDEST])
    return f"manylinux_{major}_{minor}_{machines.pop()}"


def _one(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None
