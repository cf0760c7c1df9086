"""A consumer is killed with a kernel running: its memory comes back, and nothing writes to it
afterwards."""
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
        at = cupy.cuda.runtime.ipcOpenMemHandle(f.read())
    kernel = cupy.RawKernel(SPIN, "spin_and_write")
    kernel((64,), (256,), (at, 64 * MIB // 4, 20_000_000_000))
    with open(os.path.join(folder, "writing"), "w"):
        pass
    time.sleep(600)


def lender():
    """Memory of a killed importer is lent again; a kernel of it must be over by
    then. Bare, the driver promises nothing of this kind."""
    import cupy
    runtime = cupy.cuda.runtime
    waits, strays, last = [], 0, []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            at = runtime.malloc(64 * MIB)
            with open(os.path.join(folder, "handle.new"), "wb") as f:
                f.write(runtime.ipcGetMemHandle(at))
            os.rename(os.path.join(folder, "handle.new"), os.path.join(folder, "handle"))
            other = subprocess.Popen([sys.executable, os.path.dirname(os.path.abspath(__file__)), "stray_writer", folder])
            until = time.time() + 60
            while not os.path.exists(os.path.join(folder, "writing")):
                if other.poll() is not None or time.time() > until:
                    raise AssertionError("the importer did not come to write")
                time.sleep(0.01)
            time.sleep(0.2)
            runtime.free(at)
            elsewhere = runtime.malloc(64 * MIB)
            if elsewhere == at:
                raise AssertionError("memory was lent again while somebody has it open")
            runtime.free(elsewhere)
            began = time.time()
            os.kill(other.pid, signal.SIGKILL)
            taken = []
            # Whatever else is free is taken and kept: what comes back is next.
            while at not in taken:
                taken.append(runtime.malloc(64 * MIB))
                if len(taken) > 1000:
                    raise AssertionError("the memory of a killed importer did not come back within 10 s")
                time.sleep(0.01)
            waits.append((time.time() - began) * 1e3)
            runtime.memset(at, 0, 64 * MIB)
            for _ in range(20):
                words = cupy.ndarray((64 * MIB // 4,), cupy.uint32, cupy.cuda.MemoryPointer(
                    cupy.cuda.UnownedMemory(at, 64 * MIB, None), 0))
                stray = int((words != 0).sum())
                if stray:
                    strays += stray
                    last.append(round((time.time() - began) * 1e3))
                time.sleep(0.05)
            del words
            for one in taken:
                runtime.free(one)
            other.wait()
    if strays:
        raise AssertionError(f"{strays} words were written by processes that were dead, up to {max(last)} ms after "
                             f"their end was asked for; back after {[round(wait) for wait in waits]} ms")
    return dict(strays=strays, other=dict(back_ms=[round(wait, 1) for wait in waits]))
