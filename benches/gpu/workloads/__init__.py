"""The jobs that the allocators are compared on, a family a file, public model code with
random weights. Knows their names and sizes without importing torch; runs nothing.

A job is a generator over a `Job`. It yields
  1. when all that the host can do is done (no CUDA call until here),
  2. when its model is on the device,
  3. after each step: the step's loss, a tensor of one number, or None.
What it draws at random it draws on the host from a seed, so that every allocator is asked
for the same sizes in the same order, and it never asks how much memory is free.
"""
import hashlib
import importlib
import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Workload:
    name: str
    family: str             # the file of this folder
    steps: int              # warm from the first quarter on
    live_mib: int           # peak of what it asks for, roughly: to know what fits side by side
    about: str
    # May attention be cuDNN's? It makes a plan of some 50 ms for every length that it has not
    # seen, which hides what is compared. The three oldest jobs keep it, as recorded.
    cudnn_attention: bool = False

    @property
    def warm_from(self):
        return self.steps // 4


WORKLOADS = {w.name: w for w in [
    Workload("llm_lora_recompute", "language", 60, 12160, "LoRA and recomputation; batch and length change every step", True),
    Workload("detect_varsize", "detection", 60, 28139, "object detection, every image another size", True),
    Workload("llm_full_offload", "language", 40, 5336, "full fine-tuning, activations on the host, a copy stream", True),
    Workload("llm_full_accumulate", "language", 12, 18200, "full training, gradients accumulated over 4 lengths"),
    Workload("moe_random_routing", "experts", 20, 16500, "mixture of experts, every expert's share drawn anew"),
    Workload("unet_mixed_sizes", "unet", 20, 10600, "diffusion U-Net, another resolution and batch each step"),
    Workload("serving_kv_growth", "serving", 28, 6000, "requests come and go, each with caches that grow by copying"),
    Workload("generate_then_train", "alternate", 12, 10600, "rollouts with growing caches, then a training step on them"),
    Workload("graph_net_random", "graphs", 60, 10300, "graph network, nodes and edges of another number each step"),
    Workload("keep_little_loop", "combs", 50, 5300, "pytorch#193400: 91 and 45.5 MiB come and go, 2 MiB stay"),
    Workload("batch_neighbours", "language", 24, 19400, "batches of N, N-1, N+1 with lengths up to 8192"),
    Workload("stash_restore_comb", "combs", 40, 5700, "every second of many blocks leaves, one of their sum comes"),
    Workload("two_streams", "combs", 50, 6300, "large blocks freed on one stream, wanted on another"),
    Workload("load_then_grow", "combs", 60, 13600, "weights loaded through temporary copies, then caches grow"),
]}


@dataclass
class Job:
    """What a workload is given: where it runs, how large it is, and its dice."""
    workload: Workload
    device: str = "cuda"
    tiny: bool = False              # sizes of a smoke test of the script, not of a measurement
    batch: int | None = None        # largest_batch.py: a fixed batch instead of the workload's own
    limit: int | None = None        # fewer steps than the workload has
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    _drawn: object = field(default_factory=hashlib.sha256)

    @property
    def steps(self):
        return range(self.limit or (3 if self.tiny else self.workload.steps))

    def size(self, real, tiny):
        return tiny if self.tiny else real

    def note(self, *sizes):
        """Takes what was drawn into the digest that every allocator must share."""
        self._drawn.update(repr(sizes).encode())
        return sizes if len(sizes) > 1 else sizes[0]

    def digest(self):
        return self._drawn.hexdigest()[:16]


def generator(name):
    """The generator function of a workload; imports its family."""
    return getattr(importlib.import_module(f"workloads.{WORKLOADS[name].family}"), name)
