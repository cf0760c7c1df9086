"""Types of elements: the names of the C API, and what the CUDA array interface
and DLPack call them."""
from __future__ import annotations

from typing import NamedTuple, Optional

from .errors import Invalid


class Dtype(NamedTuple):
    """A type of elements. `bits` are those of one element; `typestr` is None
    where the array interface has no word for it."""

    name: str
    bits: int
    typestr: Optional[str]
    dlpack_code: int


# DLPack's codes: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool,
# 10 float8_e4m3fn, 12 float8_e5m2.
ALL = {
    dtype.name: dtype
    for dtype in (
        Dtype("f64", 64, "<f8", 2),
        Dtype("f32", 32, "<f4", 2),
        Dtype("f16", 16, "<f2", 2),
        Dtype("bf16", 16, None, 4),
        Dtype("f8e4m3", 8, None, 10),
        Dtype("f8e5m2", 8, None, 12),
        Dtype("i64", 64, "<i8", 0),
        Dtype("i32", 32, "<i4", 0),
        Dtype("i16", 16, "<i2", 0),
        Dtype("i8", 8, "|i1", 0),
        Dtype("u64", 64, "<u8", 1),
        Dtype("u32", 32, "<u4", 1),
        Dtype("u16", 16, "<u2", 1),
        Dtype("u8", 8, "|u1", 1),
        Dtype("bool", 8, "|b1", 6),
        Dtype("c64", 64, "<c8", 5),
        Dtype("c128", 128, "<c16", 5),
    )
}

# As numpy, torch and JAX write them.
_OTHERS = {
    "float64": "f64", "double": "f64", "float32": "f32", "float": "f32", "float16": "f16", "half": "f16",
    "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "int64": "i64", "long": "i64", "int32": "i32", "int": "i32", "int16": "i16", "short": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
    "bool_": "bool", "complex64": "c64", "complex128": "c128",
}

# Python's own types, as numpy takes them: other ones than those words of C.
_BUILTINS = {float: "f64", int: "i64", bool: "bool", complex: "c128"}


def of(dtype: object) -> Dtype:
    """The type that is meant: one of our names (`f32`), or what numpy, torch or
    JAX have for it (`torch.float32`, `numpy.dtype("float32")`, `"float32"`), or a
    type of Python's (`float` is `f64`)."""
    if isinstance(dtype, type) and dtype in _BUILTINS:
        return ALL[_BUILTINS[dtype]]
    if getattr(dtype, "isnative", True) is False:      # numpy's; its name is the same
        raise Invalid(f"the dtype {str(dtype)[:40]!r} has its bytes in another order than the device")
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    text = str(text)
    if text.startswith("torch."):
        text = text[len("torch."):]
    found = ALL.get(_OTHERS.get(text, text))
    if found is None:
        raise Invalid(f"the dtype {text[:40]!r} is not known; accepted: {' '.join(ALL)}")
    return found
