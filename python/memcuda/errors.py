"""What can go wrong, one exception for each result of the C API.

All derive from `Error`; where Python has an exception of the same meaning they
derive from that, too, so `except LookupError` and the like work as expected.
"""
from __future__ import annotations


class Error(Exception):
    """A call of the library failed. `code` is the C API's number of the reason
    (`memcuda.h`); the numbers are stable."""

    code = 0


class Invalid(Error, ValueError):
    """An argument is not accepted, or a tensor is closed already."""

    code = 1


class NotFound(Error, LookupError):
    """There is no such name, or no right to know of it."""

    code = 2


class Exists(Error):
    """`create`: there is one already."""

    code = 3


class Mismatch(Error, ValueError):
    """The name holds memory of another size, dtype, shape or device."""

    code = 4


class InProgress(Error):
    """Another process was still making it when the time to wait was over."""

    code = 5


class Denied(Error, PermissionError):
    """This user may not do this."""

    code = 6


class QuotaExceeded(Error):
    """More than this user may have."""

    code = 7


class Sealed(Error):
    """The memory is for reading only."""

    code = 8


class ProtocolMismatch(Error):
    """Library and keeper are too far apart in age."""

    code = 9


class Unavailable(Error, ConnectionError):
    """No keeper: there is none, it is off, or it does not answer."""

    code = 10


class Timeout(Error, TimeoutError):
    """It did not happen within the time that was said."""

    code = 11


class CudaError(Error):
    """A call of the driver failed. `result` is its CUresult."""

    code = 12
    result = 0


class InternalError(Error):
    """A fault of the library, which said so in its log."""

    code = 13


class Absent(Error, RuntimeError):
    """libmemcuda.so is not in this process, is an older one than needed, or is nowhere to be found."""

    code = 14


BY_CODE = {kind.code: kind for kind in Error.__subclasses__()}


def of(code: int, message: str, cuda_result: int = 0) -> Error:
    """The exception for a result of the C API, whose number may be a newer one."""
    error = BY_CODE.get(code, Error)(message or f"the library answers {code}")
    error.code = code
    if isinstance(error, CudaError):
        error.result = cuda_result
    return error
