"""Patterns of requests that have been reported as hard, with plain tensors and some
arithmetic in between: no model, the sizes are the job."""
import torch

MIB = 1 << 20


class Work:
    """What a job would compute between two requests: products of two matrices of its own,
    0.2 ms each on an H200."""

    def __init__(self, job):
        side = job.size(4096, 16)
        self.a = torch.ones(side, side, device=job.device, dtype=torch.bfloat16)
        self.b, self.into = torch.ones_like(self.a), torch.empty_like(self.a)

    def __call__(self, times):
        for _ in range(times):
            torch.mm(self.a, self.b, out=self.into)


def block(job, mib):
    """A tensor of so many MiB, written."""
    return torch.full((int(mib * job.size(MIB, 256)),), 1, device=job.device, dtype=torch.uint8)


def keep_little_loop(job):
    """pytorch#193400 (#123548): two large tensors come, a small one stays behind, both leave."""
    yield
    work = Work(job)
    yield
    kept, cycles = [], job.size(24, 2)
    for _ in job.steps:
        for _ in range(cycles):
            large = block(job, 91)
            half = block(job, 45.5)
            kept.append(block(job, job.note(job.dice.choice([2, 2, 2, 6, 12]))))
            work(14)
            del large, half
        if len(kept) > job.size(1100, 4):       # a tenth of what was kept is given up, anywhere
            kept = [k for k in kept if job.dice.random() > 0.1]
        yield None


def stash_restore_comb(job):
    """torchrec#4584: every second of many tables goes to the host, one block of their sum is
    taken and used, then they come back."""
    count = job.size(56, 4)
    sizes = [job.note(job.dice.randint(48, 144)) for _ in range(count)]
    yield
    tables = [block(job, mib) for mib in sizes]
    pinned = job.device == "cuda"
    longest = max(t.numel() for t in tables)
    stash = [torch.empty(longest, dtype=torch.uint8, pin_memory=pinned) for _ in range(count // 2)]
    work = Work(job)
    yield
    for _ in job.steps:
        chosen = list(range(job.note(job.dice.randint(0, 1)), count, 2))
        chosen = sorted(job.note(job.dice.sample(chosen, len(chosen) - job.dice.randint(0, len(chosen) // 3))))
        for buffer, i in zip(stash, chosen):
            buffer[: tables[i].numel()].copy_(tables[i], non_blocking=True)
        total = sum(tables[i].numel() for i in chosen)
        for i in chosen:
            tables[i] = None
        large = torch.full((total,), 1, device=job.device, dtype=torch.uint8)
        work(200)
        del large
        for buffer, i in zip(stash, chosen):
            tables[i] = block(job, sizes[i])
            tables[i].copy_(buffer[: tables[i].numel()], non_blocking=True)
        yield None


def two_streams(job):
    """Large blocks are made and freed on stream B, then one of their sum is wanted on stream
    A, which waits for B; next turn the other way round."""
    yield
    streams = [torch.cuda.Stream(), torch.cuda.Stream()] if job.device == "cuda" else [None, None]
    work = Work(job)
    resident = [block(job, 200) for _ in range(6)]
    yield
    for number in job.steps:
        one, other = streams if number % 2 else streams[::-1]
        for _ in range(4):
            with torch.cuda.stream(one):
                parts = [block(job, job.note(job.dice.randint(200, 1200))) for _ in range(5)]
                total = sum(p.numel() for p in parts)
                work(40)
                del parts
            if other:
                other.wait_stream(one)
            with torch.cuda.stream(other):
                large = torch.full((total,), 1, device=job.device, dtype=torch.uint8)
                work(40)
                del large
            if one:
                one.wait_stream(other)
        resident[number % len(resident)] = None
        resident[number % len(resident)] = block(job, job.note(job.dice.randint(100, 300)))
        yield None


def load_then_grow(job):
    """compressed-tensors#587: weights come layer by layer through temporary copies of twice
    their size, then 32 layers of caches grow by copying until they hold more than the weights do."""
    layers = job.size(32, 2)
    yield
    work = Work(job)
    yield
    weights, caches, room = [], [None] * (2 * layers), job.size(16 * 1024, 64)
    loading = job.size(8, 1)
    for number in job.steps:
        if number < loading:
            for _ in range(layers // loading):
                for _ in range(7):
                    count = job.note(job.dice.randint(6, 20)) * job.size(MIB, 256)
                    raw = torch.full((count,), 1.0, device=job.device, dtype=torch.float32)
                    scale = raw.abs().amax()
                    weights.append((raw / scale).to(torch.bfloat16))
                    del raw
        else:
            tokens = job.note(job.dice.randint(*job.size((60, 240), (1, 4))))
            for i, cache in enumerate(caches):
                new = torch.full((tokens, room // 2), 1, device=job.device, dtype=torch.bfloat16)
                caches[i] = new if cache is None else torch.cat([cache, new])
                del cache, new
        work(250)
        yield None
