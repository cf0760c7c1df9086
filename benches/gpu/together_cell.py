#!/usr/bin/env python3
"""One cell of together.py: several jobs at once under the allocator that the environment
chose. Prints one JSON line.

    python3 benches/gpu/together_cell.py threads

ddp2        torch's data parallel on two GPUs, a process each, NCCL
threads     four Python threads of one process, each with a model and a stream of its own
processes4  four processes on one GPU

All take a step, wait for their own stream, and meet at a barrier: step_ms is from barrier
to barrier. Bytes are the sum over the processes of each one's own peak.
"""
import argparse
import json
import multiprocessing
import os
import queue
import random
import socket
import sys
import threading
import time

begun = time.monotonic()
import cell as one_cell
import shim_run
from workloads import Job

WHAT = {"ddp2": 2, "threads": 4, "processes4": 4}
TOGETHER_S = 120            # that a job may be behind the others


class Worker:
    """One of the jobs. `go` and `barrier` are shared with the others."""

    def __init__(self, a, rank, port):
        import torch
        from workloads.shared import SHARED, shared_training
        self.a, self.rank, self.port, self.torch = a, rank, port, torch
        self.job = Job(SHARED, device=a.device, tiny=a.scale == "tiny", dice=random.Random(rank))
        self.steps = shared_training(self.job, self.wrap)
        next(self.steps)

    def wrap(self, model):
        if self.a.what != "ddp2":
            return model
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model)

    def wait(self):
        if self.a.device == "cuda":
            self.torch.cuda.current_stream().synchronize()

    def begin(self):
        """The device, what connects the processes, the model."""
        torch, cuda = self.torch, self.a.device == "cuda"
        if cuda:
            torch.cuda.set_device(self.rank if self.a.what == "ddp2" else 0)
        if self.a.what == "ddp2":
            import torch.distributed
            torch.distributed.init_process_group("nccl" if cuda else "gloo", init_method=f"tcp://127.0.0.1:{self.port}",
                                                 rank=self.rank, world_size=WHAT["ddp2"])
        stream = torch.cuda.Stream() if cuda and self.a.what == "threads" else None
        return torch.cuda.stream(stream)

    def run(self, barrier, page):
        """Every step with the others; {step_ms, ...} as this job saw it."""
        step_ms, losses, warm, warm_at = [], [], None, time.monotonic()
        warm_from = min(self.job.workload.warm_from, len(self.job.steps) - 1)
        with self.begin():
            next(self.steps)
            self.wait()
            barrier.wait(TOGETHER_S)
            at = time.perf_counter()
            for number, loss in enumerate(self.steps):
                self.wait()
                barrier.wait(TOGETHER_S)
                now = time.perf_counter()
                step_ms.append(round((now - at) * 1e3, 3))
                if number in (0, len(self.job.steps) - 1):
                    losses.append(round(float(loss), 4))
                del loss
                if number == warm_from - 1:
                    warm, warm_at = page and page.look() and page.counters(), time.monotonic()
                at = time.perf_counter()
        return dict(step_ms=step_ms, warm_from=warm_from, warm_s=round(time.monotonic() - warm_at, 4),
                    check=self.job.digest(), losses=losses), warm


def of_process(torch, device, page, warm, warm_s):
    """What this process holds: torch's peaks and the pool's."""
    words = one_cell.torch_bytes(torch) if device == "cuda" else {}
    if page:
        if not page.look() or not (counters := page.counters()) or not counters["requests"]:
            raise RuntimeError("the pool served nothing")
        words.update(one_cell.pool_words(counters, warm, warm_s))
    return words


def own_page():
    return shim_run.Page(os.getpid()) if "libmemcuda" in os.environ.get("LD_PRELOAD", "") else None


def process(a, rank, port, go, barrier, results):
    """A job as a process of its own."""
    try:
        worker, page = Worker(a, rank, port), own_page()
        go.wait()
        one_cell.unpin()
        mine, warm = worker.run(barrier, page)
        mine.update(of_process(worker.torch, a.device, page, warm, mine["warm_s"]), machine=one_cell.machine(worker.torch))
        results.put(mine)
        if a.what == "ddp2":
            worker.torch.distributed.destroy_process_group()
    except BaseException as error:
        barrier.abort()
        results.put(failure(error))


