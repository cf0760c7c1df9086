"""The rows of the framework table: each is a program that runs bare and under
the shim, and what it says of itself must be the same. Here are only the table's
row, the digest of results and what the rows of PyTorch share.
"""
import functools
import hashlib
import os

MIB = 1 << 20

# What a bare run and one under the shim get of the environment, by profile.
PROFILES = {
    "auto": (dict(), dict()),
    "keep": (dict(), dict(MEMCUDA_TORCH="keep")),
    "async": (dict(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"), dict(MEMCUDA_TORCH="async")),
    "poison": (dict(), dict(MEMCUDA_DEBUG="poison")),
    "ordered": (dict(), dict(MEMCUDA_FREE="ordered")),
}
TORCH = ("auto", "keep", "async")
# Programs that count on nothing which these two change.
PLAIN = ("auto", "poison", "ordered")

ROWS = {}


class Row:
    """A line of the table.

    name         what it is called
    body         returns a dictionary of results; runs in a process of its own
    profiles     under which of PROFILES it runs
    environment  what both runs get
    gpus         how many it needs
    alone        it counts the memory of the device: nothing may run beside it
    warm         the first run fills caches on disk and is thrown away
    processes    the memory is asked for by processes that it starts
    not_async    torch itself refuses it over backend:cudaMallocAsync: then it must do so under the shim too
    named        it needs what few machines have, and runs only where it is named
    """

    def __init__(self, name, body, profiles=("auto",), environment=(), gpus=1, alone=False, warm=False,
                 processes=False, not_async=False, named=False):
        self.name, self.body, self.profiles = name, body, profiles
        self.environment, self.gpus, self.alone = dict(environment), gpus, alone
        self.warm, self.processes, self.not_async, self.named = warm, processes, not_async, named


def row(name, **settings):
    """Makes a row of a function."""
    def add(body):
        ROWS[name] = Row(name, body, **settings)
        return body
    return add


def torch_row(name, **settings):
    """Makes a row of a function that takes torch; its memory statistics are
    compared too."""
    def add(body):
        @functools.wraps(body)
        def with_torch():
            torch = start_torch()
            results = body(torch)
            return dict(results=results, **memory(torch))
        row(name, profiles=TORCH, **settings)(with_torch)
        return body
    return add


class Digest:
    """A digest of the exact bits of tensors and arrays."""

    def __init__(self):
        self.sum = hashlib.sha256()

    def add(self, *arrays):
        for array in arrays:
            if hasattr(array, "detach"):
                array = array.detach().cpu().contiguous().numpy()
            self.sum.update(array.tobytes())

    def __str__(self):
        return self.sum.hexdigest()[:16]


def digest(*arrays):
    """The digest of some arrays."""
    total = Digest()
    total.add(*arrays)
    return str(total)


def digest_text(value):
    """The digest of what a value looks like."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def must(condition, text):
    """Ends the row with a reason."""
    if not condition:
        raise AssertionError(text)


def start_torch():
    """Torch, made deterministic, with its context made."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False     # it would hide stale contents
    torch.manual_seed(7)
    torch.cuda.init()
    return torch


def memory(torch):
    """Torch's own count. `memory` must be the same with and without the shim;
    `other` may differ and is shown."""
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    same = {f"{kind} {when}": stats.get(f"{kind}_bytes.all.{when}", 0)
            for kind in ("requested", "allocated") for when in ("current", "peak")}
    other = {"reserved peak": stats.get("reserved_bytes.all.peak", 0), "retries": stats.get("num_alloc_retries", 0),
             "backend": torch.cuda.get_allocator_backend()}
    return dict(memory=same, other=other)


def churn(torch, rounds, live_mib, seed):
    """Large tensors of ever other sizes, about `live_mib` of them alive; each
    must still hold what was written to it when it goes."""
    import random
    rng = random.Random(seed)
    held, live = [], 0
    for i in range(rounds):
        size = rng.randint(12, max(13, live_mib // 6)) * MIB
        while held and live + size > live_mib * MIB:
            tensor, value = held.pop(rng.randrange(len(held)))
            must(bool((tensor[:: 1 << 16] == value).all()), "a tensor lost its contents")
            live -= tensor.numel()
            del tensor
        held.append((torch.full((size,), i % 251, dtype=torch.uint8, device="cuda"), i % 251))
        live += size
    for tensor, value in held:
        must(bool((tensor[:: 1 << 16] == value).all()), "a tensor lost its contents")
