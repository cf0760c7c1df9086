#!/usr/bin/env python3
"""A deterministic training with a fixed seed must give bit-identical losses and
weights with and without the pool, in every profile, also when all memory is
filled with NaN before it is lent.

    python3 tests/gpu/identical.py [--steps N] [--only PROFILE]

Prints a PASS or FAIL line for each run; the exit status is 1 if any failed.
Needs an NVIDIA GPU with 8 GiB free and torch.
"""
import argparse
import hashlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run

RUNS = {
    "bare, a second time": dict(preload=None),
    "native": dict(MEMCUDA_TORCH="native"),
    "segments": dict(MEMCUDA_TORCH="segments"),
    "async": dict(MEMCUDA_TORCH="async"),
    "keep": dict(MEMCUDA_TORCH="keep"),
    "auto": dict(),
    "native, direct": dict(MEMCUDA_TORCH="native", MEMCUDA_POLICY="direct"),
    "native, poison": dict(MEMCUDA_TORCH="native", MEMCUDA_DEBUG="poison"),
    "async, poison": dict(MEMCUDA_TORCH="async", MEMCUDA_DEBUG="poison"),
    "keep, poison": dict(MEMCUDA_TORCH="keep", MEMCUDA_DEBUG="poison"),
    "native, canary": dict(MEMCUDA_TORCH="native", MEMCUDA_DEBUG="canary"),
}


def train(steps):
    """The training itself: changing shapes, convolution and attention, a side
    stream, recomputation, and at the end a captured graph."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import random
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False     # it would hide what poison is there to show
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.manual_seed(7)
    random.seed(7)

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
            heads = lambda t: t.unflatten(-1, (8, -1)).transpose(1, 2)
            weights = (heads(q) @ heads(k).transpose(-1, -2) / 8).softmax(-1)   # grows with the square of the length
            x = x + self.out((weights @ heads(v)).transpose(1, 2).flatten(-2))
            return x + self.mlp(x)

    class Model(nn.Module):
        def __init__(self, width=512, layers=6):
            super().__init__()
            self.stem = nn.Conv1d(16, width, 5, padding=2)
            self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
            self.head = nn.Linear(width, 1000)

        def forward(self, x):
            x = self.stem(x).transpose(1, 2)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.head(x)

    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    side = torch.cuda.Stream()
    losses = hashlib.sha256()
    for _ in range(steps):
        batch, length = random.choice([2, 4, 8, 12]), random.randint(100, 1400)
        host = torch.randn(batch, 16, length).pin_memory()
        with torch.cuda.stream(side):
            x = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        x.record_stream(torch.cuda.current_stream())
        logits = model(x)
        target = torch.randint(0, 1000, (batch, length), device="cuda")
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.update(loss.detach().double().cpu().numpy().tobytes())
    weights = hashlib.sha256()
    for p in model.parameters():
        weights.update(p.detach().cpu().numpy().tobytes())

    # A graph that is replayed while other memory comes and goes.
    small = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 2048)).cuda()
    fed = torch.randn(512, 2048, device="cuda")
    with torch.no_grad():
        with torch.cuda.stream(side):
            for _ in range(3):
                small(fed)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = small(fed)
        replays = hashlib.sha256()
        for i in range(20):
            fed.copy_(torch.randn(512, 2048, device="cuda"))
            junk = torch.full((random.randint(1, 64) << 18,), float(i), device="cuda")
            graph.replay()
            del junk
            replays.update(answer.cpu().numpy().tobytes())
    if not torch.isfinite(loss):
        raise SystemExit("the loss is not finite")
    import time
    time.sleep(0.2)
    print(json.dumps(dict(loss=float(loss), losses=losses.hexdigest(), weights=weights.hexdigest(), replays=replays.hexdigest())))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--only", choices=sorted({n.split(",")[0] for n in RUNS}), help="only runs of this profile")
    ap.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.child:
        return train(a.steps)
    shim_run.need_gpu()
    shim_run.need_library()
    command = [sys.executable, os.path.abspath(__file__), "--child", "--steps", str(a.steps)]
    bare = shim_run.run(command)
    if bare.status:
        sys.exit(f"FAIL the training without the pool: {bare.reason()}")
    reference = json.loads(bare.last_line)
    print(f"reference: loss {reference['loss']:.6f}, weights {reference['weights'][:16]}, {bare.seconds:.0f} s")
    verdicts = shim_run.Verdicts()
    for name, environment in RUNS.items():
        if a.only and not name.startswith(a.only):
            continue
        environment = dict(environment)
        preload = environment.pop("preload", shim_run.LIBRARY)
        result = shim_run.run(command, preload, **environment)
        if result.status:
            verdicts.say(False, name, result.reason())
            continue
        seen = json.loads(result.last_line)
        different = [k for k in reference if seen[k] != reference[k]]
        served = (result.counters or {}).get("requests", 0)
        if different:
            verdicts.say(False, name, f"{', '.join(different)} differ (loss {seen['loss']!r} against {reference['loss']!r})")
        elif preload and not served:
            verdicts.say(False, name, "identical, but the pool served nothing")
        else:
            verdicts.say(True, name, f"bit-identical, {served} requests served, {result.seconds:.0f} s")
    verdicts.finish()


if __name__ == "__main__":
    main()
