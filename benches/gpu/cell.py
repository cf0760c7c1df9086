#!/usr/bin/env python3
"""One cell of the matrix: a workload in this process, under the allocator that the
environment chose. Prints one JSON line.

    python3 benches/gpu/cell.py serving_kv_growth --sample
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python3 benches/gpu/cell.py moe_random_routing

With --wait it does what the host can do (imports, the model's weights) without any call
to CUDA, then reads a line `go {...}` from its input, and only then begins.

step_ms has every step, a synchronisation at its end included. first_step_ms is the first of
them: from when the model is on the device, cuBLAS and cuDNN are loaded and all is quiet to the end of the first step's
work; context_ms and load_ms are what came before. Steps count as warm from warm_from on.
Needs torch, nvidia-ml-py, transformers, peft, torchvision, torch_geometric.
"""
import argparse
import contextlib
import gc
import itertools
import json
import os
import random
import socket
import sys
import time

begun = time.monotonic()
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tests/gpu")]
import shim_run
from workloads import WORKLOADS, Job, generator

# How a full card is told: by torch, by RMM, and by the libraries below torch, whose own
# handles and workspaces find no room.
OUT_OF_MEMORY = ("out of memory", "out_of_memory", "would exceed allowed memory", "std::bad_alloc",
                 "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
                 "CUDNN_STATUS_ALLOC_FAILED", "unable to find an engine to execute this computation")


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("workload", choices=WORKLOADS)
    ap.add_argument("--wait", action="store_true", help="begin when a line `go {...}` comes: batch, limit and alone may be in it")
    ap.add_argument("--turns", type=int, metavar="FD", help="make each step only when a byte comes from this socket (turns.py)")
    ap.add_argument("--sample", action="store_true", help="sample memory over the run; do not time such a run")
    ap.add_argument("--record", metavar="FILE", help="write torch's allocator events as a trace (native allocator; .csv or .csv.zst)")
    ap.add_argument("--batch", type=int, help="this batch instead of the workload's own sizes (with --wait: the line may bring another)")
    ap.add_argument("--limit", type=int, metavar="STEPS", help="fewer steps")
    ap.add_argument("--rmm", choices=["pool", "async"], help="put torch on RMM")
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--scale", choices=["full", "tiny"], default="full", help="tiny: to test the script; never a measurement")
    return ap.parse_args()


def unpin():
    """Every thread may run on every core again (the runner keeps cells that wait off some)."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), range(os.cpu_count()))


def torch_bytes(torch):
    """torch's own peaks; empty where the allocator tells nothing."""
    try:
        stats = torch.cuda.memory_stats()
    except Exception:
        return {}
    return dict(live_torch_bytes=stats.get("requested_bytes.all.peak", 0), reserved_bytes=stats.get("reserved_bytes.all.peak", 0),
                allocated_bytes=stats.get("allocated_bytes.all.peak", 0), allocations=stats.get("allocation.all.allocated", 0),
                retries=stats.get("num_alloc_retries", 0))


def pool_words(counters, warm, warm_s):
    """What the statistics page says of the whole run and of its warm part."""
    words = dict(live_bytes=counters["peak_live_bytes"], physical_bytes=counters["peak_physical_bytes"], counters=counters)
    names = dict(stall_ns="stall_ns", stalls="stalls", driver_ns="warm_driver_ns", host_waits="warm_host_waits")
    for name, word in names.items():
        if name in counters and warm:
            words[word] = counters[name] - warm[name]
    return words


def machine(torch):
    with open("/proc/sys/kernel/random/boot_id") as f:
        words = dict(gpu="none", driver="none", torch=torch.__version__, date=time.strftime("%Y-%m-%d"), boot=f.read().strip())
    if torch.cuda.is_initialized():
        import pynvml
        pynvml.nvmlInit()
        words.update(gpu=torch.cuda.get_device_name(), driver=pynvml.nvmlSystemGetDriverVersion())
    return words


