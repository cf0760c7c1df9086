"""Rows of what looks into programs: torch's profiler, Nsight Compute, which runs
each kernel several times and puts back what it wrote, and cuda-gdb.
"""
import collections
import re
import tempfile

from . import must, row, torch_row
from .programs import build, run, tool

PROGRAM = "tests/gpu/static_cudart.cu"


@torch_row("torch profiler")
def profiler(torch):
    """The kernels and copies that it tells of, by name and number."""
    from torch.profiler import ProfilerActivity, profile
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as told:
        for rows in (64, 512, 8192, 128):
            net(torch.randn(rows, 512).cuda()).square().mean().backward()
        torch.cuda.synchronize()
    on_device = [event.name for event in told.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    must(len(on_device) >= 40, f"only {len(on_device)} kernels and copies were told of")
    return dict(kernels=sorted(collections.Counter(on_device).items()))


@row("Nsight Compute", processes=True)
def nsight_compute():
    """All of a kernel's counters, in many runs of it: the checksum behind them is
    right where memory is put back. The clocks stay as they are."""
    ncu = tool("ncu")
    must(ncu, "ncu is missing (looked on PATH, in CUDA_HOME and /usr/local/cuda*)")
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, PROGRAM, "-arch=native")
        said = run([ncu, "--clock-control", "none", "--set", "full", "--launch-count", "24", program, "60"])
    kernels = collections.Counter(re.findall(r"^\s+(fill|check)\(", said, re.M))
    sums = re.findall(r"wrong \d+ checksum \d+", said)
    must(sum(kernels.values()) == 24 and len(sums) == 1, f"ncu said {said[-600:]}")
    return dict(results=dict(kernels=sorted(kernels.items()), sums=sums))


@row("cuda-gdb", processes=True)
def debugger():
    """Stops in a kernel, reads the device's memory there, and goes on to the end."""
    gdb = tool("cuda-gdb")
    must(gdb, "cuda-gdb is missing (looked on PATH, in CUDA_HOME and /usr/local/cuda*)")
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, PROGRAM, "-arch=native", "-g", "-G")
        said = run([gdb, "-q", "-batch", "-ex", "break check", "-ex", "run", "-ex", "print words", "-ex", "print/x p[1]", "-ex", "print/x seed",
                    "-ex", "delete", "-ex", "continue", "--args", program, "60"])
    values = re.findall(r"^\$\d+ = (\S+)$", said, re.M)
    sums = re.findall(r"wrong \d+ checksum \d+", said)
    must(len(values) == 3 and len(sums) == 1 and int(values[1], 0) == 2654435761 ^ int(values[2], 0), f"cuda-gdb said {said[-600:]}")
    return dict(results=dict(values=values, sums=sums))
