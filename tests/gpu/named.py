"""Shared by the scripts on names: a keeper of their own, programs built and run
over a real GPU or the simulated one, and figures kept as they come."""
import contextlib
import ctypes
import json
import os
import subprocess
import tempfile
import time

import json_lines
import shim_run

GPU = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(shim_run.ROOT, "python")


class Place:
    """A folder with a keeper's socket and the programs built; the environment in
    which programs meet there. `simulated` is the folder of the simulated GPU."""

    def __init__(self, release, simulated=None):
        self.release = os.path.abspath(release)
        self.simulated = simulated and os.path.abspath(simulated)
        self.stack = contextlib.ExitStack()
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="memcuda-names-"))
        self.library = os.path.join(self.release, "libmemcuda.so")
        for file in (self.library, os.path.join(self.release, "memcuda")):
            shim_run.need_library(file)
        if not self.simulated:
            shim_run.need_gpu()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.memcuda("keeper", "stop", "--force")
        self.stack.close()

    def environment(self, preload=True, **more):
        """Without any other setting of the library; None removes a variable."""
        drop = ("LD_PRELOAD", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
        env = {name: value for name, value in os.environ.items()
               if not name.startswith("MEMCUDA_") and name not in drop}
        env["MEMCUDA_KEEPER"] = os.path.join(self.folder, "keeper.sock")
        env["PYTHONPATH"] = os.pathsep.join([PYTHON, *filter(None, [os.environ.get("PYTHONPATH")])])
        if preload:
            env["LD_PRELOAD"] = self.library
        if self.simulated:
            env["LD_LIBRARY_PATH"] = self.simulated
            env["MEMCUDA_SIM_SHARED"] = os.path.join(self.folder, "devices")
        for name, value in more.items():
            env.pop(name, None) if value is None else env.__setitem__(name, value)
        return env

    def build(self, name):
        """A C program of this folder."""
        program = os.path.join(self.folder, name)
        command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", os.path.join(GPU, f"{name}.c"), "-o", program]
        subprocess.run([*command, "-ldl"], check=True)
        return program

    def start(self, command, preload=True, **more):
        """A process that is talked to by lines."""
        return subprocess.Popen(command, env=self.environment(preload, **more), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, bufsize=1)

    def memcuda(self, *arguments):
        """What the command prints; any failure of it is one here."""
        done = subprocess.run([os.path.join(self.release, "memcuda"), *arguments], env=self.environment(preload=False),
                              capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise OSError(f"memcuda {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def start_keeper(self):
        """Ends with the place."""
        self.memcuda("keeper", "--idle", "86400")

    def status(self):
        """How the keeper is."""
        return json.loads(self.memcuda("keeper", "status", "--json"))

    def names(self):
        return [json.loads(line) for line in self.memcuda("ls", "--all", "--json").splitlines()]

    def used(self):
        """Bytes in use on the first device, by NVML; None over the simulation."""
        return None if self.simulated else used_bytes()


def used_bytes():
    """By NVML, in the whole device."""
    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    nvml, device, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), Memory()
    for call, arguments in (("nvmlInit_v2", ()), ("nvmlDeviceGetHandleByIndex_v2", (0, ctypes.byref(device))),
                            ("nvmlDeviceGetMemoryInfo", (device, ctypes.byref(memory)))):
        code = getattr(nvml, call)(*arguments)
        if code:
            raise OSError(f"{call} answers {code}")
    return memory.used


def say(process, line):
    """Tells a process a line, and reads its answer."""
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def until(condition, seconds=10.0, pause=0.002):
    """Waits for something to be true; what it was at last."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(pause)


def percentile(values, percent):
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * percent // 100) - 1)] if ordered else float("nan")


class Report:
    """Rows of a table: what, the figure, what it must be, and whether it is.
    Each row is kept in the results at once."""

    def __init__(self, results):
        self.results, self.rows = results, []

    def row(self, what, figure, must, good, **details):
        self.rows.append((what, figure, must, "ok" if good else "FAIL"))
        print(f"{'PASS' if good else 'FAIL'} {what}: {figure}{f' (must be {must})' if must else ''}", flush=True)
        json_lines.append(self.results, dict(what=what, figure=figure, must=must, good=bool(good), **details))

    def fail(self, what, why):
        self.row(what, f"{why}"[:300], "", False)

    def finish(self):
        """Prints the table; 1 where anything failed, or nothing was measured."""
        rows = [("what", "figure", "must be", ""), *self.rows]
        widths = [max(len(row[at]) for row in rows) for at in range(4)]
        print()
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        failed = sum(row[3] == "FAIL" for row in self.rows)
        print(f"{len(self.rows) - failed} passed, {failed} failed")
        return 1 if failed or not self.rows else 0
