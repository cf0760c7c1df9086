"""torch.multiprocessing with CUDA tensors in queues, unchanged; and with a consumer that is
killed."""
import hashlib
import os
import signal
import time

MIB = 1 << 20


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


def queues():
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


def killed():
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
