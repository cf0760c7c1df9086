"""Named GPU memory: the same name is the same memory in every process of the host.

    import memcuda, torch

    # One process makes it, ...
    weights = memcuda.create("model/weights", (4096, 4096), torch.bfloat16, hidden=True, persist=True)
    torch.from_dlpack(weights).copy_(loaded)
    torch.cuda.synchronize()
    weights.seal()

    # ... any other one has it, without a copy.
    weights = torch.from_dlpack(memcuda.open("model/weights", read_only=True, wait=600))

Torch before 2.9 does not know memory that is only read: there pass
`memcuda.open(...).for_reader()`.

It is pure Python over the C API of libmemcuda.so (`memcuda.h`), which has to be in
the process from its start: `memcuda run -- python ...`. Without it this package can
be imported, `present()` is False, and every other call raises `Absent`, but for
`library_path()` and `command()`, which say where it is to be found.

Sizes are bytes, times are seconds. Failures are exceptions, all of them `Error`s.
"""
from .errors import (Absent, CudaError, Denied, Error, Exists, InProgress, InternalError, Invalid, Mismatch, NotFound,
                     ProtocolMismatch, QuotaExceeded, Sealed, Timeout, Unavailable)
from .info import Info
from .installed import command, library_path
from .names import create, create_or_open, delete, find, list, name_next, open, persist, present, show
from .tensor import Tensor

__all__ = [
    "Absent", "CudaError", "Denied", "Error", "Exists", "InProgress", "Info", "InternalError", "Invalid", "Mismatch",
    "NotFound", "ProtocolMismatch", "QuotaExceeded", "Sealed", "Tensor", "Timeout", "Unavailable", "command",
    "create", "create_or_open", "delete", "find", "library_path", "list", "name_next", "open", "persist", "present",
    "show",
]
__version__ = "0.1.0"
