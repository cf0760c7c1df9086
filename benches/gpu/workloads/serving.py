"""Serving a language model: requests arrive and leave at random, and each has key and value
caches of its own (transformers' DynamicCache) that grow by copying."""
import torch

from .language import llama, shape


class Request:
    def __init__(self, dice, job):
        from transformers import DynamicCache
        self.cache = DynamicCache()
        self.prompt = dice.randint(*job.size((300, 7000), (4, 20)))
        self.left = dice.randint(*job.size((6, 40), (1, 3)))        # rounds until it is answered
        job.note(self.prompt, self.left)


def serving_kv_growth(job):
    """A round of continuous batching a step: new requests have their prompt read, the others
    go on by 1 to 32 tokens (as many as a draft model had guessed), the answered ones leave."""
    vocabulary = 32000
    most = job.size(16, 3)
    model = llama(**shape(job, 4096, 4, 32))
    yield
    model = model.to(job.device, dtype=torch.bfloat16).eval()
    yield
    requests = []
    for _ in job.steps:
        for _ in range(min(most - len(requests), job.dice.randint(0, job.size(6, 2)))):
            requests.append(Request(job.dice, job))
        last = None
        for request in requests:
            count = request.prompt or job.note(job.dice.randint(1, job.size(32, 3)))
            request.prompt = 0
            request.left -= 1
            tokens = torch.randint(0, vocabulary, (1, count), device=job.device)
            with torch.no_grad():
                last = model(input_ids=tokens, past_key_values=request.cache, use_cache=True, logits_to_keep=1).logits
        requests = [request for request in requests if request.left > 0]
        yield last.float().mean() if last is not None else None
