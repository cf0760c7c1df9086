"""The allocators that are compared: how a process is put under each. Runs nothing.
"""
import os
import sys
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/gpu"))
import shim_run


@dataclass(frozen=True)
class Allocator:
    name: str
    title: str
    environment: dict = field(default_factory=dict)
    shim: bool = False
    rmm: str | None = None      # which of RMM's memory resources


ALLOCATORS = {a.name: a for a in [
    Allocator("native", "torch native"),
    Allocator("expandable", "expandable_segments", dict(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")),
    Allocator("async", "cudaMallocAsync", dict(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")),
    Allocator("rmm-pool", "RMM pool", rmm="pool"),
    Allocator("rmm-async", "RMM async", rmm="async"),
    Allocator("memcuda-direct", "memcuda direct", dict(MEMCUDA_TORCH="async", MEMCUDA_POLICY="direct"), shim=True),
    Allocator("memcuda-native", "memcuda native", dict(MEMCUDA_TORCH="native"), shim=True),
    Allocator("memcuda-segments", "memcuda segments", dict(MEMCUDA_TORCH="segments"), shim=True),
    Allocator("memcuda-async", "memcuda async", dict(MEMCUDA_TORCH="async"), shim=True),
    Allocator("memcuda-keep", "memcuda keep", dict(MEMCUDA_TORCH="keep"), shim=True),
]}
# Every workload has these four; some have the others too.
FOUR = ["native", "expandable", "memcuda-native", "memcuda-async"]
OTHERS = ["async", "rmm-pool", "rmm-async", "memcuda-direct"]

# NVLink multicast can leave the GPUs of a shared host out of service. Few threads of the host's
# arithmetic, so that cells that are made ready leave the one that runs alone. One order of Python's sets for all.
ALWAYS = dict(PYTHONHASHSEED="0", OMP_NUM_THREADS="4", NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")


def environment(allocator, wheels=None, extra=()):
    """What a process of this allocator is started with. `wheels` is a folder to import from,
    `extra` goes to the processes on the pool only."""
    chosen = ALLOCATORS[allocator]
    own = ("LD_PRELOAD", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    env = {n: v for n, v in os.environ.items() if n not in own and not n.startswith("MEMCUDA_")}
    env.update(ALWAYS, **chosen.environment)
    if chosen.shim:
        env.update(extra, LD_PRELOAD=shim_run.LIBRARY)
    if chosen.rmm and wheels:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [wheels, env.get("PYTHONPATH")]))
    return env


def rmm_before_cuda():
    """Puts this process's torch on RMM; before CUDA begins."""
    import torch
    from rmm.allocators.torch import rmm_torch_allocator
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)


def rmm_resource(kind):
    """Which memory RMM gives, before the first tensor. The pool begins with 1 GiB and grows:
    by default it would take half of the device at once."""
    import rmm
    if kind == "pool":
        resource = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 30)
    else:
        resource = rmm.mr.CudaAsyncMemoryResource()
    rmm.mr.set_current_device_resource(resource)
