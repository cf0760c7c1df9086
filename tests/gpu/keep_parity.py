#!/usr/bin/env python3
"""No program that runs under MEMCUDA_TORCH=keep fails under auto: the cases in
which an out-of-memory at the wrong moment would end the program.

    python3 tests/gpu/keep_parity.py [CASE...]

Prints a PASS or FAIL line each. Needs an NVIDIA GPU that nobody else uses, torch
(with a C compiler for torch.compile), and for `switched_off` a debug build of
the library (cargo build -p memcuda-shim), in which a failure can be planted.
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run

MIB = 1 << 20


def churn(torch, rounds, live_mib, seed=0, on_round=None):
    """Large tensors of ever other sizes: what cooperative reclaim is for. Keeps
    about `live_mib` alive, checks the contents of each before it goes."""
    import random
    rng = random.Random(seed)
    held, live = [], 0
    for i in range(rounds):
        if on_round:
            on_round(i)
        size = rng.randint(12, max(13, live_mib // 6)) * MIB
        while held and live + size > live_mib * MIB:
            tensor, value = held.pop(rng.randrange(len(held)))
            assert bool((tensor[:: 1 << 16] == value).all()), "a tensor lost its contents"
            live -= tensor.numel()
            del tensor
        value = i % 251
        held.append((torch.full((size,), value, dtype=torch.uint8, device="cuda"), value))
        live += size
    torch.cuda.synchronize()


def cudagraph_trees(torch):
    """Graph trees record a new graph for each shape; their warm-up runs eagerly
    inside a private pool, where torch's ladder has one rung less."""
    torch._dynamo.config.recompile_limit = 32
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda()
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
    for batch in (1024, 4096, 8192, 16384, 24576, 32768):
        x = torch.randn(batch, 2048, device="cuda")
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            loss = compiled(x).sum()
            loss.backward()
            # The gradients are outputs of a graph: the next run overwrites them.
            model.zero_grad(set_to_none=True)
        churn(torch, 60, 3000, seed=batch)
    assert torch.isfinite(loss)


def use_mem_pool(torch):
    """A user's pool that grows while torch holds idle segments outside it."""
    churn(torch, 100, 4000)
    pool = torch.cuda.MemPool()
    kept = []
    for i in range(24):
        with torch.cuda.use_mem_pool(pool):
            kept.append(torch.full(((30 + 7 * i) * MIB,), i, dtype=torch.uint8, device="cuda"))
        churn(torch, 20, 4000, seed=i)
    for i, tensor in enumerate(kept):
        assert bool((tensor == i).all())


