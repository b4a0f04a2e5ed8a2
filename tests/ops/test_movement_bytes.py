"""What ops that move elements communicate, counted in the lowered programs: only what they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import lamina
from lamina import DeviceMesh
from tests.engine.stablehlo import received

ROWS, COLUMNS = 16, 8
ROW = 4 * COLUMNS  # bytes of a row of all columns
BLOCK = ROW * ROWS // 4  # of a device's block: 4 rows, or 2 columns

SPLIT_ROWS, SPLIT_COLUMNS = ["x"], [None, "x"]
NUMBERS = np.array([[3, 15], [0, 9]])
MANY = np.zeros((ROWS, COLUMNS), "float32")
FEW = np.zeros((2, COLUMNS), "float32")


def _permuted(rows: float) -> dict[str, float]:
    return {"collective_permute": rows * ROW}


NOTHING: dict[str, float] = {}
SILENT: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "transpose": (SPLIT_ROWS, lambda x: x.T),
    "reshape: cut a split dim": (SPLIT_ROWS, lambda x: x.reshape(4, 4, COLUMNS)),
    "reshape: join a split dim and a whole one": (SPLIT_ROWS, lambda x: x.ravel()),
    "reshape: cut the other": (SPLIT_COLUMNS, lambda x: x.reshape(2, 8, 4, 2)),
    "broadcast_to": (SPLIT_ROWS, lambda x: lamina.broadcast_to(x, (3, ROWS, COLUMNS))),
    "stack": (SPLIT_ROWS, lambda x: lamina.stack([x, x], 1)),
    "slice of the whole dim": (SPLIT_ROWS, lambda x: x[:, 2:5]),
    "slice that stays on its devices": (SPLIT_ROWS, lambda x: x[1::2]),
    "number on a split dim": (SPLIT_ROWS, lambda x: x[5]),
    "index tensor on a split dim": (SPLIT_ROWS, lambda x: lamina.take(x, NUMBERS, 0)),
    "take_along_axis": (SPLIT_ROWS, lambda x: lamina.take_along_axis(x, np.zeros((3, COLUMNS), int), 0)),
    "tril": (SPLIT_ROWS, lamina.tril),
    "flip of the whole dim": (SPLIT_ROWS, lambda x: lamina.flip(x, 1)),
    "repeat": (SPLIT_ROWS, lambda x: lamina.repeat(x, 2, 0)),
    "concatenate along the whole dim": (SPLIT_COLUMNS, lambda x: lamina.concatenate([x, x], 0)),
    "cumsum of the whole dim": (SPLIT_ROWS, lambda x: lamina.cumsum(x, 1)),
    "sort of the whole dim": (SPLIT_ROWS, lambda x: lamina.sort(x, 1)),
    "update across blocks": (SPLIT_ROWS, lambda x: lamina.dynamic_update_slice(x, FEW, (3, 0))),
    "update of the whole dim": (SPLIT_COLUMNS, lambda x: lamina.dynamic_update_slice(x, FEW, (3, 0))),
    "searchsorted": (["x"], lambda x: lamina.searchsorted(x[:, 0], np.arange(5.0, dtype="float32"))),
}
MOVING: dict[str, tuple[Any, Callable[[Any], Any], dict[str, float]]] = {
    "roll by one": (SPLIT_ROWS, lambda x: lamina.roll(x, 1, 0), _permuted(1)),
    "roll by a block": (SPLIT_ROWS, lambda x: lamina.roll(x, 4, 0), _permuted(4)),
    "flip": (SPLIT_ROWS, lambda x: lamina.flip(x, 0), _permuted(4)),
    # The last 8 rows, 2 on each: three devices receive 2.
    "half": (SPLIT_ROWS, lambda x: x[8:], _permuted(3 * 2 / 4)),
    # 15 rows as 4, 4, 4 and 3: each of the first three lacks the first row of the next.
    "all but the first": (SPLIT_ROWS, lambda x: x[1:], _permuted(3 / 4)),
    "diff": (SPLIT_ROWS, lambda x: lamina.diff(x, axis=0), _permuted(3 / 4)),
    # 18 rows as 5, 5, 4 and 4: the second and third lack the first row of the next.
    "pad": (SPLIT_ROWS, lambda x: lamina.pad(x, ((1, 1), (0, 0))), _permuted(2 / 4)),
    # 32 rows, 8 on each: two blocks each, of which the outer devices have one.
    "concatenate": (SPLIT_ROWS, lambda x: lamina.concatenate([x, x], 0), _permuted(6 * 4 / 4)),
    "split": (SPLIT_ROWS, lambda x: lamina.split(x, 2), _permuted(2 * 3 * 2 / 4)),
    "cumsum: totals": (SPLIT_ROWS, lambda x: lamina.cumsum(x, 0), {"all_gather": 3.0 * ROW}),
    "sort: to the columns": (SPLIT_ROWS, lambda x: lamina.sort(x, 0), {"all_to_all": 3 / 4 * BLOCK}),
    # Two candidates of each device, values and numbers, go to whoever has the column now.
    "top_k: candidates": (SPLIT_ROWS, lambda x: lamina.top_k(x, 2, 0), {"all_to_all": 2 * 3 / 4 * 2 * ROW}),
    "number, read": (SPLIT_ROWS, lambda x: lamina.all_reduce(x[5]), {"all_reduce": 2 * 3 / 4 * ROW}),
}


def _lowered(spec: Any, function: Callable[[Any], Any]) -> dict[str, float]:
    mesh = DeviceMesh.create((4,), ("x",))
    return received(jax.jit(function).lower(lamina.shard(MANY, mesh, spec)).as_text())


@pytest.mark.parametrize("name", SILENT)
def test_nothing_moves(name: str) -> None:
    assert _lowered(*SILENT[name]) == NOTHING


@pytest.mark.parametrize("name", MOVING)
def test_only_what_is_needed_moves(name: str) -> None:
    spec, function, expected = MOVING[name]
    assert _lowered(spec, function) == pytest.approx(expected)


def _gradient(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of a sum that isn't linear, so that something arrives at the op's end."""
    return jax.grad(lambda x: lamina.shard(lamina.sum(lamina.square(function(x))), x.mesh, []).jax())


