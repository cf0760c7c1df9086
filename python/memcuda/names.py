"""Names: make one, open one, see which there are."""
from __future__ import annotations

import builtins
from ctypes import byref, c_uint64
from typing import Any, Optional, Sequence

from . import _library, dtypes
from ._library import call
from .errors import InProgress, Invalid, NotFound, Unavailable
from .info import Info
from .tensor import Tensor


def present() -> bool:
    """Is libmemcuda.so in this process? Without it this package can be imported,
    and every other call raises `Absent`, but for `library_path()` and `command()`."""
    return _library.find() is not None


def create(name: str, shape: Optional[Sequence[int]] = None, dtype: Any = None, *, nbytes: Optional[int] = None,
           device: Optional[int] = None, zeroed: bool = False, hidden: bool = False, persist: bool = False,
           cuda_ipc: bool = False) -> Tensor:
    """Makes memory of a new name; `Exists` where there is one.

    Say `shape` and `dtype`, or `nbytes` for memory that is only bytes. `device`
    is an ordinal; without one it is the device of the current context, else 0.
    `zeroed`: filled with zeros before anybody sees it. `hidden`: others find it
    from `seal()` on. `persist`: it outlives its holders, until it is deleted.
    `cuda_ipc`: the driver's own allocation, which programs without the library
    can open; it ends with this process."""
    return _new("create", name, shape, dtype, nbytes, device, zeroed, hidden, persist, cuda_ipc)


def open(name: str, shape: Optional[Sequence[int]] = None, dtype: Any = None, *, nbytes: Optional[int] = None,
         device: Optional[int] = None, read_only: bool = False, wait: Optional[float] = None) -> Tensor:
    """Opens memory of a name that is there; `NotFound` where there is none.

    What is said of shape, dtype, bytes and device must be so, else `Mismatch`.
    `read_only`: a write through it faults. `wait`: so many seconds for a name that
    is not there yet, then `NotFound`, or a keeper, then `Unavailable`, or that another
    process is making, then `InProgress`; without it 5 seconds for the last alone.
    Opened again in a process, in the same context and with the same `read_only`, it has
    the same address, and costs less than a microsecond in the library."""
    flags = _library.READ_ONLY if read_only else 0
    return _opening("open", name, _options(flags, shape, dtype, nbytes, device, wait), wait)


def create_or_open(name: str, shape: Optional[Sequence[int]] = None, dtype: Any = None, *,
                   nbytes: Optional[int] = None, device: Optional[int] = None, read_only: bool = False,
                   zeroed: bool = False, hidden: bool = False, persist: bool = False, cuda_ipc: bool = False,
                   wait: Optional[float] = None) -> Tensor:
    """Whichever of the two, see both; `made` of the tensor says which. `read_only`
    is for one that is there: who makes it writes."""
    return _new("create_or_open", name, shape, dtype, nbytes, device, zeroed, hidden, persist, cuda_ipc,
                read_only, wait)


def find(memory: Any) -> Tensor:
    """The name of memory that this process holds: of an address, or of anything
    with `data_ptr()` or the CUDA array interface. For memory that has its name by a
    rule or by `name_next`, and for what `create` and `open` gave."""
    if hasattr(memory, "data_ptr"):
        address = memory.data_ptr()
    elif hasattr(memory, "__cuda_array_interface__"):
        address = memory.__cuda_array_interface__["data"][0]
    else:
        address = memory
    handle = c_uint64()
    call("find", _library.natural(address, "an address"), byref(handle))
    return Tensor(handle.value)


