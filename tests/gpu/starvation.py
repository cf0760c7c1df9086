#!/usr/bin/env python3
"""Idle memory of the pool makes nobody run out, on this machine's first GPU: the
calls beside it in one process, and two or three real processes, preloaded and
plain. Needs nothing but Python and the driver; takes about 40 s.

    tests/gpu/starvation.py [--library FILE] [--simulated DIR]

Prints a PASS or FAIL line for each case, INFO lines with figures, and the sum;
ends with 0 if all passed. --simulated tries the script itself on the simulated
GPU in DIR (target/release/sim), which lacks some of the calls.
"""
import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time

import shim_run

MIB = 1 << 20
OUT_OF_MEMORY = 2
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 8 .b8 large[1073741824];
.visible .entry nothing() { ret; }
"""


class Cuda:
    """The driver, in a process of its own."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.held = []
        context = ctypes.c_void_p()
        self.must("cuInit", 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)
        self.page = shim_run.Page(os.getpid())

    def call(self, name, *arguments):
        function = getattr(self.driver, name, None)
        return function(*arguments) if function else 500        # as cuGetProcAddress: not found

    def must(self, name, *arguments):
        code = self.call(name, *arguments)
        if code:
            sys.exit(f"{name} answered {code}")

    def info(self):
        """Free and total MiB."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value // MIB, total.value // MIB

    def alloc(self, mib):
        at = ctypes.c_uint64()
        code = self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(int(mib) * MIB))
        if code == 0:
            self.held.append(at)
        return code

    def free(self):
        return self.call("cuMemFree_v2", self.held.pop())

    def physical(self):
        """MiB that the pool holds; 0 in a plain process."""
        self.page.look()
        counters = self.page.counters()
        return counters["physical_bytes"] // MIB if counters else 0

    # What resident() is told, by its first word.

    def do_alloc(self, mib):
        began = time.monotonic()
        code = self.alloc(mib)
        return f"{code} {(time.monotonic() - began) * 1e3:.1f}"

    def do_try(self, mib, seconds):
        began = time.monotonic()
        while True:
            code = self.alloc(mib)
            passed = time.monotonic() - began
            if code != OUT_OF_MEMORY or passed > float(seconds):
                return f"{code} {passed * 1e3:.1f}"
            time.sleep(0.05)

    def do_free(self):
        return self.free()

    def do_physical(self):
        return self.physical()

    def do_info(self):
        return "{} {}".format(*self.info())

    def do_busy(self, seconds, mib):
        """The least that was held while so much was used again and again."""
        least, until = 1 << 60, time.monotonic() + float(seconds)
        while time.monotonic() < until:
            if self.alloc(mib) or self.free():
                return "-1"
            least = min(least, self.physical())
            time.sleep(0.05)
        return least


def resident():
    """A process that does what it reads, a line at a time."""
    cuda = Cuda()
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(getattr(cuda, "do_" + name)(*words), flush=True)


def beside():
    """The calls beside the pool, while it sits on all there is: a line each."""
    cuda = Cuda()
    ref, size = ctypes.byref, ctypes.c_size_t
    stream, handle = ctypes.c_void_p(), ctypes.c_uint64()
    cuda.must("cuStreamCreate", ref(stream), 1)
    on_device = (ctypes.c_int * 8)(1, 0, 1, 0)
    pool_properties = (ctypes.c_int * 22)(1, 0, 1, 0)

    class Shape(ctypes.Structure):
        _fields_ = [("width", size), ("height", size), ("depth", size),
                    ("format", ctypes.c_uint), ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]

    shape = Shape(4096, 4096, 32, 0x20, 1, 0)                   # 2 GiB of floats
    module, library, symbol, bytes_ = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), size()
    array, context, pool, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()

    def fill():
        """Afterwards all but a little of the device is idle in the pool."""
        free, _ = cuda.info()
        while free > 0 and cuda.alloc(free):
            free -= 256
        cuda.free()

    def case(name, do, undo=lambda: 0):
        fill()
        before = cuda.physical()
        began = time.monotonic()
        code = do()
        passed = (time.monotonic() - began) * 1e3
        print(f"{name} {code} {passed:.1f} {before - cuda.physical()}", flush=True)
        if code == 0:
            undo()

    case("cuMemCreate", lambda: cuda.call("cuMemCreate", ref(handle), size(2048 * MIB), on_device, 0),
         lambda: cuda.call("cuMemRelease", handle))
    case("cuMemAllocManaged", lambda: cuda.call("cuMemAllocManaged", ref(handle), size(2048 * MIB), 1),
         lambda: cuda.call("cuMemFree_v2", handle))
    case("cuArray3DCreate_v2", lambda: cuda.call("cuArray3DCreate_v2", ref(array), ref(shape)),
         lambda: cuda.call("cuArrayDestroy", array))
    case("cuMipmappedArrayCreate", lambda: cuda.call("cuMipmappedArrayCreate", ref(array), ref(shape), 4),
         lambda: cuda.call("cuMipmappedArrayDestroy", array))

    def of_module():
        return (cuda.call("cuModuleLoadData", ref(module), PTX)
                or cuda.call("cuModuleGetGlobal_v2", ref(symbol), ref(bytes_), module, b"large"))
    case("cuModuleLoadData+GetGlobal", of_module, lambda: cuda.call("cuModuleUnload", module))

    def of_library():
        return (cuda.call("cuLibraryLoadData", ref(library), PTX, None, None, 0, None, None, 0)
                or cuda.call("cuLibraryGetGlobal", ref(symbol), ref(bytes_), library, b"large"))
    case("cuLibraryLoadData+GetGlobal", of_library, lambda: cuda.call("cuLibraryUnload", library))

    cuda.must("cuMemPoolCreate", ref(pool), pool_properties)

    def give_pool_back():
        cuda.call("cuMemFreeAsync", handle, stream)
        cuda.call("cuStreamSynchronize", stream)
        cuda.call("cuMemPoolTrimTo", pool, size(0))
    case("cuMemAllocFromPoolAsync",
         lambda: cuda.call("cuMemAllocFromPoolAsync", ref(handle), size(2048 * MIB), pool, stream), give_pool_back)

    cuda.must("cuStreamBeginCapture_v2", stream, 0)
    captured = cuda.call("cuMemAllocAsync", ref(handle), size(2048 * MIB), stream)
    captured = captured or cuda.call("cuMemFreeAsync", handle, stream)
    ended = cuda.call("cuStreamEndCapture", stream, ref(graph))

    def of_graph():
        return (captured or ended
                or cuda.call("cuGraphInstantiateWithFlags", ref(executable), graph, ctypes.c_uint64(0))
                or cuda.call("cuGraphLaunch", executable, stream) or cuda.call("cuStreamSynchronize", stream))
    case("graph-with-memory", of_graph, lambda: (cuda.call("cuGraphExecDestroy", executable),
                                                 cuda.call("cuGraphDestroy", graph),
                                                 cuda.call("cuDeviceGraphMemTrim", 0)))
    case("cuCtxSetLimit(heap)", lambda: cuda.call("cuCtxSetLimit", 2, size(2048 * MIB)))

    def in_capture():
        begun = cuda.call("cuStreamBeginCapture_v2", stream, 0)
        made = cuda.call("cuMemCreate", ref(handle), size(2048 * MIB), on_device, 0)
        return begun or made or cuda.call("cuStreamEndCapture", stream, ref(graph))
    case("cuMemCreate-in-capture", in_capture, lambda: cuda.call("cuMemRelease", handle))

    def another_context():
        code = cuda.call("cuCtxCreate_v2", ref(context), 0, 0)
        return code or cuda.call("cuCtxDestroy_v2", context)
    case("cuCtxCreate_v2", another_context)

    # Not hooked, so this is a figure and no verdict: the first launch of a
    # kernel that is loaded lazily.
    def launch():
        return (cuda.call("cuModuleLoadData", ref(module), PTX.replace(b"1073741824", b"8"))
                or cuda.call("cuModuleGetFunction", ref(function), module, b"nothing")
                or cuda.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
                or cuda.call("cuStreamSynchronize", stream))
    case("INFO:load-and-launch", launch)


class Process:
    """A resident process, preloaded or plain."""

    def __init__(self, library, extra, role="resident", **settings):
        env = {n: v for n, v in os.environ.items() if not n.startswith("MEMCUDA_") and n != "LD_PRELOAD"}
        env.update(extra, **settings)
        if library:
            env["LD_PRELOAD"] = library
        self.child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--role", role], env=env, text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)
        if role == "resident" and self.hear() != "ready":
            sys.exit("FAIL: a process did not start")

    def hear(self):
        return self.child.stdout.readline().strip()

    def ask(self, *words):
        self.child.stdin.write(" ".join(map(str, words)) + "\n")
        return self.hear()

    def number(self, *words):
        return int(self.ask(*words) or -1)

    def timed(self, *words):
        """A code and milliseconds; -1 where the process ended."""
        code, _, time_ = self.ask(*words).partition(" ")
        return int(code or -1), float(time_ or 0)

    def idle(self, mib):
        """Holds so many MiB, all idle."""
        return self.timed("alloc", mib)[0] or self.number("free")

    def end(self):
        """The exit status."""
        self.child.stdin.close()
        try:
            return self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.child.wait()


def processes(verdicts, start):
    """`start(preloaded, **settings)` makes a resident process."""
    one = start(True)
    _, total = map(int, one.ask("info").split())
    most, half, tenth = total * 8 // 10, total // 2, total // 10

    two = start(True)
    good = one.idle(most) == 0
    code, took = two.timed("alloc", half)
    verdicts.say(good and code == 0 and took < 4000, "two preloaded, memory freed a moment ago",
                 f"code {code} after {took:.0f} ms, the other holds {one.number('physical')} MiB of {most}")
    good = two.number("free") == 0
    time.sleep(1.6)
    code, took = one.timed("alloc", most)
    verdicts.say(good and code == 0 and took < 2000, "two preloaded, memory long idle", f"code {code} after {took:.0f} ms")
    code, took = two.timed("alloc", half)
    verdicts.say(code == OUT_OF_MEMORY and took < 2000, "two preloaded, memory in use", f"code {code} after {took:.0f} ms")
    good = one.number("free") == 0
    statuses = [one.end(), two.end()]
    verdicts.say(good and statuses == [0, 0], "both end well", f"statuses {statuses}")

    one = start(True)
    good = one.idle(most) == 0
    plain = start(False)
    code, took = plain.timed("try", half, 15)
    left = one.number("physical")
    verdicts.say(good and code == 0, "a plain process beside a preloaded one", f"code {code} after {took:.0f} ms")
    time.sleep(1.6)
    left = one.number("physical")
    verdicts.say(tenth - 256 <= left <= tenth + 256, "a tenth of the device stays", f"{left} MiB of {total}")
    statuses = [plain.end(), one.end()]
    verdicts.say(statuses == [0, 0], "both end well", f"statuses {statuses}")

    one = start(True, MEMCUDA_IDLE="0")
    good = one.idle(4096 if total > 8192 else half) == 0
    before = one.number("physical")
    time.sleep(3)
    verdicts.say(good and one.number("physical") == before, "alone it keeps everything", f"{before} MiB")
    plain = start(False)
    least = one.number("busy", 3, before // 2)
    verdicts.say(least >= before // 2, "what is used again and again stays", f"{least} MiB at least, {before // 2} used")
    time.sleep(2.5)
    verdicts.say(one.number("physical") == 0, "at rest beside another it keeps what MEMCUDA_IDLE says",
                 f"{one.number('physical')} MiB")
    plain.end()

    doomed = start(True)
    good = doomed.idle(most - tenth) == 0
    doomed.child.send_signal(signal.SIGKILL)
    doomed.child.wait()
    time.sleep(0.5)                                             # the driver takes its memory back
    code, took = one.timed("try", most, 10)
    verdicts.say(good and code == 0, "beside a killed one", f"code {code} after {took:.0f} ms")
    statuses = [one.end()]

    # One that gives only where it is asked, and one that cannot answer.
    one, stopped = start(True, MEMCUDA_IDLE="100%"), start(True)
    good = one.idle(half) == 0 and stopped.idle(tenth) == 0
    time.sleep(1.6)
    stopped.child.send_signal(signal.SIGSTOP)
    two = start(True)
    code, took = two.timed("alloc", most - tenth)
    verdicts.say(good and code == 0 and took < 3000, "beside a stopped one", f"code {code} after {took:.0f} ms")
    stopped.child.send_signal(signal.SIGCONT)
    statuses += [one.end(), two.end(), stopped.end()]
    verdicts.say(statuses == [0] * 4, "all end well", f"statuses {statuses}")


def cost_of_looking():
    """Milliseconds in which NVML lists the processes of the first GPU, the median."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, took = ctypes.c_void_p(), []
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    for _ in range(21):
        count, room = ctypes.c_uint(64), ctypes.create_string_buffer(64 * 24)
        began = time.monotonic()
        code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), room)
        took.append((time.monotonic() - began) * 1e3)
    return f"{sorted(took)[10]:.2f} ms, code {code}, {count.value} processes"