def failure(error):
    text = f"{type(error).__name__}: {error}"
    return dict(error=text.splitlines()[0][:300])


def as_processes(a, count):
    """The result of each of `count` processes."""
    context = multiprocessing.get_context("spawn")
    go, barrier, results = context.Event(), context.Barrier(count), context.Queue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [context.Process(target=process, args=(a, rank, port, go, barrier, results), daemon=True) for rank in range(count)]
    for child in children:
        child.start()
    told(a)
    go.set()
    found = []
    while len(found) < count:
        try:
            found.append(results.get(timeout=1))
        except queue.Empty:
            dead = [c.exitcode for c in children if c.exitcode]
            if dead:
                barrier.abort()
                found.append(dict(error=f"a process ended with status {dead[0]}"))
                break
    for child in children:
        child.join(30)
    return found


def as_threads(a, count):
    """The result of each of `count` threads; what the process holds is in the first."""
    workers, barrier, found = [Worker(a, rank, None) for rank in range(count)], threading.Barrier(count), []
    told(a)
    one_cell.unpin()
    page = own_page()

    def thread(worker):
        try:
            found.append(worker.run(barrier, page))
        except BaseException as error:
            barrier.abort()
            found.append((failure(error), None))

    threads = [threading.Thread(target=thread, args=(worker,)) for worker in workers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    mine, warm = found[0]
    if not any("error" in f for f, _ in found):
        mine.update(of_process(workers[0].torch, a.device, page, warm, mine["warm_s"]), machine=one_cell.machine(workers[0].torch))
    return [f for f, _ in found]


def told(a):
    """Waits for `go` where that was asked for."""
    if a.wait:
        print("ready", flush=True)
    if a.wait and not sys.stdin.readline().startswith("go"):
        os._exit(3)


def merged(found):
    """One cell of what the jobs said: a step lasts as long as the slowest saw it, bytes and
    counts are summed, stalls too, against the time of all."""
    errors = [f["error"] for f in found if "error" in f]
    if errors:
        # Those whose barrier broke only say so.
        telling = [e for e in errors if not e.startswith("BrokenBarrierError")] or errors
        return dict(status=1, error=telling[0], out_of_memory=any(w in telling[0] for w in one_cell.OUT_OF_MEMORY))
    cell = dict(status=0, step_ms=[max(each) for each in zip(*(f["step_ms"] for f in found))], warm_from=found[0]["warm_from"],
                warm_s=round(sum(f["warm_s"] for f in found if len(found) == 1 or "machine" in f), 4),
                check="".join(sorted(f["check"] for f in found)), losses=sorted(x for f in found for x in f["losses"]),
                machine=next(f["machine"] for f in found if "machine" in f))
    cell["first_step_ms"] = cell["step_ms"][0]
    for name in ("live_torch_bytes", "reserved_bytes", "allocated_bytes", "allocations", "retries", "live_bytes", "physical_bytes",
                 "stall_ns", "stalls", "warm_driver_ns", "warm_host_waits"):
        if any(name in f for f in found):
            cell[name] = sum(f.get(name, 0) for f in found)
    counters = [f["counters"] for f in found if "counters" in f]
    if counters:
        cell["counters"] = {name: sum(c[name] for c in counters) for name in counters[0] if name != "ordinal"}
    return cell


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=WHAT)
    ap.add_argument("--wait", action="store_true", help="begin when a line `go` comes")
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--scale", choices=["full", "tiny"], default="full", help="tiny: to test the script; never a measurement")
    a = ap.parse_args()
    count = WHAT[a.what]
    cell = merged(as_threads(a, count) if a.what == "threads" else as_processes(a, count))
    if a.scale != "full" or a.device != "cuda":
        cell["smoke"] = f"--scale {a.scale} --device {a.device}: tests the script, measures nothing"
    print(json.dumps(dict(cell, what=a.what, wall_s=round(time.monotonic() - begun, 1))), flush=True)
    sys.exit(cell["status"])


if __name__ == "__main__":
    main()