def name_next(name: Optional[str], mode: str = "create-or-attach", *, shape: Optional[Sequence[int]] = None,
              dtype: Any = None, read_only: bool = False, zeroed: bool = False, hidden: bool = False,
              persist: bool = False, cuda_ipc: bool = False, unnamed_on_mismatch: bool = False,
              wait: Optional[float] = None) -> None:
    """Gives the next allocation of this thread (cudaMalloc and its kin) this name;
    None takes that back. `mode` is `create`, `attach` or `create-or-attach`; the rest
    as in `create` and `open`. (`find` has what is to be sealed.)

    Not in torch's native profile, where an allocation is a segment that torch
    lends on: `create` or `open` there."""
    if name is None:
        return call("name_next", None, 0, None)
    if mode not in _library.MODES:
        raise Invalid(f"the mode {mode!r} is not known; accepted: {', '.join(_library.MODES)}")
    flags = _flags(zeroed, hidden, persist, cuda_ipc, read_only) | \
        (unnamed_on_mismatch and _library.UNNAMED_ON_MISMATCH)
    options = _options(flags, shape, dtype, None, None, wait)
    return call("name_next", _library.text(name), _library.MODES[mode], byref(options))


def list() -> "builtins.list[Info]":
    """All names that can be opened, in their order."""
    found: "builtins.list[Info]" = []
    failed: "builtins.list[BaseException]" = []

    def each(info: Any, _: Any) -> int:
        try:
            found.append(Info.of(info.contents))
            return 0
        except BaseException as error:      # raised where it can be caught
            failed.append(error)
            return 1

    call("list", _library.Each(each), None)
    if failed:
        raise failed[0]
    return found


def show(name: str) -> Info:
    """What is known of a name, without opening it."""
    info = _library.Info.new()
    call("show", _library.text(name), byref(info))
    return Info.of(info)


def persist(name: str, seconds: Optional[float] = None) -> None:
    """Lets a name outlive its holders: for so many seconds from now, None until it
    is deleted, 0 not any more."""
    time = _library.duration(seconds, "seconds")
    if time == float("inf"):
        return call("persist", _library.text(name), _library.FOREVER)
    # Whole seconds, and never 0 for a little time.
    whole = int(-(-time // 1))
    return call("persist", _library.text(name), min(whole, _library.FOREVER - 1))


def delete(name: str) -> None:
    """Hides a name at once; its memory goes with the last holder."""
    call("delete", _library.text(name))


def _new(function: str, name: str, shape: Any, dtype: Any, nbytes: Any, device: Any, zeroed: bool, hidden: bool,
         persist: bool, cuda_ipc: bool, read_only: bool = False, wait: Optional[float] = None) -> Tensor:
    flags = _flags(zeroed, hidden, persist, cuda_ipc, read_only)
    return _opening(function, name, _options(flags, shape, dtype, nbytes, device, wait), wait)


def _flags(zeroed: bool, hidden: bool, persist: bool, cuda_ipc: bool, read_only: bool) -> int:
    return (zeroed and _library.ZEROED) | (hidden and _library.HIDDEN) | (persist and _library.PERSIST) | \
        (cuda_ipc and _library.CUDA_IPC) | (read_only and _library.READ_ONLY)


def _options(flags: int, shape: Any, dtype: Any, nbytes: Any, device: Any, wait: Any) -> _library.Options:
    element = None if dtype is None else dtypes.of(dtype).name
    extents = None if shape is None else _library.extents(shape)
    if extents == () and element and nbytes is None:
        # The C API takes no extents for "not said".
        nbytes = dtypes.ALL[element].bits // 8
    return _library.options(flags=int(flags), nbytes=nbytes, shape=extents, dtype=element, device=device, wait=wait)


def _opening(function: str, name: str, options: _library.Options, wait: Optional[float]) -> Tensor:
    handle = c_uint64()

    def once(seconds: float) -> None:
        options.wait_us = _library.microseconds(seconds)
        call(function, _library.text(name), byref(options), byref(handle))

    if wait is None:
        call(function, _library.text(name), byref(options), byref(handle))
    else:
        _library.wait_for(_library.duration(wait, "wait"), once, (InProgress, NotFound, Unavailable))
    return Tensor(handle.value)
