"""What can be wrong with an op that moves elements."""

from __future__ import annotations

import jax
import numpy as np

import lamina
from lamina import TransformError
from tests.errors.catalogue import Mistake, check, table


@table(
    Mistake(
        "a shape of another size",
        lambda w: w.rows.reshape(5, 5),
        where="reshape: ",
        says="a tensor of shape (8, 8) has 64 elements, and (5, 5) 25",
        shows="operand 0: [8, 8] lying as [dp=2,tp=4] dp,-",
        fix="the two must be equal; one dim may be -1, for what is left",
    ),
    Mistake(
        "a shape that leaves no whole number",
        lambda w: lamina.reshape(w.rows, (-1, 5)),
        where="reshape(shape=(-1, 5)): ",
        says="64 elements can't be cut into parts of 5",
        shows="shape: (8, 8)",
        fix="the other sizes must divide the number of elements",
    ),
    Mistake(
        "two unknown sizes",
        lambda w: w.rows.reshape(-1, -1),
        where="reshape(shape=(-1, -1)): ",
        says="(-1, -1) is no shape",
        fix="sizes are at least 0, and at most one is -1",
    ),
    Mistake(
        "too few dims in a transpose",
        lambda w: lamina.transpose(w.rows, (1,)),
        where="transpose(axes=(1,)): ",
        says="1 dims are named for a tensor of rank 2",
        fix="name each dim once",
    ),
    Mistake(
        "squeezing a dim that has entries",
        lambda w: lamina.squeeze(w.rows, 0),
        where="squeeze(axis=0): ",
        says="dim 0 has 8 entries, and only dims of 1 can go",
        fix="index it, x[..., 0], or reduce it",
    ),
    Mistake(
        "a shape that it doesn't broadcast to",
        lambda w: lamina.broadcast_to(w.rows, (8, 4)),
        where="broadcast_to: ",
        says="a tensor of shape (8, 8) doesn't broadcast to (8, 4)",
        fix="dims, counted from the last, must be equal or 1",
    ),
    Mistake(
        "stacking different shapes",
        lambda w: lamina.stack([w.rows, w.rows[1:]]),
        where="stack: ",
        says="shapes (8, 8) and (7, 8) can't be stacked",
        fix="they must be equal",
    ),
    Mistake(
        "joining different shapes",
        lambda w: lamina.concatenate([w.rows, w.rows[:, 1:]], 0),
        where="concatenate(axis=0): ",
        says="shapes (8, 8) and (8, 7) can't be joined along dim 0",
        fix="the other dims must be equal",
    ),
    Mistake(
        "joining one Tensor",
        lambda w: lamina.concatenate(w.rows),
        says="concatenate(arrays) takes several tensors, not a Tensor",
        fix="give it a list of tensors",
    ),
    Mistake(
        "parts that aren't equal",
        lambda w: lamina.split(w.rows, 3),
        where="split(indices_or_sections=3, axis=0): ",
        says="8 entries can't be cut into 3 equal parts",
        fix="use array_split, or name the indices",
    ),
    Mistake(
        "padding by less than nothing",
        lambda w: lamina.pad(w.rows, -1),
        where="pad(pad_width=-1): ",
        says="widths must be integers, none below 0",
        fix="cut with a slice instead",
    ),
    Mistake(
        "a mode of padding that isn't there",
        lambda w: lamina.pad(w.rows, 1, mode="mean"),
        where="pad(pad_width=1): ",
        says="mode='mean' isn't there",
        fix="use one of 'constant', 'edge', 'wrap', 'symmetric', 'reflect'",
    ),
)
def test_shapes(mistake: Mistake) -> None:
    check(mistake)


