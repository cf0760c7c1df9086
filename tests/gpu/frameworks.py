#!/usr/bin/env python3
"""CuPy, JAX, numba and a program with a static CUDA runtime give the same
results with and without the pool, and the pool really served them.

    python3 tests/gpu/frameworks.py [NAME...]

Prints a PASS or FAIL line each; a framework that is not installed is a FAIL.
Needs an NVIDIA GPU, cupy, jax, numba (with its CUDA support) and nvcc.
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim_run


def digest(*arrays):
    h = hashlib.sha256()
    for a in arrays:
        h.update(a.tobytes())
    return h.hexdigest()


def with_cupy():
    import cupy as cp
    import numpy as np
    rng = np.random.default_rng(1)
    results = []
    for step in range(60):
        n = int(rng.integers(100, 3000))
        a = cp.asarray(rng.integers(-8, 8, (n, n)).astype(np.float32))   # small integers: sums are exact in any order
        b = a @ a.T
        c = cp.cumsum(a.astype(cp.int64), axis=0)[-1] + cp.sort(a, axis=1)[:, 0].astype(cp.int64)
        results += [cp.asnumpy(b), cp.asnumpy(c)]
        if step % 20 == 19:
            cp.get_default_memory_pool().free_all_blocks()
    cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)              # cudaMallocFromPoolAsync or cudaMallocAsync
    for _ in range(30):
        n = int(rng.integers(100, 2000))
        with cp.cuda.Stream(non_blocking=True) as stream:
            a = cp.arange(n * n, dtype=cp.int64).reshape(n, n)
            results.append(cp.asnumpy((a * a).sum(axis=0) % 1000003, stream=stream))
            stream.synchronize()
            del a
    cp.cuda.set_allocator(None)
    for _ in range(10):                                                  # straight cudaMalloc and cudaFree
        n = int(rng.integers(100, 2000))
        results.append(cp.asnumpy(cp.arange(n * n, dtype=cp.int64)[::-1].copy()))
    return digest(*results)


def with_jax():
    import jax
    import jax.numpy as jnp
    import numpy as np
    assert jax.default_backend() == "gpu", f"JAX uses {jax.default_backend()}"

    @jax.jit
    def step(w, x):
        def loss(w):
            return (jnp.tanh(x @ w) ** 2).sum()
        value, gradient = jax.value_and_grad(loss)(w)
        return w - 1e-3 * gradient, value

    w = jax.random.normal(jax.random.key(0), (1024, 1024), jnp.float32) * 0.05
    values = []
    for i in range(24):
        x = jax.random.normal(jax.random.key(i), (64 * (1 + i % 6), 1024), jnp.float32)
        w, value = step(w, x)
        values.append(np.asarray(value))
    return digest(np.asarray(w), *values)


def with_numba():
    import numpy as np
    import numpy
    if not hasattr(numpy, "row_stack"):
        # Releases of numba older than numpy 2.5 look this name up on import.
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def scale(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 3 * x[i] + i

    results = []
    rng = np.random.default_rng(2)
    for step in range(80):
        n = int(rng.integers(1000, 4_000_000))
        stream = cuda.stream() if step % 2 else 0
        x = cuda.to_device(rng.integers(0, 1 << 30, n), stream=stream)
        y = cuda.device_array(n, np.int64, stream=stream)
        scale[(n + 255) // 256, 256, stream](x, y)
        results.append(y.copy_to_host(stream=stream))
        if step % 2:
            stream.synchronize()
    return digest(*results)


CHILDREN = {"cupy": with_cupy, "jax": with_jax, "numba": with_numba}


def compile_static(folder):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        return None, "nvcc is not installed"
    program = os.path.join(folder, "static_cudart")
    source = os.path.join(shim_run.ROOT, "tests/gpu/static_cudart.cu")
    done = subprocess.run([nvcc, "-O2", "-arch=native", "-o", program, source], capture_output=True, text=True)
    return (program, "") if done.returncode == 0 else (None, done.stderr.strip()[:400])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("names", nargs="*", metavar="NAME", help="cupy, jax, numba, static (default: all)")
    ap.add_argument("--child", choices=sorted(CHILDREN), help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.child:
        print(CHILDREN[a.child]())
        sys.stdout.flush()
        time.sleep(0.3)
        return
    names = a.names or ["cupy", "jax", "numba", "static"]
    unknown = [n for n in names if n not in (*CHILDREN, "static")]
    if unknown:
        ap.error(f"unknown {', '.join(unknown)}; known: cupy, jax, numba, static")
    shim_run.need_gpu()
    shim_run.need_library()
    verdicts = shim_run.Verdicts()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            command = [sys.executable, os.path.abspath(__file__), "--child", name]
            if name == "static":
                program, problem = compile_static(folder)
                if not program:
                    verdicts.say(False, name, problem)
                    continue
                command = [program]
            extra = dict(XLA_PYTHON_CLIENT_PREALLOCATE="false", XLA_FLAGS="--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
            bare = shim_run.run(command, **extra)
            again = shim_run.run(command, **extra)
            if bare.status or again.status or bare.last_line != again.last_line:
                what = "is not repeatable" if not (bare.status or again.status) else (bare if bare.status else again).reason()
                verdicts.say(False, name, f"without the pool: {what}")
                continue
            for mode in ({}, dict(MEMCUDA_DEBUG="poison"), dict(MEMCUDA_FREE="ordered")):
                label = " ".join([name, *(f"{k}={v}" for k, v in mode.items())])
                pooled = shim_run.run(command, shim_run.LIBRARY, **extra, **mode)
                served = (pooled.counters or {}).get("requests", 0)
                if pooled.status:
                    verdicts.say(False, label, pooled.reason())
                elif pooled.last_line != bare.last_line:
                    verdicts.say(False, label, f"{pooled.last_line[:100]} against {bare.last_line[:100]}")
                else:
                    verdicts.say(served > 0, label, f"equal, {served} requests served by the pool")
    verdicts.finish()


if __name__ == "__main__":
    main()
