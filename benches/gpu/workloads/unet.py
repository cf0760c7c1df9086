"""A diffusion U-Net trained on batches of mixed resolution. No public package of the list
that the bench needs holds one (diffusers would), so it stands here: residual blocks with
the time step, attention on the coarse levels, skips by concatenation, as in DDPM."""
import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, inner, outer, time):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1))
        self.time = nn.Linear(time, outer)
        self.second = nn.Sequential(nn.GroupNorm(32, outer), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1))
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, time):
        return self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(32, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        q, k, v = (t.flatten(2).unflatten(1, (-1, 64)).transpose(-1, -2).contiguous()
                   for t in self.qkv(self.norm(x)).chunk(3, 1))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(-1, -2).flatten(1, 2).unflatten(2, x.shape[2:]))


class UNet(nn.Module):
    def __init__(self, width, factors, attend):
        super().__init__()
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first, self.width = nn.Conv2d(4, width, 3, padding=1), width
        self.down, self.up, widths, now = nn.ModuleList(), nn.ModuleList(), [width], width
        for level, factor in enumerate(factors):
            for _ in range(2):
                self.down.append(self.block(now, width * factor, time, level in attend))
                now = width * factor
                widths.append(now)
            if level < len(factors) - 1:
                self.down.append(nn.Conv2d(now, now, 3, stride=2, padding=1))
                widths.append(now)
        self.middle = self.block(now, now, time, True)
        for level, factor in reversed(list(enumerate(factors))):
            for _ in range(3):
                self.up.append(self.block(now + widths.pop(), width * factor, time, level in attend))
                now = width * factor
            if level:
                self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(now, now, 3, padding=1)))
        self.last = nn.Sequential(nn.GroupNorm(32, now), nn.SiLU(), nn.Conv2d(now, 4, 3, padding=1))

    @staticmethod
    def block(inner, outer, time, attend):
        return nn.ModuleList([Residual(inner, outer, time)] + ([Attention(outer)] if attend else []))

    @staticmethod
    def through(block, x, time):
        for part in block:
            x = part(x, time) if isinstance(part, Residual) else part(x)
        return x

    def forward(self, x, when):
        waves = torch.exp(torch.arange(self.width // 2, device=x.device) * (-9.2 / (self.width // 2)))
        angles = when[:, None] * waves
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        x = self.first(x)
        left = [x]
        for part in self.down:
            x = self.through(part, x, time) if isinstance(part, nn.ModuleList) else part(x)
            left.append(x)
        x = self.through(self.middle, x, time)
        for part in self.up:
            x = self.through(part, torch.cat([x, left.pop()], 1), time) if isinstance(part, nn.ModuleList) else part(x)
        return self.last(x)


def unet_mixed_sizes(job):
    """Every step another height, width and number of images; bfloat16, AdamW."""
    model = UNet(*job.size((128, (1, 2, 2, 4), {2, 3}), (64, (1, 2), {1})))
    yield
    model = model.to(job.device, dtype=torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    yield
    least, most, across = (4, 10, 16) if job.batch else job.size((8, 48, 8), (2, 3, 8))
    for _ in job.steps:
        height, width = (across * job.dice.randint(least, most) for _ in range(2))
        # About as many pixels a step, as loaders that bucket by size do.
        count = job.batch or max(1, min(job.size(24, 2), job.dice.randint(250_000, 520_000) // (height * width)))
        job.note(count, height, width)
        x = torch.randn(count, 4, height, width, device=job.device, dtype=torch.bfloat16)
        noise, when = torch.randn_like(x), torch.rand(count, device=job.device)
        loss = functional.mse_loss(model(x + noise, when).float(), noise.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()
