"""Rows of compiled programs: one with a statically linked CUDA runtime, and
the C example under compute-sanitizer.
"""
import glob
import os
import re
import shutil
import subprocess
import tempfile

from . import PLAIN, must, row

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def tool(name):
    """A program of NVIDIA's toolkit, or None."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = [shutil.which(name), os.path.join(home, "bin", name),
              *sorted(glob.glob(f"/usr/local/cuda*/bin/{name}")), *sorted(glob.glob(f"/usr/local/cuda*/{name}/{name}"))]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def run(command, limit=200):
    """The output of a program that must end with 0. It runs on what this
    process was started with, the shim included."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
    must(done.returncode == 0, f"{os.path.basename(command[0])} ended with {done.returncode}: {done.stdout.strip()[-400:]}")
    return done.stdout


def build(folder, source, *flags):
    """Compiles with nvcc, which links the runtime statically unless told not
    to. Without the shim: it is not what is looked at."""
    nvcc = tool("nvcc")
    must(nvcc, "nvcc is missing (looked on PATH, in CUDA_HOME and /usr/local/cuda*)")
    program = os.path.join(folder, os.path.basename(source).split(".")[0])
    bare = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([nvcc, "-O2", *flags, "-o", program, os.path.join(ROOT, source)], capture_output=True, text=True, env=bare)
    must(done.returncode == 0, f"nvcc: {done.stderr.strip()[-400:]}")
    return program


@row("static cudart", profiles=PLAIN, processes=True)
def static_cudart():
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, "tests/gpu/static_cudart.cu", "-arch=native")
        return dict(results=dict(output=run([program]).strip()))


@row("compute-sanitizer memcheck", processes=True)
def memcheck():
    """No access outside of memory is found in the C example, which asks for
    memory in both ways, and in the kernels of a program whose runtime is its own."""
    sanitizer = tool("compute-sanitizer")
    must(sanitizer, "compute-sanitizer is missing (looked on PATH, in CUDA_HOME and /usr/local/cuda*)")
    check = [sanitizer, "--tool", "memcheck", "--error-exitcode", "9"]
    with tempfile.TemporaryDirectory() as folder:
        example = build(folder, "examples/fragment.c")
        outputs = []
        for way in ("async", "plain"):
            said = run([*check, example, "256", way])
            # What the pool holds from the device is its own.
            outputs += [re.sub(r"held \d+ MiB", "held", line) for line in said.splitlines() if line.startswith("fragment:")]
            outputs += re.findall(r"ERROR SUMMARY: .*", said)
        said = run([*check, build(folder, "tests/gpu/static_cudart.cu", "-arch=native", "-lineinfo"), "60"])
        outputs += re.findall(r"wrong \d+ checksum \d+|ERROR SUMMARY: .*", said)
        must(len(outputs) == 6, f"the programs and the tool said {outputs}")
        return dict(results=dict(output=outputs))
