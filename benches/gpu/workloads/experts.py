"""Training of a mixture of experts (transformers' Mixtral)."""
import torch

from .language import finish, texts


class Dice:
    """Sends every token to experts drawn on the host, each layer with favourites of its own
    that change from step to step: routing by the model's own numbers could differ between
    two runs in the last bit, and with it every size."""

    def __init__(self, job, experts):
        self.numbers = torch.Generator().manual_seed(1)
        self.job, self.experts = job, experts

    def __call__(self, module, inputs, outputs):
        *kept, chosen = outputs
        favour = torch.rand(self.experts, generator=self.numbers) ** 3 + 0.02
        drawn = torch.multinomial(favour.expand(len(chosen), -1), chosen.shape[1], generator=self.numbers)
        self.job.note(*drawn.flatten().bincount(minlength=self.experts).tolist())
        return (*kept, drawn.to(chosen.device, chosen.dtype))


def moe_random_routing(job):
    from transformers import MixtralConfig, MixtralForCausalLM
    hidden, layers, experts = job.size((1024, 8, 12), (64, 2, 4))
    config = MixtralConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64 if not job.tiny else 4,
        num_key_value_heads=hidden // 128 if not job.tiny else 2, intermediate_size=hidden * 7 // 4 // 64 * 64,
        num_local_experts=experts, num_experts_per_tok=2, vocab_size=32000, max_position_embeddings=8192,
        attn_implementation="sdpa", experts_implementation="eager")
    model = MixtralForCausalLM(config)
    gates = [part for name, part in model.named_modules() if name.endswith(".gate")]
    assert len(gates) == layers, f"{len(gates)} gates in {layers} layers: this transformers names them otherwise"
    dice = Dice(job, experts)
    for gate in gates:
        gate.register_forward_hook(dice)
    yield
    model = model.to(job.device, dtype=torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    yield
    for _ in job.steps:
        x = texts(job, job.dice.randint(2, 5), job.dice.randint(*job.size((256, 3000), (8, 40))))
        yield finish(model(input_ids=x, labels=x, use_cache=False).loss, optimizer)
