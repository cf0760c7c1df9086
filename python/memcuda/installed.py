"""Where memcuda lies on this machine: the command, and the library that is
preloaded. Starts the command to ask it, and nothing else; imports what only that
needs when it is asked."""
from __future__ import annotations

import os

from .errors import Absent


def command() -> str:
    """The absolute path of the `memcuda` command: that of this package's wheel, else that on PATH.

    Raises `Absent` where there is none.
    """
    import shutil
    from importlib import metadata

    try:
        files = metadata.files("memcuda") or []
    except metadata.PackageNotFoundError:
        files = []
    places = [os.path.normpath(str(file.locate())) for file in files if file.parts[-2:] == ("bin", "memcuda")]
    for path in [_in_target("bin/memcuda"), *places]:
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("memcuda")
    if found is None:
        raise Absent("there is no memcuda command: install the wheel, or put the command on PATH")
    return os.path.abspath(found)


def _in_target(path: str) -> str:
    """Where `pip install --target` puts a file of the wheel: beside this package. What pip notes of it leads elsewhere."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), path)


def library_path() -> str:
    """The absolute path of libmemcuda.so, for LD_PRELOAD in the environment of programs to be started.

        ray.init(runtime_env={"env_vars": {"LD_PRELOAD": memcuda.library_path()}})

    Raises `Absent` where there is none.
    """
    import json
    import subprocess

    try:
        program = command()
    except Absent:
        # pip leaves `bin` out of a target folder that has one.
        alone = _in_target("libexec/memcuda/libmemcuda.so")
        if os.path.isfile(alone):
            return alone
        raise
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    asked = subprocess.run([program, "env", "--json"], env=environment, capture_output=True, text=True)
    if asked.returncode:
        raise Absent(asked.stderr.strip())
    return str(json.loads(asked.stdout)["value"])
