"""Rows of PyTorch's own memory interface: pools, snapshots, fractions, running
out, what it answers about memory.
"""
import ctypes
import os
import pickle
import shutil
import subprocess
import tempfile

from . import MIB, Digest, churn, digest, digest_text, must, torch_row

GIB = 1 << 30

# An allocator of the user's own, which asks the runtime itself.
ALLOCATOR = r"""
#include <stddef.h>
#include <sys/types.h>
extern int cudaMalloc(void **pointer, size_t bytes);
extern int cudaFree(void *pointer);
int taken, given;
void *take(ssize_t bytes, int device, void *stream)
{
    void *pointer = NULL;
    (void)device, (void)stream;
    taken++;
    return cudaMalloc(&pointer, (size_t)bytes) == 0 ? pointer : NULL;
}
void give(void *pointer, ssize_t bytes, int device, void *stream)
{
    (void)bytes, (void)device, (void)stream;
    given++;
    cudaFree(pointer);
}
"""


def tensor(torch, mib, value):
    return torch.full((int(mib * MIB),), value, dtype=torch.uint8, device="cuda")


@torch_row("torch MemPool", not_async=True)
def mem_pool(torch):
    """A user's pool that grows and shrinks while torch holds idle segments
    outside it; pools over an allocator of the user's own."""
    churn(torch, 60, 3000, seed=1)
    pool, kept, contents = torch.cuda.MemPool(), [], Digest()
    for i in range(16):
        with torch.cuda.use_mem_pool(pool):
            kept.append(tensor(torch, 9 + 7 * i, i))
        churn(torch, 10, 3000, seed=i)
    del kept[::3]
    with torch.cuda.use_mem_pool(pool):
        kept += [tensor(torch, 15, 100 + i) for i in range(8)]
    for t in kept:
        contents.add(t[:: 1 << 12])
    held = sum(s["allocated_size"] for s in pool.snapshot())
    asked = sum(t.numel() for t in kept)
    must(asked <= held, f"{held} bytes allocated in the pool, {asked} asked for")
    del kept, t
    uses = pool.use_count()
    del pool
    torch.cuda.empty_cache()
    return dict(contents=str(contents), use_count=uses, own_allocator=own_allocator(torch))


def compiler():
    found = shutil.which("cc") or shutil.which("gcc")
    must(found, "no C compiler for the allocator of the user's own")
    return found


