"""libmemcuda.so by ctypes: the structures and functions of `memcuda.h`. Finds
the library only where it is in the process already (preloaded or linked): to
load it later would be too late for it to serve what was allocated before."""
from __future__ import annotations

import ctypes
import functools
import math
import time
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, TypeVar

from . import errors

# Flags of the options and of the info.
READ_ONLY, ZEROED, HIDDEN, PERSIST, CUDA_IPC, UNNAMED_ON_MISMATCH, AWAIT, MADE = (1 << bit for bit in range(8))
# How a name is used by `memcuda_name_next`.
MODES = {"create": 1, "attach": 2, "create-or-attach": 3}
STATES = ("creating", "ready", "sealed", "dying")
CURRENT = -1
FOREVER = 2**64 - 1
MOST_RANK = 32
# The version of the header that this follows.
VERSION = 1
# The longest that a call of the library waits, in seconds.
MOMENT = 0.25
Result = TypeVar("Result")


class Options(Structure):
    """`memcuda_options`."""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("bytes", c_uint64),
        ("device", c_int32),
        ("rank", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("dtype", c_char_p),
        ("wait_us", c_uint64),
    ]


class Info(Structure):
    """`memcuda_info`."""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char * 208),
        ("generation", c_uint8 * 16),
        ("device_uuid", c_uint8 * 16),
        ("device", c_int32),
        ("state", c_uint32),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("mapped", c_uint64),
        ("version", c_uint64),
        ("persist_until_s", c_uint64),
        ("created_us", c_uint64),
        ("references", c_uint64),
        ("maker_pid", c_uint32),
        ("maker_uid", c_uint32),
        ("dtype", c_char * 8),
        ("rank", c_uint32),
        ("holders", c_uint32),
        ("shape", c_uint64 * MOST_RANK),
    ]

    @classmethod
    def new(cls) -> "Info":
        return cls(size=ctypes.sizeof(cls))


Each = ctypes.CFUNCTYPE(c_int, POINTER(Info), c_void_p)
_handle, _handle_out, _info = c_uint64, POINTER(c_uint64), POINTER(Info)
_SIGNATURES: dict[str, tuple[Any, Sequence[Any]]] = {
    "version": (c_int, ()),
    "message": (c_char_p, ()),
    "cuda_result": (c_int, ()),
    "name_next": (c_int, (c_char_p, c_int, POINTER(Options))),
    "find": (c_int, (c_void_p, _handle_out)),
    "create": (c_int, (c_char_p, POINTER(Options), _handle_out)),
    "open": (c_int, (c_char_p, POINTER(Options), _handle_out)),
    "create_or_open": (c_int, (c_char_p, POINTER(Options), _handle_out)),
    "close": (c_int, (_handle,)),
    "describe": (c_int, (_handle, _info)),
    "seal": (c_int, (_handle,)),
    "publish": (c_int, (_handle, c_uint64, POINTER(c_uint64))),
    "publish_on": (c_int, (_handle, c_uint64, c_void_p, POINTER(c_uint64))),
    "wait": (c_int, (_handle, c_uint64, c_uint64, POINTER(c_uint64))),
    "wait_on": (c_int, (_handle, c_uint64, c_void_p)),
    "persist": (c_int, (c_char_p, c_uint64)),
    "delete": (c_int, (c_char_p,)),
    "show": (c_int, (c_char_p, _info)),
    "list": (c_int, (Each, c_void_p)),
    "dlpack_deleter": (None, (c_void_p,)),
    "dlpack_deleter_versioned": (None, (c_void_p,)),
}


class Library:
    """The functions, each as an attribute without its `memcuda_`."""

    def __init__(self, everything: ctypes.CDLL):
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(everything, f"memcuda_{name}")
            function.restype, function.argtypes = result, list(arguments)
            setattr(self, name, function)

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...


@functools.lru_cache(maxsize=None)
def find() -> Optional[Library]:
    """The library, or None where this process has none."""
    everything = ctypes.CDLL(None)
    if not hasattr(everything, "memcuda_version"):
        return None
    try:
        return Library(everything)
    except AttributeError as error:
        raise errors.Absent(f"the libmemcuda.so of this process is older than this package: {error}") from None


