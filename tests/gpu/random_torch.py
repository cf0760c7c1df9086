#!/usr/bin/env python3
"""Random programs of PyTorch on a real GPU: threads, streams, tensors of every
size that come and go, one in use on several streams, graphs, an emptied cache,
requests for too much. Each kernel looks whether its tensor is still its own
(tests/gpu/random_on_gpu.cu), in every profile.

    python3 tests/gpu/random_torch.py                      # about three minutes
    python3 tests/gpu/random_torch.py --seeds 10 native

Prints a PASS or FAIL line for each setting, and what its programs did; bare is
the first. Needs an NVIDIA GPU with 100 GiB free, torch and nvcc; --built is
random_on_gpu.cu built already, --library another library.
"""
import argparse
import ctypes
import json
import os
import random
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import random_runs

MIB = 1 << 20
# What is alive at most; a program under a limit may hold little more, and is refused at times.
LIVE = 3 << 30

SETTINGS = {
    "bare": None,
    "native": dict(MEMCUDA_TORCH="native"),
    "segments": dict(MEMCUDA_TORCH="segments"),
    "async": dict(MEMCUDA_TORCH="async"),
    "keep": dict(MEMCUDA_TORCH="keep"),
    "native with poison": dict(MEMCUDA_TORCH="native", MEMCUDA_DEBUG="poison"),
    "async with poison": dict(MEMCUDA_TORCH="async", MEMCUDA_DEBUG="poison"),
    "native under a limit": dict(MEMCUDA_TORCH="native", MEMCUDA_LIMIT=f"{LIVE // MIB + 200}MiB"),
    "async under a limit": dict(MEMCUDA_TORCH="async", MEMCUDA_LIMIT=f"{LIVE // MIB + 200}MiB"),
    "native with canaries": dict(MEMCUDA_TORCH="native", MEMCUDA_DEBUG="canary"),
}


class Range(ctypes.Structure):
    """CUsimRange."""
    _fields_ = [("base", ctypes.c_uint64), ("bytes", ctypes.c_size_t), ("write", ctypes.c_uint32)]


class Kernels:
    def __init__(self, path):
        library = ctypes.CDLL(path)
        self.claim_, self.launch_, self.release_, self.see_ = (
            library.cuSimClaim, library.cuSimLaunch, library.cuSimRelease, library.cuSimPhysical)
        self.claim_.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
        self.launch_.argtypes = [ctypes.c_void_p, ctypes.POINTER(Range), ctypes.c_uint, ctypes.c_double]
        self.release_.argtypes = [ctypes.c_uint64]

    def claim(self, tensor, stream):
        must(self.claim_(tensor.data_ptr(), tensor.numel(), stream.cuda_stream) == 0, "cuSimClaim")

    def launch(self, tensor, stream, writes, microseconds):
        it = Range(tensor.data_ptr(), tensor.numel(), writes)
        code = self.launch_(stream.cuda_stream, ctypes.byref(it), 1, microseconds)
        must(code == 0, f"a kernel was answered {code}")

    def release(self, tensor):
        must(self.release_(tensor.data_ptr()) == 0, "cuSimRelease")

    def see(self):
        self.see_(0, ctypes.byref(ctypes.c_uint64()))


def must(good, what):
    """Ends the process: another thread may be the one that is wrong."""
    if not good:
        print(f"random: {what}", file=sys.stderr, flush=True)
        os._exit(1)


