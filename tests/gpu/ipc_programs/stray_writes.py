"""A consumer is killed with a kernel running: its memory comes back, and nothing writes to what
others have since, before its end and after it."""
import os
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20

SPIN = r"""
extern "C" __global__ void spin_and_write(unsigned *words, unsigned long long n, long long nanoseconds) {
    unsigned long long began, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do {
        for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            ((volatile unsigned *)words)[i] = 0xDEADu;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while ((long long)(now - began) < nanoseconds);
}
"""


def writer(folder):
    """Opens memory, writes to it for 20 seconds, and is killed by then."""
    import cupy
    with open(os.path.join(folder, "handle"), "rb") as f:
        handle, size = f.read().split(b"|size|")
    at = cupy.cuda.runtime.ipcOpenMemHandle(handle)
    kernel = cupy.RawKernel(SPIN, "spin_and_write")
    kernel((64,), (256,), (at, int(size) // 4, 20_000_000_000))
    with open(os.path.join(folder, "writing"), "w"):
        pass
    time.sleep(600)


def written(at, size):
    """Words that somebody else writes into this memory within a second."""
    import cupy
    cupy.cuda.runtime.memset(at, 0, size)
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(at, size, None), 0)
    words = cupy.ndarray((size // 4,), cupy.uint32, memory)
    count = 0
    for _ in range(20):
        count += int((words != 0).sum())
        time.sleep(0.05)
    return count


def killed(size, is_parked):
    """Memory of these bytes is freed while a process writes to it, which is then killed: words that
    were written into what was lent since, and milliseconds until the memory was back."""
    import cupy
    runtime = cupy.cuda.runtime
    with tempfile.TemporaryDirectory() as folder:
        at = runtime.malloc(size)
        beside = runtime.malloc(size) if is_parked else None
        with open(os.path.join(folder, "handle.new"), "wb") as f:
            f.write(runtime.ipcGetMemHandle(at) + b"|size|%d" % size)
        os.rename(os.path.join(folder, "handle.new"), os.path.join(folder, "handle"))
        other = subprocess.Popen([sys.executable, os.path.dirname(os.path.abspath(__file__)), "stray_writer", folder])
        until = time.time() + 60
        while not os.path.exists(os.path.join(folder, "writing")):
            if other.poll() is not None or time.time() > until:
                raise AssertionError("the importer did not come to write")
            time.sleep(0.01)
        time.sleep(0.2)
        runtime.free(at)
        lent = [runtime.malloc(size)]
        if is_parked and lent[0] == at:
            raise AssertionError("memory on a shared handle was lent again while somebody has it open")
        strays = written(lent[0], size)
        began = time.time()
        os.kill(other.pid, signal.SIGKILL)
        # Whatever else is free is taken and kept: what comes back is next.
        while at not in lent:
            lent.append(runtime.malloc(size))
            if len(lent) > 1000:
                raise AssertionError("the memory of a killed importer did not come back within 10 s")
            time.sleep(0.01)
        back = (time.time() - began) * 1e3
        strays += written(at, size)
        for one in lent + [beside] * is_parked:
            runtime.free(one)
        other.wait()
    return strays, back


def lender():
    """Memory of a killed importer is lent again: below it the same, of a handle that others share, or
    other memory at once. A kernel of the importer must not reach it. Bare, the driver promises nothing
    of this kind."""
    waits = []
    for is_parked in [False, True]:
        for _ in range(3):
            strays, back = killed(MIB if is_parked else 64 * MIB, is_parked)
            if strays:
                raise AssertionError(f"{strays} words were written by a process that had other memory open")
            waits.append(back)
    return dict(strays=0, other=dict(back_ms=[round(wait, 1) for wait in waits]))