@table(
    Mistake(
        "a number out of range",
        lambda w: w.rows[1, 8],
        where="x[1, 8]: ",
        says="index 8 is out of range for dim 1, which has 8 entries",
        shows="shape: (8, 8)",
        fix="use numbers from -8 to 7",
    ),
    Mistake(
        "numbers out of range",
        lambda w: lamina.take(w.rows, [1, -9], 0),
        where="take(axis=0): ",
        says="index -9 is out of range for dim 0, which has 8 entries",
        fix="use numbers from -8 to 7",
    ),
    Mistake(
        "too many dims",
        lambda w: w.even[0, 0],
        where="x[0, 0]: ",
        says="2 dims are indexed, and there are 1",
        fix="index each dim at most once, with at most one '...'",
    ),
    Mistake(
        "two dots",
        lambda w: w.rows[..., ...],
        where="x[..., ...]: ",
        says="there are 2 dots",
        fix="index each dim at most once, with at most one '...'",
    ),
    Mistake(
        "a float for an index",
        lambda w: w.rows[np.array([0.5])],
        error=TypeError,
        says="indices must be integers, not float64: array([0.5])",
        fix=None,
    ),
    Mistake(
        "a bool for an index",
        lambda w: w.rows[True],
        error=TypeError,
        says="True can't index a Tensor; None makes a new dim",
        fix=None,
    ),
    Mistake(
        "a float array for an index, of no dims",
        lambda w: w.rows[np.array(0.5)],
        error=TypeError,
        says="indices must be integers",
        fix=None,
    ),
    Mistake(
        "a mask of another size",
        lambda w: w.even[np.array([True, False])],
        where="x[ndarray of shape (2,)]: ",
        says="a mask of 2 entries for dim 0, which has 8",
        shows="shape: (8,)",
        fix="give it an entry for each of the dim",
    ),
    Mistake(
        "a mask inside jax.jit",
        lambda w: jax.jit(lambda x: x[x > 0])(w.rows),
        error=TransformError,
        where="x[Tensor of shape (8, 8)]: ",
        says="inside jax.jit a mask of bools can't index: how much it selects is the result's shape",
        fix="use lamina.where(mask, x, 0), or index outside of jax.jit",
    ),
    Mistake(
        "nonzero inside jax.jit",
        lambda w: jax.jit(lamina.nonzero)(w.rows),
        error=TransformError,
        says="inside jax.jit there is no nonzero(x): how many there are is the result's shape",
        fix="use lamina.where(x != 0, ...), or call it outside of jax.jit",
    ),
    Mistake(
        "an update larger than the tensor",
        lambda w: lamina.dynamic_update_slice(w.rows, np.zeros((9, 8), "float32"), (0, 0)),
        where="dynamic_update_slice: ",
        says="an update of shape (9, 8) at 2 starts for a tensor of shape (8, 8)",
        fix="give the update x's rank and no larger dims, and one start for each dim",
    ),
    Mistake(
        "an update of another dtype",
        lambda w: lamina.dynamic_update_slice(w.rows, np.zeros((2, 8), "int32"), (0, 0)),
        says="dynamic_update_slice: x is float32 and the update int32",
        fix="give them one dtype, with astype",
    ),
    Mistake(
        "changing what index tensors name",
        lambda w: w.rows.at[np.array([0, 1])].set(0),
        where="x.at[ndarray of shape (2,)].set(value): ",
        says="index tensors name no part that can be changed",
        shows="shape: (8, 8)",
        fix="use slices, numbers or a mask, or lamina.dynamic_update_slice",
    ),
    Mistake(
        "a value that the dtype doesn't hold",
        lambda w: lamina.tensor([1, 2]).at[0].set(0.5),
        says="x.at: x is int32, which doesn't hold a value of float32",
        fix="cast the value, or x, with astype",
    ),
    Mistake(
        "a value of another shape",
        lambda w: w.rows.at[:2].add(np.zeros((3, 8), "float32")),
        says="a tensor of shape (3, 8) doesn't broadcast to (2, 8)",
        fix="dims, counted from the last, must be equal or 1",
    ),
    Mistake(
        "a part out of range",
        lambda w: w.rows.at[8].set(0),
        says="index 8 is out of range for dim 0, which has 8 entries",
        fix="use numbers from -8 to 7",
    ),
    Mistake(
        "more than there are",
        lambda w: lamina.top_k(w.rows, 9),
        where="top_k(k=9, axis=-1): ",
        says="there are no 9 entries along dim 1",
        fix="ask for 0 to 8",
    ),
    Mistake(
        "searching in two dims",
        lambda w: lamina.searchsorted(w.rows, w.rows),
        says="searchsorted(a) of shape (8, 8) isn't 1-D",
        fix="search row by row",
    ),
)
def test_indices(mistake: Mistake) -> None:
    check(mistake)
