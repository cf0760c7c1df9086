"""Generation and training in turn on one model, as reinforcement learning from feedback does."""
import torch

from .language import finish, llama, shape


def generate_then_train(job):
    """A step: a batch of rollouts whose caches grow by copying and are dropped, then two
    training micro-steps on the texts, with another length each time."""
    from transformers import DynamicCache
    vocabulary = 32000
    model = llama(**shape(job, 1536, 12, 12))
    yield
    model = model.to(job.device, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    yield
    for _ in job.steps:
        count = job.dice.randint(*job.size((12, 32), (1, 2)))
        prompt, rounds = job.dice.randint(*job.size((100, 1500), (4, 20))), job.dice.randint(*job.size((3, 8), (1, 2)))
        job.note(count, prompt, rounds)
        model.eval()
        cache, texts = DynamicCache(), torch.randint(0, vocabulary, (count, prompt), device=job.device)
        new = texts
        with torch.no_grad():
            for _ in range(rounds):
                logits = model(input_ids=new, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
                more = job.note(job.dice.randint(*job.size((16, 80), (1, 4))))
                new = logits.argmax(-1).expand(-1, more).contiguous()
                texts = torch.cat([texts, new], 1)
        del cache, logits, new
        model.train()
        for part in texts.chunk(job.size(8, 1))[:2]:
            loss = finish(model(input_ids=part, labels=part, use_cache=False).loss, optimizer)
        yield loss
