"""Names and sizes of element types, without numpy: layouts and plans speak of dtypes by name.

>>> dtype_name("bf16"), dtype_name(float), itemsize("float32")
('bfloat16', 'float32', 4.0)
"""

from __future__ import annotations

from typing import Any

_BITS = {
    "bool": 8,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)},
    **{"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex64": 64, "complex128": 128},
    **{
        f"float8_{kind}": 8
        for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    },
    "float4_e2m1fn": 4,
}
_SHORT = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
_SHORT |= {
    f"{sign}{bits}": f"{name}{bits}"
    for sign, name in (("i", "int"), ("s", "int"), ("u", "uint"))
    for bits in (2, 4, 8, 16, 32, 64)
}
_PYTHON = {bool: "bool", int: "int32", float: "float32", complex: "complex64"}


def dtype_name(dtype: Any) -> str:
    """The canonical name of whatever names a dtype: a string, numpy's or JAX's dtype objects, Python's types.

    >>> dtype_name("nope")
    Traceback (most recent call last):
    TypeError: 'nope' is not a dtype that Lamina knows
    """
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    candidate = dtype if isinstance(dtype, str) else _name_of(dtype)
    name = _SHORT.get(candidate, candidate)
    if name not in _BITS:
        raise TypeError(f"{dtype!r} is not a dtype that Lamina knows")
    return name


def _name_of(dtype: Any) -> str:
    scalar = getattr(dtype, "dtype", dtype)  # jnp.float32 is a scalar type that carries its dtype; np.float32 a class
    name = getattr(scalar, "name", None)
    return name if isinstance(name, str) else getattr(dtype, "__name__", "?")


def itemsize(dtype: Any) -> float:
    """Bytes per element; a half for the 4-bit types, which XLA packs."""
    return _BITS[dtype_name(dtype)] / 8


def is_complex(dtype: Any) -> bool:
    return dtype_name(dtype).startswith("complex")
