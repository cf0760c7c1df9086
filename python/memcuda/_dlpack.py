"""DLPack: tensors as capsules. What a consumer gets is a structure of malloc
that owns a handle of its own, and a deleter in libmemcuda.so: it runs wherever
the consumer lets go, also in a thread that Python does not know, while an
exception is under way, or behind the interpreter's end."""
from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Callable, Sequence

from . import _library
from .dtypes import Dtype
from .errors import CudaError

CUDA = 2                    # kDLCUDA
NEWEST = (1, 1)             # f8 has codes since 1.1
READ_ONLY = 1               # DLPACK_FLAG_BITMASK_READ_ONLY


class Version(Structure):
    """`DLPackVersion`."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DLTensor(Structure):
    """`DLTensor`, its device and dtype spread out."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Managed(Structure):
    """`DLManagedTensor`, as before DLPack 1.0."""

    _fields_ = [("tensor", DLTensor), ("context", c_void_p), ("deleter", c_void_p)]


class ManagedVersioned(Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = [
        ("version", Version),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    ]


# A capsule points to its name: these are never freed.
PLAIN, VERSIONED = ctypes.create_string_buffer(b"dltensor"), ctypes.create_string_buffer(b"dltensor_versioned")
for _name in (PLAIN, VERSIONED):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_name))

_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_void_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_libc = ctypes.CDLL(None)
_malloc = ctypes.CFUNCTYPE(c_void_p, c_size_t)(("malloc", _libc))

# Capsules have no destructor: a function of Python's may not run where the
# interpreter drops one, with the consumer's exception set, and that exception
# would be lost. So they are held here until nobody else does.
_capsules: dict[int, tuple[object, bytes, Callable[[], None]]] = {}
_turn = threading.Lock()


def _references(entry: "tuple[object, ...]") -> int:
    """How often its first thing is held: by it, by this call, by others."""
    return sys.getrefcount(entry[0])


_ALONE = _references((object(),))


def export(handle: int, address: int, device: int, dtype: Dtype, shape: Sequence[int], read_only: bool,
           version: "tuple[int, int] | None") -> object:
    """A capsule that takes the handle over; of the old kind where `version` is None."""
    library = _library.need()
    kind, name, deleter = (Managed, PLAIN, library.dlpack_deleter) if version is None else \
        (ManagedVersioned, VERSIONED, library.dlpack_deleter_versioned)
    rank = len(shape)
    size = ctypes.sizeof(kind)
    block = _malloc(size + 2 * 8 * max(rank, 1))
    if not block:
        raise MemoryError
    ctypes.memset(block, 0, size)
    extents = (c_int64 * rank).from_address(block + size)
    strides = (c_int64 * rank).from_address(block + size + 8 * rank)
    stride = 1
    for at in reversed(range(rank)):
        extents[at], strides[at] = shape[at], stride
        stride *= shape[at]
    managed = kind.from_address(block)
    managed.context = handle
    managed.deleter = ctypes.cast(deleter, c_void_p)
    if version is not None:
        managed.version = Version(*version)
        managed.flags = READ_ONLY if read_only else 0
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id = address, CUDA, device
    tensor.ndim, tensor.code, tensor.bits, tensor.lanes = rank, dtype.dlpack_code, dtype.bits, 1
    tensor.shape = ctypes.cast(block + size, POINTER(c_int64))
    tensor.strides = ctypes.cast(block + size + 8 * rank, POINTER(c_int64))
    capsule = _new(block, ctypes.addressof(name), None)
    sweep()
    # Without the lock, which a collection in the midst of this may wait for: whatever
    # that finalizes may come here, too. A sweep does not mind what is added.
    _capsules[id(capsule)] = (capsule, name.value, lambda: deleter(block))
    return capsule


# Handles whose close was refused, as beside a capture on a full device.
_refused: "list[int]" = []


def let_go(handle: int) -> None:
    """Ends a handle where nobody is there to hear the answer; what is refused now,
    a sweep ends. In a forked child, which has the parent's objects, the library
    does nothing."""
    if _library.need().close(handle) == CudaError.code:
        _refused.append(handle)


def sweep() -> None:
    """Lets go of capsules that nobody else has; what was not taken out of one is
    deleted. Ends what could not be ended before."""
    for _ in range(len(_refused)):
        with contextlib.suppress(IndexError):       # another thread sweeps, too
            let_go(_refused.pop(0))
    if not _capsules or not _turn.acquire(blocking=False):
        return                      # another thread sweeps, or a collection runs inside of one
    deleters = []
    try:
        for key in list(_capsules):
            entry = _capsules[key]
            if _references(entry) > _ALONE:
                continue
            capsule, name, deleter = entry
            if _is_valid(capsule, name):
                deleters.append(deleter)
            del _capsules[key]
    finally:
        _turn.release()
    for deleter in deleters:
        deleter()


def _collected(phase: str, _: object) -> None:
    if phase == "stop":
        sweep()


gc.callbacks.append(_collected)
