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
    for file in files:
        if file.parts[-2:] == ("bin", "memcuda"):
            path = os.path.normpath(str(file.locate()))
            if os.access(path, os.X_OK):
                return path
    found = shutil.which("memcuda")
    if found is None:
        raise Absent("there is no memcuda command: install the wheel, or put the command on PATH")
    return os.path.abspath(found)


def library_path() -> str:
    """The absolute path of libmemcuda.so, for LD_PRELOAD in the environment of programs to be started.

        ray.init(runtime_env={"env_vars": {"LD_PRELOAD": memcuda.library_path()}})

    Raises `Absent` where there is none.
    """
    import json
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    asked = subprocess.run([command(), "env", "--json"], env=environment, capture_output=True, text=True)
    if asked.returncode:
        raise Absent(asked.stderr.strip())
    return str(json.loads(asked.stdout)["value"])
