"""What a result must be: the value, on every device that holds a part of it, and nothing in its padding."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import lamina
from lamina.planning.simulate import scatter
from tests.engine.oracles import held_by, reduced
from tests.ops.laying import blocks_of


def assert_value(found: Any, expected: Any, tolerance: float = 2e-5, where: str = "") -> None:
    """The Tensor has jnp's shape, dtype and value, and all devices agree on it."""
    expected = jnp.asarray(expected)
    assert isinstance(found, lamina.Tensor), type(found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), where
    layout, value = found.layout, np.asarray(expected)
    plain = layout.replace(partial=())
    blocks = reduced(held_by(found), layout, layout.partial)
    for place, block in scatter(value, plain).items():
        close(blocks[place], block, tolerance, f"{where} → {layout}, at {place}")
    assert_padding_is_zero(found, where)


def assert_pieces(found: lamina.Tensor, expected: Any, tolerance: float, where: str = "") -> None:
    """Every device holds its block of just these pieces."""
    expected = np.asarray(expected)
    blocks = held_by(found)
    for place, block in blocks_of(expected, found.layout).items():
        close(blocks[place], block, tolerance, f"{where}: {found.layout} at {place}")
    assert_padding_is_zero(found, where)


def close(found: Any, expected: Any, tolerance: float, where: str) -> None:
    """Floats to a tolerance, relative to the largest; everything else exactly."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape, where)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected, err_msg=where)
        return
    wide = "complex128" if expected.dtype.kind == "c" else "float64"
    found, expected = found.astype(wide), expected.astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    size = max(finite.max(initial=0.0), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * size, err_msg=where)


def assert_padding_is_zero(found: lamina.Tensor, where: str = "") -> None:
    held = found._held
    if held.layout.is_even(held.shape):
        return
    stored = np.array(found._array)
    for at in held.layout.positions():
        ends = zip(held.layout.block(held.shape, at), held.layout.block_index(at), strict=True)
        padded = held.layout.padded_block(held.shape)
        index = [
            slice(n * size, n * size + stop - start) for ((start, stop), n), size in zip(ends, padded, strict=True)
        ]
        stored[(*(at[axis] for axis in held.lead), *index)] = 0
    assert not stored.any(), f"padding of {held.layout} isn't zero: {where}"
