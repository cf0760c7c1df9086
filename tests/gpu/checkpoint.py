#!/usr/bin/env python3
"""Checkpoints of processes that run on the pool: what NVIDIA's cuda-checkpoint
does, by the driver's own calls (cuCheckpointProcess*, driver 570 or later).

    python3 tests/gpu/checkpoint.py

A process has memory on the device, is locked and checkpointed, which takes its
memory off the device, is restored and goes on: bare and preloaded, with memory of
cudaMalloc and with torch at work. What it holds must be what it held, and what it
does next must succeed. Prints a PASS or FAIL line each and a table of the driver's
answers; needs an NVIDIA GPU that nobody else uses and torch.
"""
import ctypes
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run

STEPS = ("lock", "checkpoint", "restore", "unlock")


def checked(code):
    if code:
        raise SystemExit(f"the driver answered {code}")


def with_cudamalloc():
    """Blocks of many lengths, each with a word of its own; half are freed and others made afterwards."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, blocks, megabyte = ctypes.c_void_p(), {}, 1 << 20
    checked(cuda.cuInit(0))
    checked(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    checked(cuda.cuCtxSetCurrent(context))

    def make(number):
        at, words = ctypes.c_uint64(), (1 + number * 7 % 60) * megabyte // 4
        checked(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(words * 4)))
        checked(cuda.cuMemsetD32_v2(at, number, ctypes.c_size_t(words)))
        blocks[number] = at, words

    for number in range(100):
        make(number)
    yield
    for number in range(0, 100, 2):
        checked(cuda.cuMemFree_v2(blocks.pop(number)[0]))
    for number in range(100, 150):
        make(number)
    for number, (at, words) in blocks.items():
        held = (ctypes.c_uint32 * words)()
        checked(cuda.cuMemcpyDtoH_v2(held, at, ctypes.c_size_t(words * 4)))
        if bytes(held) != number.to_bytes(4, "little") * words:
            raise SystemExit(f"block {number} holds something else")


def with_torch():
    """Training steps before and after; the loss tells of all that is held."""
    import torch
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, device="cuda") for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters())
    graph, rest = torch.cuda.CUDAGraph(), torch.ones(1 << 20, device="cuda")
    with torch.cuda.graph(graph):
        rest += 1

    def steps(count):
        for step in range(count):
            loss = model(torch.randn(64 + step * 8, 2048, device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            graph.replay()
        return loss.item()

    steps(8)
    yield
    print("loss", steps(8), rest.sum().item(), flush=True)


WORK = {"cudamalloc": with_cudamalloc, "torch": with_torch}


def work(name):
    """The process that is checkpointed: says when it is ready, goes on when it is told."""
    parts = WORK[name]()
    next(parts)
    print("ready", flush=True)
    sys.stdin.readline()
    next(parts, None)
    print("as before", flush=True)


def memory_used():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout.split()[0])


def checkpointed(driver, name, preload):
    """What the driver answered each step, MiB used on the device before, meanwhile and after, what the process said last,
    and how many requests the pool had served it before."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MEMCUDA_") and key != "LD_PRELOAD"}
    if preload:
        environment["LD_PRELOAD"] = preload
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--work", name], env=environment, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while (line := child.stdout.readline()) not in ("ready\n", ""):
        pass
    page = shim_run.Page(child.pid)
    page.look()
    served = (page.counters() or {}).get("requests", 0)
    answers, used = [], [memory_used()]
    for step in STEPS:
        answers.append(getattr(driver, "cuCheckpointProcess" + step.capitalize())(child.pid, None))
        if step in ("checkpoint", "unlock"):
            used.append(memory_used())
    try:
        said = child.communicate("go\n", timeout=60)[0].strip().splitlines()
    except subprocess.TimeoutExpired:
        child.kill()
        said = ["not done after 60 s"]
    return answers, used, " / ".join(said[-2:]), served


def main():
    if sys.argv[1:2] == ["--work"]:
        return work(sys.argv[2])
    shim_run.need_gpu()
    shim_run.need_library()
    driver = ctypes.CDLL("libcuda.so.1")
    checked(driver.cuInit(0))
    verdicts, table = shim_run.Verdicts(), []
    for name in WORK:
        runs = [checkpointed(driver, name, preload) for preload in (None, shim_run.LIBRARY)]
        table += [(name, side, *run) for side, run in zip(("bare", "preloaded"), runs)]
        (answers, _, said, _), (pooled, _, pooled_said, served) = runs
        good = pooled == answers == [0] * len(STEPS) and pooled_said == said and said.endswith("as before") and served
        verdicts.say(good, name, f"{served} served, {pooled_said}")
    print(f"\n{'':12} {'':10} {' '.join(f'{step:>10}' for step in STEPS)}   MiB before, meanwhile, after")
    for name, side, answers, used, said, _ in table:
        print(f"{name:12} {side:10} {' '.join(f'{code:>10}' for code in answers)}   {used}   {said}")
    verdicts.finish()


if __name__ == "__main__":
    main()