def own_allocator(torch):
    with tempfile.TemporaryDirectory() as folder:
        source, library = os.path.join(folder, "own.c"), os.path.join(folder, "own.so")
        with open(source, "w") as f:
            f.write(ALLOCATOR)
        subprocess.run([compiler(), "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give")
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            kept = [tensor(torch, 3 + 11 * i, 7 * i) for i in range(9)]
        contents = digest(*(t[:: 1 << 12] for t in kept))
        del kept, pool
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        counts = ctypes.CDLL(library)
        taken, given = (ctypes.c_int.in_dll(counts, name).value for name in ("taken", "given"))
        must(taken > 0, "torch never asked the allocator")
        # How many depends on the size of the segments that small tensors share.
        return dict(contents=contents, left=taken - given)


@torch_row("torch snapshot", not_async=True)
def snapshot(torch):
    """What was allocated and freed, in order, by torch's own record; the map of
    segments agrees with the counters."""
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=200_000)
    churn(torch, 120, 2000, seed=3)
    kept = [torch.ones((1 + i) << 16, device="cuda") for i in range(20)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as f:
            taken = pickle.load(f)
    events = [(e["action"], e["size"]) for e in taken["device_traces"][0]
              if e["action"] in ("alloc", "free_requested", "free_completed")]
    allocated = 0
    for segment in taken["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            must(block["address"] == at, "a block does not begin where the one before it ends")
            at += block["size"]
            allocated += block["size"] * (block["state"] == "active_allocated")
        must(at == segment["address"] + segment["total_size"], "the blocks do not fill their segment")
    must(allocated == torch.cuda.memory_allocated(), f"{allocated} bytes in segments, {torch.cuda.memory_allocated()} counted")
    torch.cuda.memory._record_memory_history(enabled=None)
    return dict(events=len(events), record=digest_text(events), contents=digest(*kept))


def try_tensor(torch, gib):
    """A tensor, or None where torch says that it is out of memory."""
    try:
        return tensor(torch, gib * 1024, 1)
    except torch.OutOfMemoryError:
        return None


@torch_row("torch memory fraction")
def fraction(torch):
    """What fits below the fraction fits, what does not is torch's own
    out-of-memory, and the program goes on."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(6 * GIB / total)
    fits = []
    for gib in (2, 5, 7, 3.5, 0.5, 5.5, 6.5, 4):
        held = try_tensor(torch, gib)
        fits.append(held is not None)
        del held
    churn(torch, 150, 3000, seed=4)
    kept = [try_tensor(torch, 1) for _ in range(8)]
    fits.append(sum(t is not None for t in kept) >= 5)
    must(kept[-1] is None, "the fraction was not enforced")
    del kept
    torch.cuda.empty_cache()
    churn(torch, 60, 3000, seed=5)
    share = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(1.0)
    whole = try_tensor(torch, 7)
    # How many tensors of the last filling fit depends on what torch caches.
    torch.cuda.reset_peak_memory_stats()
    return dict(fits=fits, share=round(share * total / GIB, 3), whole=whole is not None)


@torch_row("torch out of memory", alone=True)
def out_of_memory(torch):
    """The card nearly full; a real out-of-memory; every other tensor freed and
    one made that is as large as the holes together; again."""
    total = torch.cuda.get_device_properties(0).total_memory
    step = total // 48
    results, refused = Digest(), 0
    for turn in range(3):
        held = [torch.full((step,), turn + i % 100, dtype=torch.uint8, device="cuda") for i in range(40)]
        for bytes in (total // 2, 2 * total, total // 3):
            try:
                torch.empty(bytes, dtype=torch.uint8, device="cuda")
                raise SystemExit(f"{bytes} bytes on a card that is full")
            except torch.OutOfMemoryError as error:
                must("out of memory" in str(error), f"another text: {error}")
                refused += 1
        del held[::2]
        if turn == 1 or torch.cuda.get_allocator_backend() == "cudaMallocAsync":
            # Torch does not ask the driver's own pool a second time.
            torch.cuda.empty_cache()
        large = torch.full((18 * step,), 200 + turn, dtype=torch.uint8, device="cuda")
        for t in held + [large]:
            results.add(t[:: 1 << 24])
        del held, large, t
        # Else torch would cut the next turn's tensors from the large one and keep it whole.
        torch.cuda.empty_cache()
        churn(torch, 40, 3000, seed=turn)
        torch.cuda.empty_cache()
    return dict(results=str(results), refused=refused, ooms=torch.cuda.memory_stats().get("num_ooms", 0))


@torch_row("torch memory interface", alone=True)
def interface(torch):
    """mem_get_info falls and rises with memory; counters, summaries, the raw
    allocator, the host's statistics."""
    cuda = torch.cuda
    first = torch.ones(1, device="cuda")        # the runtime's own first needs
    cuda.synchronize()
    free, total = cuda.mem_get_info()
    big = tensor(torch, 6 * 1024, 3)
    cuda.synchronize()
    less = free - cuda.mem_get_info()[0]
    value = int(big[-1])
    cuda.reset_peak_memory_stats()
    peak_of_one = cuda.max_memory_allocated() >= big.numel() == 6 * GIB
    del big
    cached = cuda.memory_reserved()
    cuda.empty_cache()
    back = free - cuda.mem_get_info()[0]
    raw = cuda.caching_allocator_alloc(100 * MIB)
    allocated = cuda.memory_allocated()
    cuda.caching_allocator_delete(raw)
    summary = cuda.memory_summary()
    pinned = torch.empty(5 << 20, pin_memory=True)
    answers = dict(
        first=float(first), total=total, properties_total=cuda.get_device_properties(0).total_memory, value=value,
        fell_as_asked=6 * GIB <= less <= 6 * GIB + 128 * MIB, came_back=abs(back) <= 128 * MIB,
        peak_of_one=peak_of_one, cached=cached >= 6 * GIB, released=cuda.memory_reserved() < GIB,
        raw=allocated >= 100 * MIB, pinned=pinned.is_pinned(), summary=len(summary.splitlines()),
        statistics=len(cuda.memory_stats()), host_statistics=len(cuda.host_memory_stats()),
        backend=cuda.get_allocator_backend())
    for name in ("fell_as_asked", "came_back"):
        must(answers[name], f"free memory fell by {less >> 20} MiB for 6144 MiB, and {back >> 20} MiB were not back after empty_cache")
    return answers
