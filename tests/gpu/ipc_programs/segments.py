"""Torch's own memory by CUDA IPC without torch's help, as vLLM's custom all-reduce, TensorPipe
and extensions do it: the start of the range around a tensor, its handle, the tensor's offset.
One GPU; over pages (expandable segments) a range is a large tensor, or what torch has mapped side by side."""
import ctypes
import hashlib
import json
import os
import subprocess
import sys
import time

from torch_tensors import MIB, pattern, total

RANGE_START, RANGE_SIZE = 11, 12
# What libraries look at before they decide how to share: legacy IPC, handle types, mapped, RDMA.
DECISIVE = (2, 8, 9, 10, 13, 14, 15, 17)


class Driver:
    """What is asked of an address."""

    def __init__(self):
        self.calls = ctypes.CDLL("libcuda.so.1")

    def attribute(self, at, number):
        value = ctypes.c_uint64()
        code = self.calls.cuPointerGetAttribute(ctypes.byref(value), number, ctypes.c_uint64(at))
        if code:
            raise AssertionError(f"attribute {number}: {code}")
        return value.value

    def address_range(self, at):
        base, length = ctypes.c_uint64(), ctypes.c_size_t()
        code = self.calls.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(length), ctypes.c_uint64(at))
        if code:
            raise AssertionError(f"cuMemGetAddressRange: {code}")
        return base.value, length.value

    def retained(self, at):
        handle = ctypes.c_uint64()
        code = self.calls.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_uint64(at))
        if code == 0:
            self.calls.cuMemRelease(handle)
        return code


class Reader:
    """Another process, which opens handles and answers what it sees."""

    def __init__(self):
        command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "segment_reader"]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **what):
        self.child.stdin.write(json.dumps(what) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise AssertionError(f"the reader ended with {self.child.wait()}")
        return json.loads(line)

    def end(self):
        self.child.stdin.close()
        self.child.stdout.read()
        if self.child.wait(60):
            raise AssertionError(f"the reader ended with {self.child.returncode}")


def reader():
    """Opens each handle once, and keeps it; what is asked for is doubled."""
    import torch
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    import cupy
    opened = {}
    for line in sys.stdin:
        what = json.loads(line)
        handle, began = bytes.fromhex(what["handle"]), time.perf_counter()
        try:
            if handle not in opened:
                opened[handle] = cupy.cuda.runtime.ipcOpenMemHandle(handle)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            print(json.dumps(dict(refused=error.status)), flush=True)
            continue
        opened_us = (time.perf_counter() - began) * 1e6
        memory = cupy.cuda.UnownedMemory(opened[handle] + what["offset"], 8 * what["elements"], None)
        array = cupy.ndarray((what["elements"],), cupy.int64, cupy.cuda.MemoryPointer(memory, 0))
        tensor = torch.as_tensor(array, device="cuda")
        seen = total(tensor)
        tensor.mul_(2)
        torch.cuda.synchronize()
        print(json.dumps(dict(total=seen, us=opened_us)), flush=True)
    for at in opened.values():
        cupy.cuda.runtime.ipcCloseMemHandle(at)
    return dict(opened=len(opened))


def exporter():
    """Tensors of many sizes, in ranges that grow and shrink; each is read, and doubled, by the
    other process."""
    import torch
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    import cupy
    driver, readers, digest, handles, us = Driver(), [Reader()], hashlib.sha256(), set(), []
    answers, ranges = set(), set()

    def handle_of(tensor):
        at = tensor.data_ptr()
        start = driver.attribute(at, RANGE_START)
        size = driver.attribute(at, RANGE_SIZE)
        if driver.address_range(at) != (start, size) or at + 8 * tensor.numel() > start + size:
            raise AssertionError(f"the range of {at:x} is {start:x} and {size} bytes")
        answers.add(json.dumps([driver.attribute(at, number) for number in DECISIVE] + [driver.retained(at)]))
        ranges.add((start, size))
        torch.cuda.synchronize()
        began = time.perf_counter()
        handle = bytes(cupy.cuda.runtime.ipcGetMemHandle(start))
        us.append((time.perf_counter() - began) * 1e6)
        handles.add(handle)
        return handle, at - start

    def read(tensor, by, handle=None):
        handle, offset = handle or handle_of(tensor)
        expected = total(tensor)
        said = by.ask(handle=handle.hex(), offset=offset, elements=tensor.numel())
        if said.get("total") != expected:
            raise AssertionError(f"the other process has {said}, not {expected}")
        if total(tensor) == expected and expected:
            raise AssertionError("what the other process wrote is not here")
        digest.update(str((expected, total(tensor))).encode())
        return said["us"]

    held, opens = [], []
    for i in range(30):
        elements = (1000, 300_001, 2_000_003, 9_000_000, 700)[i % 5] + i
        held.append(pattern(torch, elements, i))
        opens.append(read(held[-1], readers[0]))
        if i % 7 == 6:
            del held[:4]
            torch.cuda.empty_cache()
    # A handle that was taken before more was allocated is good afterwards, for a newcomer, too.
    early = pattern(torch, 3_000_000, 77)
    handle = handle_of(early)
    more = [pattern(torch, 5_000_000, j) for j in range(5)]
    readers.append(Reader())
    read(early, readers[1], handle)
    read(more[-1], readers[1])
    # A large one, whole.
    del held, more
    torch.cuda.empty_cache()
    large = pattern(torch, 512 * MIB // 8, 5)
    opens.append(read(large, readers[1]))
    large_us = us[-1]
    # What was given up is nobody's: a newcomer does not get it, who has it open keeps it.
    kept = handle_of(large)
    del large
    torch.cuda.empty_cache()
    readers.append(Reader())
    gone = readers[2].ask(handle=kept[0].hex(), offset=kept[1], elements=10)
    for reader in readers:
        reader.end()
    other = dict(handles=len(handles), ranges=len(ranges), us_export_512_mib=round(large_us, 1),
                 us_open_512_mib=round(opens[-1], 1), us_export=round(sorted(us)[len(us) // 2], 1),
                 us_open=round(sorted(opens)[len(opens) // 2], 1), given_up="refused" if "refused" in gone else "opened")
    return dict(digest=digest.hexdigest()[:16], answers=sorted(answers), other=other)
