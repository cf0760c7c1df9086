"""Rows of CuPy, JAX, numba and Triton.
"""
from . import PLAIN, Digest, churn, digest, must, row, torch_row

JAX = dict(XLA_FLAGS="--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")


def cupy_work(cp, rounds):
    """Products, sums and sorts of small integers, which are exact in any order."""
    import numpy as np
    rng, results = np.random.default_rng(1), Digest()
    for _ in range(rounds):
        n = int(rng.integers(100, 2500))
        a = cp.asarray(rng.integers(-8, 8, (n, n)).astype(np.float32))
        product = a @ a.T
        sums = cp.cumsum(a.astype(cp.int64), axis=0)[-1] + cp.sort(a, axis=1)[:, 0].astype(cp.int64)
        results.add(cp.asnumpy(product), cp.asnumpy(sums))
    return results


def cupy_streams(cp, rounds):
    import numpy as np
    rng, results = np.random.default_rng(2), Digest()
    for _ in range(rounds):
        n = int(rng.integers(100, 2000))
        with cp.cuda.Stream(non_blocking=True) as stream:
            a = cp.arange(n * n, dtype=cp.int64).reshape(n, n)
            # Blocking, so that nothing is freed or read before it is done.
            results.add(cp.asnumpy((a * a).sum(axis=0) % 1000003, stream=stream, blocking=True))
            stream.synchronize()
            del a
    return results


@row("CuPy default pool", profiles=PLAIN)
def cupy_default():
    """CuPy's own pool, emptied from time to time; then none at all."""
    import cupy as cp
    pool, results = cp.get_default_memory_pool(), []
    for _ in range(3):
        results.append(str(cupy_work(cp, 16)))
        pool.free_all_blocks()
    kept = [cp.full(n * 100_003, n, dtype=cp.int32) for n in range(1, 30)]
    used = pool.used_bytes()
    sums = [int(a.sum()) for a in kept]
    del kept
    pool.free_all_blocks()
    cp.cuda.set_allocator(None)                 # straight cudaMalloc and cudaFree
    results.append(str(cupy_streams(cp, 12)))
    return dict(results=dict(digests=results, sums=sums), memory=dict(used=used, used_after=pool.used_bytes()),
                other=dict(held=pool.total_bytes()))


@row("CuPy async pool", profiles=PLAIN)
def cupy_async():
    import cupy as cp
    pool = cp.cuda.MemoryAsyncPool()
    cp.cuda.set_allocator(pool.malloc)
    results = [str(cupy_work(cp, 20)), str(cupy_streams(cp, 20))]
    kept = [cp.full(n * 100_003, n, dtype=cp.int32) for n in range(1, 30)]
    used, sums = pool.used_bytes(), [int(a.sum()) for a in kept]
    del kept
    cp.cuda.Device().synchronize()
    pool.free_all_blocks()
    return dict(results=dict(digests=results, sums=sums), memory=dict(used=used), other=dict(held=pool.total_bytes()))


@row("CuPy managed memory", alone=True)
def cupy_managed():
    """Managed memory stays the driver's; plain memory beside it is the pool's."""
    import cupy as cp
    managed = cp.cuda.MemoryPool(cp.cuda.malloc_managed)
    cp.cuda.set_allocator(managed.malloc)
    results = [str(cupy_work(cp, 10))]
    kept = [cp.full(n * 100_003, n, dtype=cp.int32) for n in range(1, 20)]
    kinds = [int(cp.cuda.runtime.pointerGetAttributes(a.data.ptr).type) for a in kept]
    with cp.cuda.using_allocator(cp.get_default_memory_pool().malloc):
        plain = cp.arange(1 << 20, dtype=cp.int64)
        kinds.append(int(cp.cuda.runtime.pointerGetAttributes(plain.data.ptr).type))
    return dict(results=dict(digests=results, sums=[int((a + 1).sum()) for a in kept], plain=int(plain.sum()), kinds=kinds),
                memory=dict(used=managed.used_bytes()))


def jax_work():
    """A training step whose batch changes, and arrays that come and go."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    must(jax.default_backend() == "gpu", f"JAX uses {jax.default_backend()}")

    @jax.jit
    def step(w, x):
        def loss(w):
            return (jnp.tanh(x @ w) ** 2).sum()
        value, gradient = jax.value_and_grad(loss)(w)
        return w - 1e-3 * gradient, value

    w = jax.random.normal(jax.random.key(0), (1024, 1024), jnp.float32) * 0.05
    results, kept = Digest(), []
    for i in range(24):
        x = jax.random.normal(jax.random.key(i), (64 * (1 + i % 6), 1024), jnp.float32)
        w, value = step(w, x)
        results.add(np.asarray(value))
        kept.append(jnp.full(((1 + i * 7 % 11) * 300_007,), i, jnp.int32))
        if i % 3 == 2:
            results.add(np.asarray(kept.pop(0)[:1000]))
    results.add(np.asarray(w), *(np.asarray(k[-1000:]) for k in kept))
    jax.block_until_ready((w, kept))
    stats = jax.devices()[0].memory_stats() or {}
    # Not compared: two runs without the library differ in them as well.
    other = {name: stats[name] for name in ("bytes_in_use", "peak_bytes_in_use", "pool_bytes", "num_allocs") if name in stats}
    return dict(results=dict(digest=str(results)), memory={}, other=other)


row("JAX preallocated", environment=dict(JAX, XLA_PYTHON_CLIENT_PREALLOCATE="true", XLA_PYTHON_CLIENT_MEM_FRACTION="0.2"))(jax_work)
row("JAX growing", profiles=PLAIN, environment=dict(JAX, XLA_PYTHON_CLIENT_PREALLOCATE="false"))(jax_work)
row("JAX platform allocator", environment=dict(JAX, XLA_PYTHON_CLIENT_ALLOCATOR="platform"))(jax_work)
row("JAX cuda_async allocator", environment=dict(JAX, XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async",
                                                 XLA_PYTHON_CLIENT_PREALLOCATE="false"))(jax_work)


@row("numba", profiles=PLAIN)
def numba():
    import numpy as np
    if not hasattr(np, "row_stack"):
        # Releases of numba older than numpy 2.5 look this name up on import.
        np.row_stack = np.vstack
    from numba import cuda

    @cuda.jit
    def scale(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 3 * x[i] + i

    rng, results = np.random.default_rng(2), Digest()
    for step in range(80):
        n = int(rng.integers(1000, 4_000_000))
        stream = cuda.stream() if step % 2 else 0
        x = cuda.to_device(rng.integers(0, 1 << 30, n), stream=stream)
        y = cuda.device_array(n, np.int64, stream=stream)
        scale[(n + 255) // 256, 256, stream](x, y)
        host = y.copy_to_host(stream=stream)
        if step % 2:
            stream.synchronize()
        results.add(host)
    return dict(results=dict(digest=str(results)))


@torch_row("Triton kernels", warm=True)
def triton(torch):
    """Kernels compiled at run time, over tensors of changing size and a scratch
    buffer on another stream."""
    from . import triton_kernels
    results, side = Digest(), torch.cuda.Stream()
    for i in range(30):
        count = (1 + i * 13 % 17) * 500_009
        x = torch.randn(count, device="cuda")
        y = torch.randn(count, device="cuda")
        results.add(triton_kernels.scaled_sum(x, y, 1.5))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            results.add(triton_kernels.row_softmax(x[: 1000 * 400].view(400, 1000)))
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        churn(torch, 3, 600, seed=i)
    return dict(results=str(results), last=digest(x))
