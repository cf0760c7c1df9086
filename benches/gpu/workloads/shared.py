"""A job of which several run at once: on two GPUs, in threads, as processes on one GPU."""
import torch

from . import Workload
from .language import finish, llama, shape, texts

SHARED = Workload("shared_training", "shared", 40, 9000, "training of a small language model, lengths of its own")


def shared_training(job, wrap=lambda model: model):
    """Full training of a 0.17B model, batch and length drawn anew each step; `wrap` is put
    around the model when it is on the device."""
    model = llama(**shape(job, 1024, 8, 16))
    yield
    model = wrap(model.to(job.device, dtype=torch.bfloat16).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    yield
    for _ in job.steps:
        x = texts(job, job.dice.randint(1, 4), job.dice.randint(*job.size((128, 2048), (8, 40))))
        yield finish(model(input_ids=x, labels=x, use_cache=False).loss, optimizer)
