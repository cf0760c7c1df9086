#!/usr/bin/env python3
"""Writes synthetic allocation traces: jobs of kinds that the recorded ones are
not. Sizes and lifetimes are made up after real jobs; nothing was run.

    python3 tests/traces/synthetic.py DIRECTORY [TIMES]

Each job has TIMES as many steps (default: 1). The same seed gives the same bytes,
in every version of Python 3.
"""

import os
import random
import sys

MIB = 1 << 20


class Trace:
    """Events of one job, `step_us` microseconds apart on average."""

    def __init__(self, out, seed, step_us):
        self.random = random.Random(seed)
        self.step_us = step_us
        self.now_us = 0.0
        self.out = out
        out.write("# memcuda-trace 1\nt_us,op,id,bytes,stream\n")
        self.live = {}
        self.made = 0

    def integer(self, least, most):
        # random() is the one method whose sequence Python promises to keep.
        return least + int(self.random.random() * (most - least + 1))

    def between(self, least, most):
        return least + self.random.random() * (most - least)

    def choice(self, values):
        return values[self.integer(0, len(values) - 1)]

    def alloc(self, size):
        size = max(512, -(-int(size) // 512) * 512)
        self.made += 1
        self.live[self.made] = size
        self._event("alloc", self.made, size)
        self.now_us += self.step_us
        return self.made

    def free(self, *tensors):
        for tensor in tensors:
            size = self.live.pop(tensor)
            self._event("free", tensor, size)
            self._event("free_done", tensor, size)
            self.now_us += 0.3 * self.step_us

    def _event(self, op, tensor, size):
        self.out.write(f"{int(self.now_us)},{op},{tensor:x},{size},0\n")


def backward(trace, activations):
    """Last activation first: its gradient, then both are done with."""
    for activation in reversed(activations):
        gradient = trace.alloc(trace.live[activation])
        trace.free(activation, gradient)


def graph_net(trace, steps):
    """Sampled neighbourhoods: every size is new in every step."""
    for _ in range(60):
        trace.alloc(trace.choice([1, 2, 4, 8]) * MIB)
    for _ in range(steps):
        activations = []
        for nodes, width in ((600e3, 512), (250e3, 512), (90e3, 256), (30e3, 256)):
            nodes = int(nodes * trace.between(0.6, 1.4))
            edges = int(nodes * trace.between(2, 4))
            activations.append(trace.alloc(nodes * width * 4))
            index = trace.alloc(edges * 8)
            message = trace.alloc(edges * 64 * 4)
            half = trace.alloc(nodes * width * 2)
            activations.append(trace.alloc(nodes * width * 4))
            trace.free(message, half)
            activations.append(index)
            for _ in range(6):
                trace.free(trace.alloc(trace.integer(512, 300_000)))
        backward(trace, activations)


def serving(trace, steps, layers=16):
    """Requests come and go; each layer's cache grows by copying it."""
    for _ in range(80):
        trace.alloc(trace.choice([32, 64, 90]) * MIB)
    requests = []
    for _ in range(steps):
        if len(requests) < 40 and trace.random.random() < 0.2:
            requests.append([trace.integer(50, 1500), trace.integer(50, 600), {}])
        scratch = [trace.alloc(len(requests) * 16_384 + 512) for _ in range(6)]
        going_on = []
        for tokens, left, caches in requests:
            tokens, left = tokens + 16, left - 16
            for layer in range(layers):
                grown = trace.alloc(tokens * 2048)
                if layer in caches:
                    trace.free(caches[layer])
                caches[layer] = grown
            if left > 0:
                going_on.append([tokens, left, caches])
            else:
                trace.free(*caches.values())
        requests = going_on
        trace.free(*scratch)


def unet(trace, steps):
    """Images of many shapes through a U-Net with attention."""
    for _ in range(300):
        trace.alloc(trace.choice([1.2, 2.4, 4.7, 9.4, 14.1]) * MIB)
    shapes = [512, 576, 640, 704, 768, 896, 1024]
    for _ in range(steps):
        height, width, batch = trace.choice(shapes), trace.choice(shapes), trace.choice([2, 3, 4])
        activations = []
        for scale, channels in ((8, 320), (16, 640), (32, 1280), (64, 1280)):
            area = (height // scale) * (width // scale)
            for layer in range(12):
                activations.append(trace.alloc(batch * area * channels * 2))
                temporary = trace.alloc(batch * area * channels * 2)
                kept = channels * 4 if layer % 4 == 0 else 8
                activations.append(trace.alloc(batch * area * kept))
                trace.free(temporary)
            if scale >= 16:
                trace.free(trace.alloc(batch * 8 * area * area * 2))
        backward(trace, activations)


def comb(trace, steps):
    """Every second of many equal tensors freed, then one over all holes."""
    for _ in range(steps):
        count = trace.integer(8, 40)
        size = trace.integer(3, 90) * MIB + trace.integer(0, 1_000_000)
        teeth = [trace.alloc(size) for _ in range(count)]
        trace.free(*teeth[::2])
        large = trace.alloc(size * (count // 2))
        trace.free(*teeth[1::2], large)


JOBS = (
    # steps, seed, mean time between allocations in microseconds
    (graph_net, 150, 1, 350),
    (serving, 600, 2, 750),
    (unet, 120, 3, 375),
    (comb, 60, 4, 3_300),
)


def main():
    times = sys.argv[2] if len(sys.argv) == 3 else "1"
    if len(sys.argv) not in (2, 3) or not times.isdecimal() or int(times) < 1:
        sys.exit("usage: synthetic.py DIRECTORY [TIMES]; TIMES: a whole number from 1")
    os.makedirs(sys.argv[1], exist_ok=True)
    for job, steps, seed, step_us in JOBS:
        path = os.path.join(sys.argv[1], f"{job.__name__}.csv")
        with open(path, "w", newline="\n") as out:
            job(Trace(out, seed, step_us), steps * int(times))


main()