def run(a):
    import numpy            # noqa: F401  before the seeds, as where the first traces were recorded
    import torch
    torch.manual_seed(0)
    random.seed(0)
    torch.backends.cuda.enable_cudnn_sdp(WORKLOADS[a.workload].cudnn_attention)
    job = Job(WORKLOADS[a.workload], device=a.device, tiny=a.scale == "tiny")
    steps = generator(a.workload)(job)
    next(steps)
    alone, prepare_s = True, time.monotonic() - begun
    if a.wait:
        print("ready", flush=True)
        line = sys.stdin.readline().split(" ", 1)
        if line[0].strip() != "go":
            sys.exit(3)                                 # whoever was to say go has gone
        told = json.loads(line[1]) if len(line) > 1 else {}
        unpin()
        alone, a.batch, a.limit = told.get("alone", True), told.get("batch", a.batch), told.get("limit", a.limit)
    job.batch, job.limit = a.batch, a.limit
    clock = Clock(torch, a.device)
    if a.rmm:
        import allocators
        allocators.rmm_before_cuda()
    if a.device == "cuda":
        if a.record:
            import record
            record.begin()
        torch.cuda.init()
    context_ms = clock.lap()
    page = shim_run.Page(os.getpid()) if "libmemcuda" in os.environ.get("LD_PRELOAD", "") else None
    sampler = None
    if a.sample and a.device == "cuda":
        from sampler import Sampler
        sampler = Sampler(page, alone)
    if a.rmm:
        allocators.rmm_resource(a.rmm)
    if a.device == "cuda" and not a.sample:
        load_libraries(torch)
    clock.lap()
    next(steps)
    load_ms, step_ms, losses, warm, warm_at = clock.lap(), [], [], None, None
    warm_from = min(job.workload.warm_from, len(job.steps) - 1)
    for number, loss in enumerate(in_turns(a.turns, steps, clock, settle_at=(0, warm_from))):
        step_ms.append(clock.lap())
        if number in (0, len(job.steps) - 1) and loss is not None:
            losses.append(round(float(loss), 4))
        del loss
        if number == warm_from - 1:
            warm, warm_at = page and page.look() and page.counters(), time.monotonic()
        clock.restart()
    warm_s = time.monotonic() - (warm_at or time.monotonic()) if a.turns is None else sum(step_ms[warm_from:]) / 1e3
    cell = dict(workload=a.workload, status=0, step_ms=step_ms, first_step_ms=step_ms[0], warm_from=warm_from,
                context_ms=context_ms, load_ms=load_ms, warm_s=round(warm_s, 4), prepare_s=round(prepare_s, 2),
                check=job.digest(), losses=losses)
    if sampler:
        cell.update(sampler.finish())
    if a.device == "cuda":
        cell.update(torch_bytes(torch))
    if page:
        if not page.look() or not (counters := page.counters()) or not counters["requests"]:
            raise RuntimeError("the pool served nothing")
        cell.update(pool_words(counters, warm, warm_s))
    if a.record:
        cell["events"] = record.end(a.record)
    return dict(cell, machine=machine(torch))


def in_turns(descriptor, steps, clock, settle_at=()):
    """The steps, each when its turn has come, if there are turns; on to the end where nobody gives any more.
    Python's collector, which takes long for all that is loaded, works between them."""
    if descriptor is None:
        yield from steps
        return
    with socket.socket(fileno=descriptor) as line:
        given = b"."
        for number in itertools.count():
            gc.collect()
            if number in settle_at:
                gc.freeze()                     # what is there by now stays, and is not looked at again
            with contextlib.suppress(OSError):
                given = given and (line.sendall(b".") or line.recv(1))
            clock.restart()
            try:
                loss = next(steps)
            except StopIteration:
                return
            yield loss


def load_libraries(torch):
    """One small product, convolution and attention, forward and back: reading and starting
    cuBLAS and cuDNN takes seconds and is no allocator's doing, so it is not in the first step."""
    from torch.nn.functional import conv2d, scaled_dot_product_attention
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.ones(1, 8, 64, 64, device="cuda", dtype=dtype, requires_grad=True)
        y = conv2d(x @ x, torch.ones(8, 8, 3, 3, device="cuda", dtype=dtype), padding=1)
        scaled_dot_product_attention(y, y, y).float().square().mean().backward()
    torch.cuda.synchronize()


class Clock:
    """Milliseconds between quiet moments of the device."""

    def __init__(self, torch, device):
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.restart()

    def restart(self):
        self.at = time.perf_counter()

    def lap(self):
        self.wait()
        now = time.perf_counter()
        passed, self.at = round((now - self.at) * 1e3, 3), now
        return passed


def main():
    a = arguments()
    if a.record and a.device != "cuda":
        sys.exit("--record needs --device cuda: what is recorded is torch's CUDA allocator")
    try:
        cell = run(a)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        cell = dict(workload=a.workload, status=1, error=text.splitlines()[0][:300],
                    out_of_memory=any(words in text for words in OUT_OF_MEMORY))
        if os.environ.get("BENCH_TRACEBACK"):
            raise
    if a.scale != "full" or a.device != "cuda":
        cell["smoke"] = f"--scale {a.scale} --device {a.device}: tests the script, measures nothing"
    print(json.dumps(dict(cell, batch=a.batch, wall_s=round(time.monotonic() - begun, 1))), flush=True)
    sys.exit(cell["status"])


if __name__ == "__main__":
    main()
