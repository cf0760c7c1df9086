#!/usr/bin/env python3
"""CUDA IPC of pooled memory on a real GPU: what programs do with it bare and with
the library, which must come to the same.

    python3 tests/gpu/ipc.py              # everything; two GPUs for the all-reduce
    python3 tests/gpu/ipc.py cases torch  # some of it

  cases       tests/gpu/ipc_cases.c: every answer, and what the calls cost
  torch       torch.multiprocessing with CUDA tensors in queues, unchanged
  killed      a consumer is killed with a kernel running: its memory comes back,
              and nothing writes to it afterwards
  allreduce   over IPC handles as vLLM's custom all-reduce does it: range start,
              handle, offset; eager and in a CUDA graph

Prints a PASS or FAIL line each and the table last; exits with 1 where anything
failed or is missing. Needs NVIDIA GPUs, torch, cupy, gcc and `make build`; the
keeper that the library starts is stopped at the end.
"""
import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run

HERE = os.path.dirname(os.path.abspath(__file__))
MEMCUDA = os.path.join(shim_run.ROOT, "target/release/memcuda")
MIB = 1 << 20

# ---- programs -------------------------------------------------------------


def pattern(torch, elements, seed, device="cuda"):
    return (torch.arange(elements, device=device, dtype=torch.int64) * 2654435761 + seed * 40503) % 1000003


def total(tensor):
    """Depends on every element and its place."""
    import torch
    places = torch.arange(1, tensor.numel() + 1, device=tensor.device, dtype=torch.int64)
    return int((tensor.flatten().to(torch.int64) * places % 1000003).sum())


def consumer(to, back):
    """Answers each batch of tensors with their sums, and writes into them."""
    import torch
    torch.cuda.set_device(0)
    while True:
        batch = to.get()
        if batch is None:
            return
        sums = [total(tensor) for tensor in batch]
        for tensor in batch:
            tensor.mul_(2)
        torch.cuda.synchronize()
        back.put(sums)
        del batch, tensor


