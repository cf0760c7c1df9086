"""Named memory as an object that other libraries take without copying."""
from __future__ import annotations

import math
import weakref
from ctypes import byref, c_uint64
from typing import Any, Optional, Sequence, Union

from . import _dlpack, _library, dtypes
from ._library import call
from .errors import CudaError, Invalid, NotFound, Timeout, Unavailable
from .info import Info


class Tensor:
    """One opening of a name: device memory that every process with the same name
    shares.

    Other libraries take it without copying, by DLPack (`torch.from_dlpack(t)`,
    `cupy.from_dlpack(t)`, `jax.dlpack.from_dlpack(t)`) or by the CUDA array
    interface (`torch.as_tensor(t)`, `cupy.asarray(t)`,
    `numba.cuda.as_cuda_array(t)`). bf16 and f8 go by DLPack only.

    What DLPack handed out holds the memory by itself, also after `close()`. What
    the array interface handed out keeps this object alive, and is of no use once
    it is closed.

    The memory is not ordered by itself: who reads what another process, or
    another stream, has written waits for a version of it (`publish`, `wait`).
    """

    __slots__ = ("_handle", "_finalizer", "_info", "_dtype", "_shape", "_made", "_for_reader", "__weakref__")

    def __init__(self, handle: int):
        """Takes the handle of the C API over. See `create`, `open` and `find`."""
        _library.need()
        self._handle = _library.natural(handle, "a handle")
        self._finalizer = weakref.finalize(self, _dlpack.let_go, self._handle)
        # When a process ends, so do its openings. Until then others may use them.
        self._finalizer.atexit = False
        self._info = self.info()
        self._dtype = self._info.dtype
        shape = self._info.shape
        if shape is None:
            bits = dtypes.ALL[self._dtype].bits if self._dtype else 8
            shape = (self._info.nbytes * 8 // bits,)
        self._shape = shape
        self._made = self._info.made
        self._for_reader = False

    @property
    def name(self) -> str:
        """Its name."""
        return self._info.name

    @property
    def dtype(self) -> Optional[str]:
        """Type of an element (`f32`, `bf16`, ...), None where nobody said: then it
        is handed out as bytes (`u8`); see `view`."""
        return self._dtype

    @property
    def shape(self) -> "tuple[int, ...]":
        """Extents, outermost first; row-major, without gaps. Where nobody said, one
        extent for all."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self._shape) * self._element.bits // 8

    @property
    def device(self) -> int:
        """Ordinal of its device in this process."""
        return self._info.device

    @property
    def read_only(self) -> bool:
        """Opened for reading: a write through it faults, and ends the context."""
        return self._info.read_only

    @property
    def made(self) -> bool:
        """Did this opening make the memory, so that it is yours to fill? Of `find`: did
        the allocation?"""
        return self._made

    @property
    def generation(self) -> str:
        """32 hexadecimal digits: other ones each time that the name is made."""
        return self._info.generation

    @property
    def address(self) -> int:
        """Device address (CUdeviceptr) in this process."""
        self._open()
        return self._info.address

    def data_ptr(self) -> int:
        """The address, by torch's name for it."""
        return self.address

    @property
    def version(self) -> int:
        """The newest version that was published, 0 for none. The keeper is asked once, where the
        versions are; where it does not answer, this is the newest that is known here."""
        seen = c_uint64()
        try:
            call("wait", self._open(), 0, 0, byref(seen))
        except (NotFound, Timeout, Unavailable):
            return self.info().version
        return seen.value

    @property
    def closed(self) -> bool:
        """Was it closed?"""
        return self._handle == 0

    def info(self) -> Info:
        """What was known of it when it was opened, whether this process has sealed it
        since, and the newest version that is known here. Asks nobody: `version` asks for
        the newest one, `show` for the rest."""
        info = _library.Info.new()
        call("describe", self._open(), byref(info))
        return Info.of(info)

    def view(self, dtype: Any, shape: "Union[int, Sequence[int], None]" = None) -> "Tensor":
        """The same memory as other elements: a tensor of its own, to be closed by
        itself. Without a shape, one extent with as many as there is room for."""
        element = dtypes.of(dtype)
        room = self._info.nbytes
        extents = (room * 8 // element.bits,) if shape is None else _library.extents(shape, 2**63)
        needed = math.prod(extents) * element.bits // 8
        if not 0 < needed <= room:
            raise Invalid(f"{self.name}: {element.name} {extents} takes {needed} bytes; accepted: 1 to {room}")
        return self._same(element.name, extents)

    def for_reader(self) -> "Tensor":
        """The same for a library that never writes, but does not know DLPack 1.0 and
        its mark of read-only memory, as JAX and torch before 2.9:
        `jax.dlpack.from_dlpack(t.for_reader())`.
        It is your word that it does not write; a write faults all the same."""
        other = self._same(self._dtype, self._shape)
        other._for_reader = True
        return other

    def seal(self) -> None:
        """Its bytes are final: shows it to others where it was hidden, and refuses
        openings for writing from now on. Wait for your own work before."""
        call("seal", self._open())

    def publish(self, version: int = 0, *, stream: Any = None) -> Optional[int]:
        """Publishes a version, which is returned: a number above those published
        before, or 0 for the next one. Without a stream it takes effect at once, so
        wait for your own work before; on a stream it takes effect behind the work
        before it there, and until then publishing without a stream is `Invalid`. So
        is a stream that captures: each replay would write the same number. A stream
        is a number (0: the default one) or an object of torch, CuPy or numba."""
        published = c_uint64()
        version = _library.natural(version, "the version")
        if stream is None:
            call("publish", self._open(), version, byref(published))
        else:
            call("publish_on", self._open(), version, _stream(stream), byref(published))
        return published.value

    def wait(self, version: int, timeout: Optional[float] = None, *, stream: Any = None) -> Optional[int]:
        """Waits until this version or a later one is published, on the host for at
        most `timeout` seconds (None: for ever), and returns the newest one. With a
        stream its later work waits instead, without an end, and None is returned
        at once."""
        version = _library.natural(version, "the version")
        if stream is not None:
            if timeout is not None:
                raise Invalid("a stream waits without an end; accepted: a timeout or a stream")
            call("wait_on", self._open(), version, _stream(stream))
            return None
        seen, longest = c_uint64(), _library.duration(timeout, "timeout")

        def once(seconds: float) -> None:
            call("wait", self._open(), version, _library.microseconds(seconds), byref(seen))

        try:
            _library.wait_for(longest, once, Timeout)
        except Timeout:
            raise Timeout(f"version {version} of {self.name} did not come in {longest:g} s; "
                          f"the newest is {seen.value}") from None
        return seen.value

    def close(self) -> None:
        """Ends this opening; a second time does nothing. With the last one of the
        process its address ends, once the work of the context is done. Where that
        cannot be waited for now (beside a capture, on a full device) it is a
        `CudaError`, and the tensor is as it was."""
        handle, self._handle = self._handle, 0
        if handle and self._finalizer.alive:
            _dlpack.sweep()
            try:
                call("close", handle)
            except CudaError:
                self._handle = handle
                raise
            self._finalizer.detach()

    def __enter__(self) -> "Tensor":
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> "Tensor":
        """The same memory, an opening of its own."""
        other = self._same(self._dtype, self._shape)
        other._for_reader = self._for_reader
        return other

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Also for copy.deepcopy: its handle would be another opening's, or nobody's, elsewhere.
        raise TypeError(f"{self.name}: an opening cannot be pickled, nor its bytes copied by deepcopy; "
                        "pass its name and open that there, or copy what another library makes of it")

    def __repr__(self) -> str:
        what = "closed" if self.closed else f"cuda:{self.device}{', read-only' if self.read_only else ''}"
        return f"<memcuda.Tensor {self.name}: {self._element.name} {self._shape}, {what}>"

    @property
    def __cuda_array_interface__(self) -> "dict[str, Any]":
        """Version 3 of the CUDA array interface. It has no stream: see `wait`."""
        element = self._element
        if element.typestr is None:
            # No AttributeError: whoever asks with hasattr is to see why.
            raise TypeError(f"{self.name}: the CUDA array interface has no word for {element.name}; "
                            "use DLPack instead, as torch.from_dlpack(tensor)")
        return dict(shape=self._shape, typestr=element.typestr, data=(self.address, self.read_only), strides=None,
                    stream=None, version=3)

    def __dlpack_device__(self) -> "tuple[int, int]":
        """kDLCUDA and the ordinal."""
        return _dlpack.CUDA, self.device

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: "Optional[tuple[int, int]]" = None,
                   dl_device: "Optional[tuple[int, int]]" = None, copy: Optional[bool] = None) -> object:
        """A capsule, of the versioned kind where the consumer says that it knows
        versions. It holds the memory by itself. The stream is not made to wait:
        nothing says which work it would have to wait for; see `wait`."""
        if stream == 0:
            raise ValueError("stream 0 is ambiguous in DLPack; accepted: None, -1, 1, 2, or a stream's address")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"{self.name} is on {self.__dlpack_device__()}, and {tuple(dl_device)} would need a copy")
        if copy:
            raise BufferError(f"{self.name}: a copy would not be the named memory any more; copy what you get without it")
        if max_version is not None and max_version[0] < 1:
            max_version = None
        if max_version is None and self.read_only and not self._for_reader:
            raise BufferError(f"{self.name} is opened for reading, which a consumer without DLPack 1.0 cannot know; "
                              "for one that never writes pass tensor.for_reader(), or open it for writing")
        version = None if max_version is None else min((max_version[0], max_version[1]), _dlpack.NEWEST)
        return _dlpack.export(self._another(), self.address, self.device, self._element, self._shape, self.read_only,
                              version)

    @property
    def _element(self) -> dtypes.Dtype:
        return dtypes.ALL[self._dtype or "u8"]

    def _open(self) -> int:
        if not self._handle:
            raise Invalid(f"{self._info.name} is closed")
        return self._handle

    def _same(self, dtype: Optional[str], shape: "tuple[int, ...]") -> "Tensor":
        other = Tensor(self._another())
        other._dtype, other._shape, other._made = dtype, shape, self._made
        return other

    def _another(self) -> int:
        """Another handle of the same opening, to be closed by itself."""
        other = c_uint64()
        call("find", self.address, byref(other))
        return other.value


def _stream(stream: Any) -> int:
    """The address of a stream: a number, or what libraries wrap one in."""
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "ptr", "handle"):              # torch, CuPy, numba
        stream = getattr(stream, attribute, stream)
    stream = getattr(stream, "value", stream)
    return _library.natural(0 if stream is None else stream, "a stream")
