"""Names and sizes of dtypes, against numpy's and ml_dtypes' own."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from lamina.sharding.dtypes import _BITS, dtype_name, is_complex, itemsize

NAMES = sorted(_BITS)


def as_numpy(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_name_a_dtype(name):
    dtype = as_numpy(name)
    assert dtype_name(name) == dtype_name(dtype) == dtype_name(dtype.type) == name
    assert dtype_name(np.zeros((), dtype)) == name


@pytest.mark.parametrize("name", NAMES)
def test_itemsize_is_numpys_but_for_packed_types(name):
    bits = int("".join(filter(str.isdigit, name))[:1]) if name in ("int2", "uint2", "int4", "uint4") else None
    packed = bits or (4 if name == "float4_e2m1fn" else None)
    assert itemsize(name) == (packed / 8 if packed else as_numpy(name).itemsize)


@pytest.mark.parametrize("name", NAMES)
def test_is_complex(name):
    assert is_complex(name) == (as_numpy(name).kind == "c")


@pytest.mark.parametrize(
    "short, name",
    [
        ("f32", "float32"),
        ("bf16", "bfloat16"),
        ("f16", "float16"),
        ("f64", "float64"),
        ("i8", "int8"),
        ("s32", "int32"),
        ("u4", "uint4"),
        ("c64", "complex64"),
        (bool, "bool"),
        (int, "int32"),
        (float, "float32"),
        (complex, "complex64"),
    ],
)
def test_short_names_and_pythons_types(short, name):
    assert dtype_name(short) == name


@pytest.mark.parametrize("bad", ["nope", "", "float33", object, None, 3, str, np.dtype("U3"), np.dtype(object)])
def test_anything_else_is_a_type_error_that_shows_it(bad):
    with pytest.raises(TypeError) as caught:
        dtype_name(bad)
    assert str(caught.value) == f"{bad!r} is not a dtype that Lamina knows"


def test_sizes_are_exact():
    assert math.isclose(itemsize("int4") * 8, 4) and itemsize("complex128") == 16 and itemsize("bool") == 1