def torch_queues():
    """Tensors of many sizes, several of one segment, views with offsets; other
    memory comes and goes between. The consumer's writes are seen here."""
    import torch
    import torch.multiprocessing as mp
    context = mp.get_context("spawn")
    to, back = context.Queue(), context.Queue()
    processes = [context.Process(target=consumer, args=(to, back), daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    digest, sent = hashlib.sha256(), 0
    for i in range(40):
        sizes = [300 + i, 70_001 * (1 + i % 5), 2_000_003 + i * 131_072, (20_000_000, 1000)[i % 2]]
        batch = [pattern(torch, size, i * 10 + j) for j, size in enumerate(sizes)]
        batch.append(batch[2][1000:500_000])        # of the same storage, with an offset
        expected = [total(tensor) for tensor in batch]
        junk = torch.full((5 * MIB * (1 + i % 7),), float("nan"), device="cuda")
        to.put(batch)
        del junk
        sums = back.get(timeout=60)
        if sums != expected:
            raise AssertionError(f"round {i}: the consumer saw {sums}, not {expected}")
        for tensor in batch[:4]:
            digest.update(str(total(tensor)).encode())
        sent += len(batch)
        del batch, tensor
        if i % 10 == 9:
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
    for _ in processes:
        to.put(None)
    for process in processes:
        process.join(60)
        if process.exitcode != 0:
            raise AssertionError(f"a consumer ended with {process.exitcode}")
    return dict(tensors=sent, digest=digest.hexdigest()[:16])


def holder(to, ready):
    """Keeps what it gets until it is killed."""
    import torch
    torch.cuda.set_device(0)
    held = to.get()
    ready.put([total(tensor) for tensor in held])
    time.sleep(600)


def torch_killed():
    """A consumer is killed while it holds tensors: the producer goes on, and what
    it sends to the next one arrives."""
    import torch
    import torch.multiprocessing as mp
    context = mp.get_context("spawn")
    digest = hashlib.sha256()
    for i in range(3):
        to, ready = context.Queue(), context.Queue()
        process = context.Process(target=holder, args=(to, ready), daemon=True)
        process.start()
        batch = [pattern(torch, size, i) for size in (1000, 3_000_000, 9_000_000)]
        expected = [total(tensor) for tensor in batch]
        to.put(batch)
        if ready.get(timeout=60) != expected:
            raise AssertionError("the consumer saw other numbers")
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        churned = [pattern(torch, 2_000_000 + j, j) for j in range(20)]
        if [total(tensor) for tensor in batch] != expected:
            raise AssertionError("tensors changed when their consumer was killed")
        digest.update(str([total(tensor) for tensor in batch + churned]).encode())
        del batch, churned
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
    return dict(digest=digest.hexdigest()[:16])


SPIN = r"""
extern "C" __global__ void spin_and_write(unsigned *words, unsigned long long n, long long nanoseconds) {
    unsigned long long began, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do {
        for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            ((volatile unsigned *)words)[i] = 0xDEADu;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while ((long long)(now - began) < nanoseconds);
}
"""


def stray_writer(folder):
    """Opens memory, writes to it for 20 seconds, and is killed by then."""
    import cupy
    with open(os.path.join(folder, "handle"), "rb") as f:
        at = cupy.cuda.runtime.ipcOpenMemHandle(f.read())
    kernel = cupy.RawKernel(SPIN, "spin_and_write")
    kernel((64,), (256,), (at, 64 * MIB // 4, 20_000_000_000))
    with open(os.path.join(folder, "writing"), "w"):
        pass
    time.sleep(600)


def stray_writes():
    """Memory of a killed importer is lent again; a kernel of it must be over by
    then. Bare, the driver promises nothing of this kind."""
    import cupy
    runtime = cupy.cuda.runtime
    waits, strays, last = [], 0, []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            at = runtime.malloc(64 * MIB)
            with open(os.path.join(folder, "handle.new"), "wb") as f:
                f.write(runtime.ipcGetMemHandle(at))
            os.rename(os.path.join(folder, "handle.new"), os.path.join(folder, "handle"))
            other = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", "stray_writer", folder])
            until = time.time() + 60
            while not os.path.exists(os.path.join(folder, "writing")):
                if other.poll() is not None or time.time() > until:
                    raise AssertionError("the importer did not come to write")
                time.sleep(0.01)
            time.sleep(0.2)
            runtime.free(at)
            elsewhere = runtime.malloc(64 * MIB)
            if elsewhere == at:
                raise AssertionError("memory was lent again while somebody has it open")
            runtime.free(elsewhere)
            began = time.time()
            os.kill(other.pid, signal.SIGKILL)
            taken = []
            # Whatever else is free is taken and kept: what comes back is next.
            while at not in taken:
                taken.append(runtime.malloc(64 * MIB))
                if len(taken) > 1000:
                    raise AssertionError("the memory of a killed importer did not come back within 10 s")
                time.sleep(0.01)
            waits.append((time.time() - began) * 1e3)
            runtime.memset(at, 0, 64 * MIB)
            for _ in range(20):
                words = cupy.ndarray((64 * MIB // 4,), cupy.uint32, cupy.cuda.MemoryPointer(
                    cupy.cuda.UnownedMemory(at, 64 * MIB, None), 0))
                stray = int((words != 0).sum())
                if stray:
                    strays += stray
                    last.append(round((time.time() - began) * 1e3))
                time.sleep(0.05)
            del words
            for one in taken:
                runtime.free(one)
            other.wait()
    if strays:
        raise AssertionError(f"{strays} words were written by processes that were dead, up to {max(last)} ms after "
                             f"their end was asked for; back after {[round(wait) for wait in waits]} ms")
    return dict(strays=strays, other=dict(back_ms=[round(wait, 1) for wait in waits]))


REDUCE = r"""
// Flags of 32 bits, of which each rank writes its own in the other's memory: the
// blocks with the same number wait for each other before they read and before
// they end, so that inputs may be overwritten afterwards.
__device__ void meet(volatile unsigned *mine, volatile unsigned *theirs, unsigned round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        theirs[blockIdx.x] = round;
        while ((int)(mine[blockIdx.x] - round) < 0) {}
        __threadfence_system();
    }
    __syncthreads();
}
extern "C" __global__ void all_reduce(const volatile float *first, const volatile float *second, float *out, unsigned n,
                                      volatile unsigned *mine, volatile unsigned *theirs, unsigned *rounds) {
    unsigned round = rounds[blockIdx.x];
    meet(mine, theirs, round + 1);
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = first[i] + second[i];
    meet(mine, theirs, round + 2);
    if (threadIdx.x == 0) rounds[blockIdx.x] = round + 2;
}
"""
BLOCKS, THREADS = 36, 512


def exchange(folder, rank, name, value):
    """Gives the other rank something and gets the same of it."""
    path = os.path.join(folder, f"{name}-{rank}")
    with open(path + ".new", "wb") as f:
        f.write(value)
    os.rename(path + ".new", path)
    other, until = os.path.join(folder, f"{name}-{1 - rank}"), time.time() + 90
    while not os.path.exists(other):
        if time.time() > until:
            raise AssertionError(f"the other rank gave no {name}")
        time.sleep(0.001)
    with open(other, "rb") as f:
        return f.read()


class Peer:
    """The other rank's memory, opened a handle once as vLLM does it."""

    def __init__(self, folder, rank):
        import cupy
        self.runtime, self.folder, self.rank, self.count, self.opened = cupy.cuda.runtime, folder, rank, 0, {}
        import ctypes
        self.driver = ctypes.CDLL("libcuda.so.1")

    def range_start(self, at):
        import ctypes
        base = ctypes.c_uint64()
        code = self.driver.cuPointerGetAttribute(ctypes.byref(base), 11, ctypes.c_uint64(at))
        if code:
            raise AssertionError(f"the start of a range: {code}")
        return base.value

    def swap(self, at):
        """The address at which the other rank's corresponding memory is here."""
        base = self.range_start(at)
        mine = self.runtime.ipcGetMemHandle(base) + (at - base).to_bytes(8, "little")
        self.count += 1
        theirs = exchange(self.folder, self.rank, f"memory{self.count}", mine)
        handle, offset = theirs[:64], int.from_bytes(theirs[64:], "little")
        if handle not in self.opened:
            self.opened[handle] = self.runtime.ipcOpenMemHandle(handle)
        return self.opened[handle] + offset

    def close(self):
        for at in self.opened.values():
            self.runtime.ipcCloseMemHandle(at)


def rank_of_two(folder, rank):
    """One rank: sums of tensors that lie anywhere in torch's segments."""
    import cupy
    import torch
    rank = int(rank)
    torch.cuda.set_device(rank)
    cupy.cuda.Device(rank).use()
    kernel = cupy.RawKernel(REDUCE, "all_reduce")
    peer = Peer(folder, rank)
    rounds = torch.zeros(BLOCKS, dtype=torch.int32, device="cuda")
    flags = torch.zeros(BLOCKS, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    their_flags = peer.swap(flags.data_ptr())
    digest, times = hashlib.sha256(), []

    def reduce(x, theirs, out, stream):
        two = (x.data_ptr(), theirs) if rank == 0 else (theirs, x.data_ptr())
        with cupy.cuda.ExternalStream(stream.cuda_stream):
            kernel((BLOCKS,), (THREADS,), (*two, out.data_ptr(), cupy.uint32(x.numel()), flags.data_ptr(), their_flags,
                                           rounds.data_ptr()))

    def values(elements, seed, of):
        return ((torch.arange(elements, device="cuda") * (seed + 3)) % (1000 + of)).float()

    def check(out, elements, seed, what):
        if not torch.equal(out, values(elements, seed, 0) + values(elements, seed, 1)):
            raise AssertionError(f"rank {rank}: a wrong sum {what}")
        digest.update(out[:: 97].cpu().numpy().tobytes())

    stream = torch.cuda.current_stream()
    for i in range(30):
        elements = (4096, 100_003, 1 << 20, 8_000_001)[i % 4] + i
        keep = torch.empty(1000 * i + 1, device="cuda")              # the next one begins elsewhere
        x = values(elements, i, rank)
        out = torch.full_like(x, float("nan"))
        theirs = peer.swap(x.data_ptr())
        torch.cuda.synchronize()
        exchange(folder, rank, f"ready{i}", b"x")
        reduce(x, theirs, out, stream)
        torch.cuda.synchronize()
        check(out, elements, i, f"of {elements} numbers")
        del keep
    # In a graph: captured first, the handles of its buffers exchanged afterwards.
    x, out = torch.empty(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    theirs = peer.swap(x.data_ptr())
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(4):
            reduce(x, theirs, out, side)
    inside = torch.empty(1 << 20, device="cuda")
    peer.swap(inside.data_ptr())
    for i in range(20):
        x.copy_(values(1 << 20, i, rank))
        torch.cuda.synchronize()
        exchange(folder, rank, f"graph{i}", b"x")
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / 4 * 1e6)
        check(out, 1 << 20, i, "in a graph")
    torch.cuda.synchronize()
    exchange(folder, rank, "done", b"x")
    peer.close()
    exchange(folder, rank, "closed", b"x")
    other = dict(us_4_mib=round(sorted(times)[len(times) // 2], 1), handles=len(peer.opened))
    return dict(digest=digest.hexdigest()[:16], other=other)


def allreduce():
    """Both ranks, each a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.abspath(__file__), "--child", "rank_of_two", folder]
        ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
        said = []
        for rank in ranks:
            out, _ = rank.communicate(timeout=200)
            said.append(json.loads(out.strip().splitlines()[-1]) if out.strip() else dict(refused=f"status {rank.returncode}"))
    for one in said:
        if "refused" in one:
            raise AssertionError(one["refused"])
    if said[0]["digest"] != said[1]["digest"]:
        raise AssertionError("the ranks do not agree")
    return said[0]


PROGRAMS = dict(torch_queues=torch_queues, torch_killed=torch_killed, stray_writes=stray_writes, stray_writer=stray_writer,
                allreduce=allreduce, rank_of_two=rank_of_two)

# ---- comparison -------------------------------------------------------------

# What may differ in ipc_cases: with the library memory stays as long as
# anybody has it open, whatever its exporter does.
BETTER = ("open of what was freed", "open after the exporter's end", "the bytes after the exporter's end", "open when all are gone")


def cases(verdicts, table):
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "ipc_cases")
        subprocess.run(["gcc", "-O2", "-o", program, os.path.join(HERE, "ipc_cases.c"), "-ldl"], check=True)
        bare, pooled = shim_run.run([program], limit=120), shim_run.run([program], shim_run.LIBRARY, 120, True)
    for side, run in (("bare", bare), ("with", pooled)):
        if run.status:
            return verdicts.say(False, "cases", f"{side}: {run.reason()}")
    lines = lambda run: dict(line.split(": ", 1) for line in run.out.splitlines() if ": " in line)
    left, right = lines(bare), lines(pooled)
    for name in left:
        if name.startswith("us to"):
            table.append((name, left[name], right.get(name, "-")))
            continue
        same = left[name] == right.get(name)
        verdicts.say(same or name in BETTER, f"case {name}", left[name] if same else f"bare {left[name]}; with {right.get(name)}")
    verdicts.say(pooled.served > 0, "cases are served by the pool", str(pooled.served))


def compared(verdicts, table, name, profiles, bare_too=True):
    """A program bare and under profiles: the results are the same."""
    command = [sys.executable, os.path.abspath(__file__), "--child", name]

    def once(preload, **environment):
        run = shim_run.run(command, preload, 280, True, **environment)
        try:
            return run, json.loads(run.last_line)
        except json.JSONDecodeError:
            return run, dict(refused=run.reason())

    bare = once(None)[1] if bare_too else {}
    if "refused" in bare:
        return verdicts.say(False, name, f"bare: {bare['refused']}")
    of_bare = bare.pop("other", {})
    for profile in profiles:
        run, said = once(shim_run.LIBRARY, MEMCUDA_TORCH=profile)
        title = f"{name} ({profile})"
        if "refused" in said:
            lines = [line for line in run.err.splitlines() if line.startswith("memcuda:")]
            verdicts.say(False, title, f"{said['refused']}; {' | '.join(lines[:3])}")
            continue
        other = said.pop("other", {})
        good = not bare_too or said == bare
        why = "" if good else f"bare {bare}; with {said}"
        if good and not run.served:
            good, why = False, "equal, but the pool served nothing"
        verdicts.say(good, title, why or f"{run.served} served")
        for key in other:
            table.append((f"{title} {key}", of_bare.get(key, "-"), other[key]))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["cases", "torch", "killed", "allreduce"]
    ap.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)} (default: all)")
    ap.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.child:
        try:
            said = PROGRAMS[a.child[0]](*a.child[1:])
        except BaseException as error:
            import traceback
            traceback.print_exc()
            said = dict(refused=f"{type(error).__name__}: {error}"[:300])
        print(json.dumps(said), flush=True)
        sys.exit(3 if said and "refused" in said else 0)
    wanted = a.parts or parts
    for part in wanted:
        if part not in parts:
            ap.error(f"unknown part {part}; known: {', '.join(parts)}")
    shim_run.need_gpu()
    shim_run.need_library()
    shim_run.need_library(MEMCUDA)
    verdicts, table = shim_run.Verdicts(), []
    if "cases" in wanted:
        cases(verdicts, table)
    if "torch" in wanted:
        compared(verdicts, table, "torch_queues", ["native", "keep", "auto"])
        compared(verdicts, table, "torch_killed", ["native", "keep"])
    if "killed" in wanted:
        compared(verdicts, table, "stray_writes", ["auto"], bare_too=False)
    if "allreduce" in wanted:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60).stdout
        if len(re.findall(r"^GPU \d", listing, re.M)) < 2:
            verdicts.say(False, "allreduce", "this needs two GPUs")
        else:
            compared(verdicts, table, "allreduce", ["native", "keep"])
    status = subprocess.run([MEMCUDA, "keeper", "status"], capture_output=True, text=True)
    print(status.stdout or status.stderr)
    subprocess.run([MEMCUDA, "keeper", "stop", "--force"], capture_output=True)
    print(f"{'':58} {'bare':>24} {'with':>24}")
    for name, left, right in table:
        print(f"{name:58} {str(left):>24} {str(right):>24}")
    verdicts.finish()


if __name__ == "__main__":
    main()
