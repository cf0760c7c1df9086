"""Packs the wheel: the Python package, the `memcuda` command and libmemcuda.so,
for every Python 3 of a platform. A build backend (PEP 517) of the standard library
alone; from a checkout

    pip install ./python

builds everything with `make stage`. `make wheel` calls it as a program:

    memcuda_wheel.py STAGE DIRECTORY    # STAGE: what `make stage` made
"""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import elf_needs

PYTHON = pathlib.Path(__file__).resolve().parent.parent
ROOT = PYTHON.parent
# Of the stage: services are for packages of the system, licences have a place of their own.
LEFT_OUT = ("lib/systemd/", "share/doc/")
LICENSES = ("LICENSE-MIT", "LICENSE-APACHE", "NOTICES")
METADATA = """\
Metadata-Version: 2.4
Name: memcuda
Version: {version}
Summary: A stitching memory pool for the device memory of unmodified CUDA programs, and named GPU memory
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
License-File: NOTICES
Requires-Python: >=3.9
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{readme}"""


class UnsupportedOperation(Exception):
    """What PEP 517 wants raised by a hook that cannot do its work."""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: builds from this checkout."""
    # Before 21.3 pip builds in a copy of this folder alone, beside which is anybody's Makefile.
    if PYTHON.name != "python" or not (ROOT / "packaging/tree.sh").is_file():
        raise UnsupportedOperation(f"memcuda is built from its whole repository, which {ROOT} is not: "
                                   "`pip install ./python` in a checkout is of pip 21.3 or later; `make wheel` needs no pip")
    # Of a `make` that calls pip its words are none of ours.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", "-C", str(ROOT), "stage"], check=True, stdout=sys.stderr, env=environment)
    return pack(ROOT / "target/stage", pathlib.Path(wheel_directory))


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: there is none."""
    raise UnsupportedOperation("no source distribution: build from the repository (make wheel)")


def pack(stage, directory):
    """Writes the wheel into a directory; its file name."""
    version = _version()
    tree = stage / "usr"
    binaries = [tree / "bin/memcuda", tree / "lib/memcuda/libmemcuda.so"]
    tag = f"py3-none-{elf_needs.platform([str(path) for path in binaries])}"
    name = f"memcuda-{version}"
    information, data = f"{name}.dist-info", f"{name}.data"

    files = {f"memcuda/{path.name}": path for path in _sources()}
    for path in sorted(tree.rglob("*")):
        inside = path.relative_to(tree).as_posix()
        if path.is_dir() or inside.startswith(LEFT_OUT):
            continue
        # `scripts` goes on PATH, `data` below the prefix of the environment. There is no
        # `lib` in it: `pip install --target` leaves that folder out.
        place = f"scripts/{path.name}" if inside.startswith("bin/") else f"data/{inside.replace('lib/', 'libexec/', 1)}"
        files[f"{data}/{place}"] = path
    for license in LICENSES:
        files[f"{information}/licenses/{license}"] = tree / "share/doc/memcuda" / license
    readme = (PYTHON / "README.md").read_text()
    contents = {inside: (path.read_bytes(), os.access(path, os.X_OK)) for inside, path in files.items()}
    contents[f"{information}/METADATA"] = (METADATA.format(version=version, readme=readme).encode(), False)
    contents[f"{information}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: memcuda\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False)

    file = f"{name}-{tag}.whl"
    directory.mkdir(parents=True, exist_ok=True)
    aside = directory / f"{file}.new"
    with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
        record = ""
        for inside, (content, executable) in contents.items():
            _add(archive, inside, content, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{inside},sha256={digest},{len(content)}\n"
        _add(archive, f"{information}/RECORD", f"{record}{information}/RECORD,,\n".encode(), False)
    aside.rename(directory / file)
    return file


def _sources():
    """The files of the Python package."""
    folder = PYTHON / "memcuda"
    return sorted([*folder.glob("*.py"), folder / "py.typed"])


def _version():
    """The one version of the package and the command."""
    said = {
        path: re.search(pattern, path.read_text(), re.MULTILINE).group(1)
        for path, pattern in ((PYTHON / "memcuda/__init__.py", r'^__version__ = "(.+)"'),
                              (ROOT / "Cargo.toml", r'^version = "(.+)"'))}
    if len(set(said.values())) != 1:
        raise UnsupportedOperation("versions differ: " + ", ".join(f"{path} {it}" for path, it in said.items()))
    return said[ROOT / "Cargo.toml"]


def _add(archive, inside, content, executable):
    """One file of the archive, the same bytes whenever it is packed."""
    entry = zipfile.ZipInfo(inside, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content, compresslevel=9)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: memcuda_wheel.py STAGE DIRECTORY")
    try:
        made = pack(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    except (elf_needs.Unfit, UnsupportedOperation, OSError) as error:
        sys.exit(f"memcuda_wheel.py: {error}")
    print(pathlib.Path(sys.argv[2]) / made)
