#!/usr/bin/env python3
"""A training on several GPUs in plain PyTorch (DistributedDataParallel, NCCL; gloo
where there is no GPU), on sequences of another length each step, which is what
fragments an allocator. Deterministic, so that two runs can be compared.

    examples/recipes/torchrun.sh 2

The first rank prints one JSON line: digests of the losses and of the weights that
all ranks agree on, and of each rank whether it is preloaded and what it used.
"""
import argparse
import hashlib
import json
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def digest(tensors):
    """SHA-256 over the bytes of tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def train(device, rank, steps, width):
    """Trains; the losses of this rank, and its weights."""
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(1024, width), nn.TransformerEncoder(layer, 2), nn.Linear(width, 1024)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    words = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(steps):
        length = int(torch.randint(32, 512, (1,), generator=words))
        text = torch.randint(0, 1024, (8, length), generator=words).to(device)
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), list(model.parameters())


def preloaded():
    """Is libmemcuda.so in this process?"""
    with open("/proc/self/maps") as maps:
        return any(line.rstrip().endswith("/libmemcuda.so") for line in maps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=512)
    arguments = parser.parse_args()

    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl" if gpu else "gloo")

    losses, weights = train(device, rank, arguments.steps, arguments.width)
    free, total = torch.cuda.mem_get_info() if gpu else (0, 0)
    own = {"rank": rank, "device": str(device), "preloaded": preloaded(), "losses": digest([losses]),
           "weights": digest(weights), "device_used_bytes": total - free,
           "reserved_bytes": torch.cuda.memory_reserved() if gpu else 0}
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    dist.destroy_process_group()
    assert len({it["weights"] for it in ranks}) == 1, "the ranks have different weights"
    if rank == 0:
        print(json.dumps({"steps": arguments.steps, "ranks": ranks}), flush=True)


if __name__ == "__main__":
    main()
