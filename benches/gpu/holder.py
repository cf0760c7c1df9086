#!/usr/bin/env python3
"""Holds all of a GPU's memory but so many bytes, with plain cuMemAlloc, as another process
on the card would; says how much is left and lets go when its input ends.

    python3 benches/gpu/holder.py BYTES
"""
import ctypes
import sys


def check(status, what):
    if status:
        sys.exit(f"FAIL: {what}: CUDA error {status}")


def hold(room):
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total, at = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")

    def left():
        check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        return free.value

    if left() < room:
        sys.exit(f"FAIL: {left()} bytes are free, fewer than the {room} that are to be left")
    if left() - room >= 2 << 20:
        check(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t((left() - room) & ~((2 << 20) - 1))), "cuMemAlloc")
    return left()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("usage: holder.py BYTES (that are to be left free)")
    print(hold(int(sys.argv[1])), flush=True)
    sys.stdin.read()