class Thread:
    """One thread of a program, with streams and tensors of its own."""

    def __init__(self, torch, kernels, seed, budget, captures):
        self.torch, self.kernels, self.random = torch, kernels, random.Random(seed)
        self.limited = "MEMCUDA_LIMIT" in os.environ
        self.streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(3)]
        self.held, self.live, self.budget, self.captures = [], 0, budget, captures
        self.sizes = [self.any_size() for _ in range(6)]
        self.did = dict(operations=0, allocations=0, captures=0, refused=0)

    def any_size(self):
        """Each magnitude from 512 B to 512 MiB as likely as the next, but more of those that are worth a page."""
        magnitude = 1 << (self.random.randrange(20, 29) if self.random.random() < 0.7 else self.random.randrange(9, 20))
        return min(magnitude + self.random.randrange(magnitude), self.budget // 4)

    def step(self):
        self.did["operations"] += 1
        choice = self.random.random()
        if choice < 0.30:
            self.allocate()
        elif choice < 0.62:
            self.use()
        elif choice < 0.90:
            self.free()
        elif choice < 0.985:
            self.random.choice(self.streams).synchronize() if self.random.random() < 0.1 else self.use()
        elif choice < 0.990:
            self.torch.cuda.empty_cache()
        elif choice < 0.995:
            self.ask_too_much()
        elif self.captures and not self.limited:
            self.capture()

    def allocate(self):
        size = self.random.choice(self.sizes) if self.random.random() < 0.5 else self.any_size()
        while self.live + size > self.budget:
            self.free()
        stream = self.random.choice(self.streams)
        try:
            with self.torch.cuda.stream(stream):
                tensor = self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        except self.torch.cuda.OutOfMemoryError:
            must(self.limited, "there is no memory")
            self.did["refused"] += 1
            return
        self.kernels.claim(tensor, stream)
        self.held.append([tensor, stream])
        self.live += size
        self.did["allocations"] += 1

    def use(self):
        """On the stream that had it last, or on another one, behind that."""
        if not self.held:
            return
        it = self.random.choice(self.held)
        tensor, last = it
        if self.random.random() < 0.3:
            it[1] = self.random.choice(self.streams)
            it[1].wait_stream(last)
            tensor.record_stream(it[1])
        self.kernels.launch(tensor, it[1], self.random.randrange(2), 1 << self.random.randrange(12))

    def free(self):
        if not self.held:
            return
        tensor, _ = self.held.pop(self.random.randrange(len(self.held)))
        self.live -= tensor.numel()
        self.kernels.release(tensor)

    def ask_too_much(self):
        try:
            self.torch.empty(300 << 30, dtype=self.torch.uint8, device="cuda")
            must(False, "300 GiB were had")
        except self.torch.cuda.OutOfMemoryError:
            self.did["refused"] += 1

    def capture(self):
        """Memory of a graph's own pool, launched a few times beside the rest."""
        torch, graph, stream = self.torch, self.torch.cuda.CUDAGraph(), self.torch.cuda.Stream()
        size = min(self.any_size(), self.budget // 16)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            inside = torch.full((size,), 7, dtype=torch.uint8, device="cuda")
            result = inside + 1
            del inside
        with torch.cuda.stream(stream):
            for _ in range(3):
                graph.replay()
            must(bool((result == 8).all().item()), "a graph's result")
        self.did["captures"] += 1
        graph.reset()

    def run(self, operations):
        for _ in range(operations):
            self.step()
        while self.held:
            self.free()


def program(options):
    import torch
    kernels = Kernels(options.built)
    torch.cuda.init()
    # What is too much is refused by torch: to find out, expandable segments would take all that others have left.
    torch.cuda.set_per_process_memory_fraction(0.2)
    threads = [Thread(torch, kernels, options.seed * 1000 + number, LIVE // options.threads, options.threads == 1)
               for number in range(options.threads)]

    def body(thread):
        try:
            thread.run(options.operations // options.threads)
        except BaseException as error:
            must(False, f"{type(error).__name__}: {str(error).splitlines()[0]}")

    running = [threading.Thread(target=body, args=(thread,)) for thread in threads]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    torch.cuda.synchronize()
    kernels.see()
    total = {name: sum(thread.did[name] for thread in threads) for name in threads[0].did}
    native = torch.cuda.get_allocator_backend() == "native"
    stats = torch.cuda.memory_stats()
    must(stats["allocated_bytes.all.current"] == 0, "bytes are left")
    print(json.dumps(dict(total, reserved_mib=stats["reserved_bytes.all.peak"] // MIB if native else 0)), flush=True)


def build(path):
    random_runs.build(path, "-shared", "-Xcompiler", "-fPIC")


def judge(setting, runs):
    """A setting passes where all its programs ended well and did what they are for."""
    did = [json.loads(done.last_line) for _, done in runs if done.status == 0]
    total = {name: sum(one[name] for one in did) for name in ("operations", "allocations", "captures", "refused")}
    wrong = [f"{which}: {done.reason()}" for which, done in runs if done.status]
    if not (total["allocations"] and total["refused"] and (total["captures"] or "MEMCUDA_LIMIT" in (SETTINGS[setting] or {}))):
        wrong.append("nothing was allocated, captured or refused")
    pooled = [done.counters["peak_physical_bytes"] // MIB for _, done in runs if done.counters]
    held = max(pooled + [one["reserved_mib"] for one in did], default=0)
    return wrong, ", ".join(f"{number:,} {name}" for name, number in total.items()) + f", at most {held:,} MiB held"


def main():
    parser = random_runs.parser_of(__doc__, SETTINGS, seeds=2, operations=6000, limit=150, jobs=4)
    # One program, as the script starts itself.
    parser.add_argument("--program", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        program(options)
        return

    def command(path, seed, threads):
        return [sys.executable, os.path.abspath(__file__), "--program", "--built", path, "--seed", str(seed),
                "--threads", str(threads), "--operations", str(options.operations)]

    random_runs.run(options, 3, build, command, judge)


if __name__ == "__main__":
    main()