def need() -> Library:
    """The library; without one `Absent` says what to do."""
    library = find()
    if library is None:
        raise errors.Absent("libmemcuda.so is not in this process; start it with `memcuda run -- python ...`, "
                            'or eval "$(memcuda env)" first')
    return library


def call(function: str, *arguments: Any) -> None:
    """Calls a function that returns a result; any but OK is raised."""
    library = need()
    result = getattr(library, function)(*arguments)
    if result:
        message = library.message().decode(errors="replace")
        raise errors.of(result, message, library.cuda_result() if result == errors.CudaError.code else 0)


def wait_for(seconds: float, once: "Callable[[float], Result]", late: Any) -> "Result":
    """Calls `once` with a part of this time, again and again while it raises `late`,
    and has waited before. Between two calls Python does what signals ask for, as
    Ctrl-C."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        left = end - began
        try:
            return once(min(max(left, 0), MOMENT))
        except late:
            if left <= MOMENT or time.monotonic() - began < MOMENT / 2:
                raise


def text(name: object) -> bytes:
    """A name as the C API takes it. What else is wrong with one the library says."""
    if not isinstance(name, str):
        raise TypeError(f"a name is a str, not {type(name).__name__}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise errors.Invalid(f"the name {name[:60]!r} has a character that names do not have")
    return encoded


def options(*, flags: int = 0, nbytes: Optional[int] = None, shape: Any = None,
            dtype: Optional[str] = None, device: Optional[int] = None, wait: Optional[float] = None) -> Options:
    """`memcuda_options` with what is not None. `wait` is in seconds, and for a name
    that is not there yet, too."""
    chosen = Options(size=ctypes.sizeof(Options), flags=flags, device=CURRENT, wait_us=5_000_000)
    if nbytes is not None:
        chosen.bytes = natural(nbytes, "nbytes")
    if device is not None:
        chosen.device = natural(device, "device", 2**31)
    if dtype is not None:
        chosen.dtype = dtype.encode()
    if shape is not None:
        each = extents(shape)
        chosen.rank = len(each)
        chosen.shape = (c_uint64 * max(len(each), 1))(*each)
    if wait is not None:
        chosen.wait_us = microseconds(duration(wait, "wait"))
        chosen.flags |= AWAIT
    return chosen


def natural(value: Any, what: str, end: int = 2**64) -> int:
    """An integer that fits, instead of one that ctypes would cut."""
    try:
        number: int = value.__index__()
    except AttributeError:
        raise TypeError(f"{what} is an integer, not {type(value).__name__}") from None
    if not 0 <= number < end:
        raise errors.Invalid(f"{what} is {number}; accepted: 0 to {end - 1}")
    return number


def extents(shape: Any, end: int = 2**64) -> "tuple[int, ...]":
    """A shape: one extent, or several."""
    if not hasattr(shape, "__index__") and not hasattr(shape, "__iter__"):
        raise TypeError(f"a shape is an integer or several, not {type(shape).__name__}")
    try:
        # First: an array of numpy's may be either.
        several = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    except TypeError:
        several = (shape,)
    return tuple(natural(extent, "an extent of the shape", end) for extent in several)


def duration(seconds: Any, what: str) -> float:
    """Seconds as a number of them; None is for ever."""
    if seconds is None:
        return math.inf
    if not hasattr(seconds, "__float__") and not hasattr(seconds, "__index__"):
        raise TypeError(f"{what} is a number of seconds, not {type(seconds).__name__}")
    try:
        number = float(seconds)
    except OverflowError:
        number = math.inf if seconds > 0 else -math.inf
    if not number >= 0:
        raise errors.Invalid(f"{what} is {seconds} s; accepted: 0 and more, or None for ever")
    return number


def microseconds(seconds: float) -> int:
    """Seconds as the C API counts."""
    return FOREVER if seconds == math.inf else min(int(seconds * 1e6), FOREVER - 1)
