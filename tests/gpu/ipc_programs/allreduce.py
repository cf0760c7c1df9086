"""A sum over two GPUs by IPC handles as vLLM's custom all-reduce does it: range start, handle,
offset; eager and in a CUDA graph."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

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


def both():
    """Both ranks, each a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "rank_of_two", folder]
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
