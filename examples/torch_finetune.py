#!/usr/bin/env python3
"""A small fine-tune in plain PyTorch: a frozen transformer with low-rank
adapters, trained on sequences of another length each step, which is what
fragments an allocator. Deterministic for a seed, so that two runs can be
compared bit by bit.

    memcuda run -- python examples/torch_finetune.py --steps 40

Prints one JSON line: digests of the losses and of the trained weights, torch's
own peaks and the step times. Needs torch and a GPU of at least 4 GiB; use
--cpu to try it without one.
"""
import argparse
import hashlib
import json
import os
import random
import time

# cuBLAS is deterministic only with a fixed workspace, set before it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class LoRA(nn.Module):
    """A frozen linear layer and a trained low-rank correction to it."""

    def __init__(self, inside, outside, rank=8):
        super().__init__()
        self.frozen = nn.Linear(inside, outside, bias=False).requires_grad_(False)
        self.down = nn.Linear(inside, rank, bias=False)
        self.up = nn.Linear(rank, outside, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


class Block(nn.Module):
    """One transformer layer: causal attention and a feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = LoRA(width, 3 * width), LoRA(width, width)
        self.wide, self.narrow = LoRA(width, 4 * width), LoRA(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Model(nn.Module):
    """A language model of the given size."""

    def __init__(self, words, width, layers, heads):
        super().__init__()
        self.embed = nn.Embedding(words, width).requires_grad_(False)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = LoRA(width, words)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def digest(tensors):
    """A digest of the exact bits of some tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--longest", type=int, default=1536, help="longest sequence, in tokens")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()

    random.seed(options.seed)
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    device = torch.device("cpu" if options.cpu else "cuda")
    words = 8192
    model = Model(words, options.width, options.layers, heads=8).to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)

    losses, times = [], []
    for _ in range(options.steps):
        batch = random.choice([1, 2, 4])
        length = random.randint(min(64, options.longest), options.longest)
        tokens = torch.randint(0, words, (batch, length)).to(device)
        start = time.perf_counter()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, words), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach().cpu())          # waits for the step
        times.append(time.perf_counter() - start)

    result = {
        "steps": options.steps,
        "seed": options.seed,
        "first_loss": losses[0].item(),
        "last_loss": losses[-1].item(),
        "losses_sha256": digest(losses),
        "weights_sha256": digest(trained),
        "median_step_s": sorted(times)[len(times) // 2],
    }
    if not options.cpu:
        stats = torch.cuda.memory_stats()
        result["peak_live_bytes"] = stats.get("requested_bytes.all.peak")
        result["peak_reserved_bytes"] = stats.get("reserved_bytes.all.peak")
        result["allocator"] = torch.cuda.get_allocator_backend()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