def main():
    words = argparse.ArgumentParser(description="Idle memory of the pool makes nobody run out.")
    words.add_argument("--library", default=shim_run.LIBRARY, metavar="FILE")
    words.add_argument("--simulated", metavar="DIR")
    words.add_argument("--role", help=argparse.SUPPRESS)
    words = words.parse_args()
    if words.role:
        return {"resident": resident, "beside": beside}[words.role]()
    extra = {}
    shim_run.need_library(words.library)
    if words.simulated:
        folder = tempfile.mkdtemp()
        extra = {"LD_LIBRARY_PATH": f"{words.simulated}:{words.simulated}/nvml", "MEMCUDA_SIM_CLOCK": "off",
                 "MEMCUDA_SIM_MEMORY": "12GiB", "MEMCUDA_SIM_SHARED": os.path.join(folder, "ledger")}
    else:
        shim_run.need_gpu()
    library = os.path.abspath(words.library)
    verdicts = shim_run.Verdicts()

    child = Process(library, extra, role="beside").child
    said, _ = child.communicate(timeout=120)
    for line in said.splitlines():
        name, code, took, given = line.split()
        detail = f"code {code} after {took} ms, {given} MiB given back"
        if name.startswith("INFO:"):
            print(f"INFO {name[5:]}: {detail}")
        else:
            verdicts.say(code == "0", name, detail)
    verdicts.say(child.returncode == 0 and "cuCtxCreate_v2" in said, "calls beside the pool", f"status {child.returncode}")

    processes(verdicts, lambda preloaded, **settings: Process(library if preloaded else None, extra, **settings))
    if not words.simulated:
        print(f"INFO a look at NVML's list of processes: {cost_of_looking()}")
    verdicts.finish()


if __name__ == "__main__":
    main()
