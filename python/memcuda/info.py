"""What is known of a name."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from . import _library, dtypes


@dataclass(frozen=True)
class Info:
    """What is known of a name. Sizes are bytes, times are seconds."""

    name: str
    """Its name."""
    generation: str
    """32 hexadecimal digits: other ones each time that the name is made."""
    device: int
    """Ordinal of its device in this process, -1 where it is not visible."""
    device_uuid: str
    """The driver's UUID of the device, `GPU-...`."""
    dtype: Optional[str]
    """Type of an element, None where nobody said."""
    shape: "Optional[tuple[int, ...]]"
    """Extents, outermost first; None where nobody said."""
    nbytes: int
    """Bytes that its maker asked for."""
    mapped_bytes: int
    """Bytes of device memory that it takes."""
    state: str
    """`creating`, `ready`, `sealed` (its bytes are final) or `dying` (deleted)."""
    version: int
    """The newest version that was published, 0 for none."""
    persist: bool
    """Does it outlive its holders?"""
    persist_until: Optional[float]
    """Until this second of the Unix epoch; None without an end, or where it does
    not outlive them."""
    created: float
    """Second of the Unix epoch."""
    references: int
    """How often it is held, in all processes (`list`, `show`)."""
    holders: int
    """Processes that hold it, counted up to 16 (`list`, `show`)."""
    maker_pid: int
    """The process that made it."""
    maker_uid: int
    """That process's user."""
    read_only: bool
    """Of an opening: is it for reading only?"""
    made: bool
    """Of an opening: did it make the memory?"""
    cuda_ipc: bool
    """Is it the driver's own allocation, that ends with its maker?"""
    address: int
    """Of an opening: device address in this process, else 0."""

    @classmethod
    def of(cls, info: _library.Info) -> "Info":
        """From the C structure."""
        uuid = bytes(info.device_uuid).hex()
        groups = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
        until = info.persist_until_s
        dtype = info.dtype.decode() or None
        # Without extents it is a single element, if it is as large as one.
        said = info.rank or (dtype in dtypes.ALL and info.bytes * 8 == dtypes.ALL[dtype].bits)
        return cls(
            name=info.name.decode(),
            generation=bytes(info.generation).hex(),
            device=info.device,
            device_uuid="GPU-" + "-".join(groups),
            dtype=dtype,
            shape=tuple(info.shape[:min(info.rank, _library.MOST_RANK)]) if said else None,
            nbytes=info.bytes,
            mapped_bytes=info.mapped,
            state=_library.STATES[info.state] if info.state < len(_library.STATES) else f"state {info.state}",
            version=info.version,
            persist=until != 0,
            persist_until=float(until) if 0 < until < _library.FOREVER else None,
            created=info.created_us / 1e6,
            references=info.references,
            holders=info.holders,
            maker_pid=info.maker_pid,
            maker_uid=info.maker_uid,
            read_only=bool(info.flags & _library.READ_ONLY),
            made=bool(info.flags & _library.MADE),
            cuda_ipc=bool(info.flags & _library.CUDA_IPC),
            address=info.address,
        )
