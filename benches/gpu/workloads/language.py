"""Training of language models (transformers' Llama, peft's LoRA) on texts of changing length."""
import random

import torch


def llama(layers, **changes):
    from transformers import LlamaConfig, LlamaForCausalLM
    hidden = changes["hidden_size"]
    settings = dict(num_hidden_layers=layers, intermediate_size=int(hidden * 2.6875) // 64 * 64, vocab_size=32000,
                    max_position_embeddings=8192, attn_implementation="sdpa")
    return LlamaForCausalLM(LlamaConfig(**{**settings, **changes}))


def shape(job, hidden, layers, heads):
    hidden, layers, heads = job.size((hidden, layers, heads), (64, 2, 4))
    return dict(layers=layers, hidden_size=hidden, num_attention_heads=heads)


def texts(job, count, length, vocabulary=32000):
    job.note(count, length)
    return torch.randint(0, vocabulary, (count, length), device=job.device)


def finish(loss, optimizer):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def llm_lora_recompute(job):
    """A 1.3B-class model, LoRA and recomputation. Its sizes come from Python's own seeded
    dice, as when its trace was recorded."""
    model = llama(**shape(job, 2048, 16, 16))
    yield
    from peft import LoraConfig, get_peft_model
    model = model.to(job.device, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj", "k_proj", "o_proj"]))
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    yield
    for _ in job.steps:
        if job.batch:
            count, length = job.batch, random.randint(100, 600)
        else:
            count, length = random.choice([2, 4, 6, 8]), random.randint(*job.size((200, 3000), (8, 40)))
        x = texts(job, count, length)
        yield finish(model(input_ids=x, labels=x).loss, optimizer)


def llm_full_offload(job):
    """Full fine-tuning; activations wait on the host, the batch comes over a copy stream."""
    model = llama(**shape(job, 1280, 16, 20))
    yield
    model = model.to(job.device, dtype=torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    copies = torch.cuda.Stream() if job.device == "cuda" else None
    yield
    for _ in job.steps:
        count, length = random.choice([2, 4]), random.randint(*job.size((256, 2048), (8, 40)))
        with torch.cuda.stream(copies):
            x = texts(job, count, length)
        if copies:
            torch.cuda.current_stream().wait_stream(copies)
            x.record_stream(torch.cuda.current_stream())
        with torch.autograd.graph.save_on_cpu(pin_memory=copies is not None):
            loss = model(input_ids=x, labels=x).loss
        yield finish(loss, optimizer)


def llm_full_accumulate(job):
    """Full training of a 0.9B model: gradients of four micro-batches of other lengths, then
    one step of AdamW."""
    model = llama(**shape(job, 2048, 16, 16))
    yield
    model = model.to(job.device, dtype=torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    yield
    for _ in job.steps:
        for _ in range(4):
            length = job.dice.randint(*job.size((128, 2048), (8, 40)))
            x = texts(job, job.batch or job.dice.randint(1, 3), length)
            loss = model(input_ids=x, labels=x).loss / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def batch_neighbours(job):
    """The case of the note on expandable segments in torch's allocator: batches of N, N - 1
    and N + 1, lengths drawn evenly up to 8192, so that hardly a size comes twice."""
    vocabulary = 16000
    model = llama(vocab_size=vocabulary, **shape(job, 1024, 6, 16))
    yield
    model = model.to(job.device, dtype=torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    yield
    for _ in job.steps:
        count, length = 4 + job.dice.choice([0, -1, 1]), job.dice.randint(*job.size((128, 8192), (8, 40)))
        x = texts(job, count, length, vocabulary)
        yield finish(model(input_ids=x, labels=x).loss, optimizer)
