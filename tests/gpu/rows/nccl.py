"""Rows of NCCL: an all-reduce over all GPUs, one process a GPU, with plain
buffers and with registered ones.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from . import MIB, Digest, must, row

# NVLink multicast (NVLS) needs more of the machine than two GPUs and is no
# matter of the pool: left off unless the user turns it on.
QUIET = dict(NCCL_NVLS_ENABLE=os.environ.get("NCCL_NVLS_ENABLE", "0"),
             TORCH_SYMM_MEM_DISABLE_MULTICAST=os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
             NCCL_DEBUG=os.environ.get("NCCL_DEBUG", "WARN"))


def start(rank, ranks, rendezvous):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import datetime
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks,
                            device_id=torch.device("cuda", rank), timeout=datetime.timedelta(seconds=90))
    return torch, dist


def count(torch):
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    return {f"{kind} {when}": stats.get(f"{kind}_bytes.all.{when}", 0)
            for kind in ("requested", "allocated") for when in ("current", "peak")}


def reduce_all(torch, dist, rank, make):
    """Sums of small whole numbers, which are exact in any order, of changing
    sizes; other memory comes and goes between. `make(bytes)` is the buffer."""
    results = Digest()
    for i in range(24):
        elements = (1 + i * 7 % 13) * 1_000_003 if i % 4 else 1024
        x = make(elements)
        x.copy_(torch.arange(elements, device="cuda") % (11 + rank))
        junk = torch.full((5 * MIB * (1 + i % 3),), float("nan"), device="cuda")
        del junk
        dist.all_reduce(x)
        expected = sum(torch.arange(elements, device="cuda") % (11 + other) for other in range(dist.get_world_size()))
        must(torch.equal(x, expected.float()), f"a wrong sum of {elements} numbers")
        gathered = [torch.empty(1024, device="cuda") for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, x[:1024].contiguous())
        results.add(x[:: 101], *gathered)
        torch.cuda.synchronize()
    return results


def plain(torch, dist, rank):
    return str(reduce_all(torch, dist, rank, lambda n: torch.empty(n, device="cuda")))


def in_pool(torch, dist, rank, pool, backend):
    """The buffers lie in a memory pool that is registered with NCCL."""
    with torch.cuda.use_mem_pool(pool):
        slab = torch.zeros(16_000_000, device="cuda")
    backend.register_mem_pool(pool)
    result = str(reduce_all(torch, dist, rank, lambda n: slab[:n]))
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)
    return result


def registered(torch, dist, rank):
    """First memory that NCCL itself allocates, then torch's own."""
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda", rank))
    dist.all_reduce(torch.ones(1, device="cuda"))       # the communicator must exist
    of_nccl = in_pool(torch, dist, rank, torch.cuda.MemPool(backend.mem_allocator), backend)
    of_torch = in_pool(torch, dist, rank, torch.cuda.MemPool(), backend)
    return [of_nccl, of_torch]


WORK = {"plain": plain, "registered": registered}


def work(name, rank, ranks, rendezvous):
    """One process; prints what it found."""
    torch, dist = start(rank, ranks, rendezvous)
    found = WORK[name](torch, dist, rank)
    memory = count(torch)
    print(json.dumps(dict(found=found, memory=memory)), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def all_ranks(name):
    """Starts a process for each GPU and puts together what they print."""
    import torch
    ranks = torch.cuda.device_count()
    must(ranks >= 2, f"{ranks} GPUs, NCCL's rows need 2")
    with tempfile.TemporaryDirectory() as folder:
        start = ("import sys; sys.path.insert(0, sys.argv[1]); from rows import nccl; "
                 "nccl.work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])")
        parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        rendezvous = os.path.join(folder, "rendezvous")
        command = [sys.executable, "-c", start, parent, name]
        workers = [subprocess.Popen([*command, str(rank), str(ranks), rendezvous], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True) for rank in range(ranks)]
        ended = outputs(workers)
    for rank, (worker, (_, err)) in enumerate(zip(workers, ended)):
        sys.stderr.write(err)
        lines = [line for line in err.splitlines() if line.strip()]
        must(worker.returncode in (0, -9), f"rank {rank} ended with {worker.returncode}: {' | '.join(lines[-3:])[:400]}")
    must(not any(worker.returncode for worker in workers), "a rank was ended")
    said = [json.loads(out.splitlines()[-1]) for out, _ in ended]
    for other in said[1:]:
        must(other["found"] == said[0]["found"], "the ranks do not agree")
    memory = {f"rank {rank} {name}": value for rank, one in enumerate(said) for name, value in one["memory"].items()}
    return dict(results=dict(found=said[0]["found"], ranks=ranks), memory=memory)


def outputs(workers):
    """What the processes printed. Where one fails the others would wait for it
    until NCCL gives up: they are ended."""
    with ThreadPoolExecutor(len(workers)) as threads:
        reading = [threads.submit(worker.communicate) for worker in workers]
        while any(worker.poll() is None for worker in workers):
            if any(worker.poll() for worker in workers):
                time.sleep(3)
                for worker in workers:
                    worker.kill()
            time.sleep(0.05)
        return [one.result() for one in reading]


row("NCCL all-reduce", gpus=2, processes=True, environment=QUIET)(lambda: all_ranks("plain"))
row("NCCL registered buffers", gpus=2, processes=True, environment=QUIET)(lambda: all_ranks("registered"))
row("NCCL registered by torch", gpus=2, processes=True,
    environment=dict(QUIET, TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK="1"))(lambda: all_ranks("plain"))
row("NCCL without cuMem", gpus=2, processes=True,
    environment=dict(QUIET, NCCL_CUMEM_ENABLE="0"))(lambda: all_ranks("plain"))