BACK: dict[str, tuple[Callable[[Any], Any], dict[str, float]]] = {
    "roll: there and back": (lambda x: lamina.roll(x, 1, 0), _permuted(2)),
    "slice: there and back": (lambda x: x[8:], _permuted(3)),
    # The rows that were taken are reduced for the square; their cotangent is on every device, and each takes its own.
    "take": (lambda x: lamina.take(x, np.array([3, 15]), 0), {"all_reduce": 2 * 3 / 4 * 2 * ROW}),
}


@pytest.mark.parametrize("name", BACK)
def test_gradients_move_what_the_op_moved(name: str) -> None:
    function, expected = BACK[name]
    assert _lowered(SPLIT_ROWS, _gradient(function)) == pytest.approx(expected)


def test_a_reshape_of_uneven_blocks_passes_on_their_ends() -> None:
    """5 rows of 4 lie as 8, 4, 4 and 4 elements, and 20 as 5 each: the devices lack 0, 3, 2 and 1."""
    mesh = DeviceMesh.create((4,), ("x",))
    x = lamina.shard(np.arange(20, dtype="float32").reshape(5, 4), mesh, ["x"])
    assert received(jax.jit(lamina.ravel).lower(x).as_text()) == {"collective_permute": 3 * 3 * 4 / 4}
    assert str(lamina.ravel(x).layout) == "[x=4] x"


def test_a_cache_is_written_where_it_lies() -> None:
    """Keys of one token into a cache split by batch and heads: nothing moves, whichever token it is."""
    mesh = DeviceMesh.create((2, 2), ("dp", "tp"))
    cache = lamina.shard(np.zeros((4, 16, 2, 3), "float32"), mesh, ["dp", None, "tp"])
    keys = lamina.shard(np.ones((4, 1, 2, 3), "float32"), mesh, ["dp", None, "tp"])
    write = jax.jit(lambda cache, keys, token: lamina.dynamic_update_slice(cache, keys, (0, token, 0, 0)))
    assert received(write.lower(cache, keys, 7).as_text()) == NOTHING
    assert write(cache, keys, 7).layout == cache.layout
    assert write(cache, keys, 7).numpy()[:, 7].all() and write(cache, keys, 7).numpy().sum() == 24


# -- implicit communication says so -----------------------------------------------------------------------------------


def test_what_an_op_passes_on_is_reported() -> None:
    x = lamina.shard(MANY, DeviceMesh.create((4,), ("x",)), SPLIT_ROWS)
    with lamina.on_reshard("raise"):
        assert x[:, 1:].shape == (ROWS, COLUMNS - 1)
        with pytest.raises(
            lamina.ReshardError, match=r"passes entries of a split dim between devices, 32 B per device"
        ):
            lamina.roll(x, 1, 0)