def beside_a_pool(torch):
    """Autograd's thread, which a user's pool does not take, needs what torch holds
    idle: there is not as much again."""
    class Many(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            whole = int(torch.cuda.mem_get_info()[1] * 0.7) >> 30
            held = [torch.full((1 << 30,), i, dtype=torch.uint8, device="cuda") for i in range(whole)]
            assert all(bool((tensor[:: 1 << 20] == i).all()) for i, tensor in enumerate(held))
            return gradient

    x = torch.ones(8, device="cuda", requires_grad=True)
    Many.apply(x).sum().backward()
    pool = torch.cuda.MemPool()
    for _ in range(2):
        with torch.cuda.use_mem_pool(pool):
            kept = torch.full((300 * MIB,), 7, dtype=torch.uint8, device="cuda")
            Many.apply(x).sum().backward()
    assert bool((kept == 7).all())


def graph_capture(torch):
    """Memory asked for during capture, with idle segments all around."""
    churn(torch, 100, 4000)
    graphs = []
    for i in range(6):
        x = torch.ones(((40 + 20 * i) * MIB // 4,), device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x * 2 + 1).sqrt() + x
        graphs.append((graph, x, y))
        churn(torch, 40, 4000, seed=i)
    for graph, x, y in graphs:
        x.fill_(4.0)
        graph.replay()
        assert torch.allclose(y[:8].cpu(), torch.full((8,), 7.0))


def memory_fraction(torch):
    """With a fraction set torch's first try may fail inside torch, so the first
    call that reaches the driver may be its last."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(6 * 1024 * MIB / total)
    churn(torch, 600, 3000)
    try:
        torch.empty(8 * 1024 * MIB, dtype=torch.uint8, device="cuda")
        raise SystemExit("the fraction was not enforced")
    except torch.OutOfMemoryError:
        pass
    churn(torch, 200, 3000, seed=1)


def extension(torch):
    """An extension that asks cudaMalloc itself and has no second try."""
    import ctypes
    runtime = ctypes.CDLL("libcudart.so.%s" % torch.version.cuda.split(".")[0])
    churn(torch, 100, 4000)
    for i in range(8):
        pointer = ctypes.c_void_p()
        status = runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 30))
        assert status == 0, f"cudaMalloc(1 GiB) = {status}"
        churn(torch, 30, 4000, seed=i)
        if i % 2:
            assert runtime.cudaFree(pointer) == 0


def cublas_handles(torch):
    """cuBLAS handles and their workspaces made while memory is nearly full."""
    import threading
    free, _ = torch.cuda.mem_get_info()
    ballast = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range((free - 6 * 1024 * MIB) // (256 * MIB))]
    churn(torch, 200, 2500)
    errors = []

    def multiply():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                a = torch.ones(1024, 1024, device="cuda", dtype=torch.float16)
                assert float((a @ a)[0, 0]) == 1024.0
        except Exception as error:                      # reported below: a thread's own would be lost
            errors.append(repr(error))

    for i in range(4):
        threads = [threading.Thread(target=multiply) for _ in range(6)]
        [t.start() for t in threads]
        churn(torch, 30, 2500, seed=i)
        [t.join() for t in threads]
    assert not errors, errors[0]
    del ballast


def threads(torch):
    """Eight threads with a stream each, all of changing sizes."""
    import threading
    errors = []

    def work(seed):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                churn(torch, 250, 1200, seed=seed)
        except BaseException as error:
            errors.append(repr(error))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert not errors, errors[0]


def out_of_memory(torch):
    """A real out-of-memory is torch's own exception, and the program goes on."""
    _, total = torch.cuda.mem_get_info()
    churn(torch, 100, 3000)
    for _ in range(3):
        try:
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
            raise SystemExit("twice the card was allocated")
        except torch.OutOfMemoryError:
            pass
        churn(torch, 50, 3000)


def settings_changed(torch):
    """The allocator's settings changed while it runs."""
    churn(torch, 100, 3000)
    torch.cuda.memory._set_allocator_settings("garbage_collection_threshold:0.8")
    churn(torch, 100, 3000, seed=1)
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    churn(torch, 100, 3000, seed=2)
    torch.cuda.empty_cache()
    churn(torch, 100, 3000, seed=3)


def switched_off(torch):
    """The pool stops in mid-run (a planted internal error): frees are honoured
    and torch is still asked to give back."""
    import ctypes
    runtime = ctypes.CDLL("libcudart.so.%s" % torch.version.cuda.split(".")[0])

    def plant(i):
        if i == 150:
            os.environ["MEMCUDA_PANIC_IN"] = "cuMemAlloc_v2"
            pointer = ctypes.c_void_p()
            assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4 * MIB)) == 0
            assert runtime.cudaFree(pointer) == 0
        if i == 160:
            del os.environ["MEMCUDA_PANIC_IN"]
    churn(torch, 500, 4000, on_round=plant)


CASES = {f.__name__: f for f in (cudagraph_trees, use_mem_pool, beside_a_pool, graph_capture, memory_fraction, extension,
                                 cublas_handles, threads, out_of_memory, settings_changed, switched_off)}


def child(name):
    import torch
    torch.cuda.init()
    CASES[name](torch)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    time.sleep(0.2)
    print(json.dumps(dict(requested=stats["requested_bytes.all.peak"], reserved=stats["reserved_bytes.all.peak"],
                          retries=stats["num_alloc_retries"])))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)} (default: all)")
    ap.add_argument("--child", choices=sorted(CASES), help=argparse.SUPPRESS)
    ap.add_argument("--limit", type=int, default=240, help="seconds that a case may take")
    a = ap.parse_args()
    if a.child:
        return child(a.child)
    unknown = [c for c in a.cases if c not in CASES]
    if unknown:
        ap.error(f"unknown {', '.join(unknown)}; known: {', '.join(CASES)}")
    shim_run.need_gpu()
    shim_run.need_library()
    verdicts = shim_run.Verdicts()
    for name in a.cases or CASES:
        library = shim_run.LIBRARY
        if name == "switched_off":
            library = shim_run.DEBUG_LIBRARY
            if not os.path.exists(library):
                verdicts.say(False, name, f"{library} is missing: cargo build -p memcuda-shim")
                continue
        command = [sys.executable, os.path.abspath(__file__), "--child", name]
        results = {}
        for profile in ("keep", "auto"):
            results[profile] = shim_run.run(command, library, limit=a.limit, MEMCUDA_TORCH=profile, MEMCUDA_LOG="info")
        keep, auto = results["keep"], results["auto"]
        if keep.status:
            verdicts.say(False, name, f"fails under keep too: {keep.reason()}")
            continue
        if auto.status:
            verdicts.say(False, name, f"runs under keep, under auto: {auto.reason()}")
            continue
        kept, seen = json.loads(keep.last_line), json.loads(auto.last_line)
        detail = (f"reserved {kept['reserved'] // MIB} MiB under keep, {seen['reserved'] // MIB} under auto "
                  f"(requested {seen['requested'] // MIB}), {seen['retries']} retries, {keep.seconds:.0f} and {auto.seconds:.0f} s")
        if name == "switched_off":
            stopped = "internal error" in auto.err
            near = seen["reserved"] < 1.25 * seen["requested"]
            verdicts.say(stopped and near, name, detail + ("" if stopped else "; the pool was not switched off"))
        else:
            verdicts.say(True, name, detail)
    verdicts.finish()


if __name__ == "__main__":
    main()
