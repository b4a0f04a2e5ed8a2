"""Every dtype of JAX: through layouts bit for bit, and through every reduction as the numpy interpreter says.

All reductions of a dtype are compiled as one program, since compiling is nearly all of the time.
"""

from __future__ import annotations

import contextlib
from itertools import product

import jax
import ml_dtypes
import numpy as np
import pytest

import lamina
from lamina.planning.simulate import collect, combine, positions, scatter
from lamina.sharding import ReduceOp
from lamina.sharding.layout import Layout
from tests.engine.oracles import KINDS, assert_holds, compiled, held_by, holding, laid, mesh_of, on_both_kinds
from tests.strategies import OPS, WIDE_DTYPES, numpy_dtype

SUM, AVG, MIN, MAX, PROD = ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PROD

INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOAT8 = tuple(f"float8_{kind}" for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))
FLOATS = (*FLOAT8, "float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
EVERY = ("bool", *INTEGERS, *FLOATS, *COMPLEX)
every_dtype = pytest.mark.parametrize("dtype", EVERY)

SHAPE = (6, 5)
AXES = {"x": 2, "y": 3}


@pytest.fixture(autouse=True)
def wide_dtypes_need_x64(request):
    """64-bit dtypes are tested as users get them: with JAX's x64 mode on."""
    dtype = request.node.callspec.params.get("dtype") if hasattr(request.node, "callspec") else None
    with jax.enable_x64(True) if dtype in WIDE_DTYPES else contextlib.nullcontext():
        yield


def any_values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values all over the dtype: small and large, both signs; for floats, none that overflows when six are summed."""
    kind, random = numpy_dtype(dtype), np.random.default_rng(sum(map(ord, dtype)))
    if kind.name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        limits = ml_dtypes.iinfo(kind)
        return random.integers(
            int(limits.min), int(limits.max), shape, "int64" if limits.min else "uint64", True
        ).astype(kind)
    largest = 1.5 if dtype == "float8_e3m4" else 4  # its largest number is 15.5
    real = random.uniform(-largest, largest, shape)
    return (real + 1j * random.uniform(-4, 4, shape) if dtype in COMPLEX else real).astype(kind)


def ordered_ops(dtype: str) -> list[ReduceOp]:
    """The ops that the dtype has: complex numbers have no order."""
    return [op for op in OPS if not (op in (MAX, MIN) and dtype in COMPLEX)]


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def assert_close(found: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    """Exact for what is exact; for floats to a few roundings, since devices may add in any order."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if dtype == "bool" or dtype in INTEGERS:
        np.testing.assert_array_equal(found, expected)
    else:
        wide = "complex128" if dtype in COMPLEX else "float64"
        slack = 16 * float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
        np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=slack, atol=slack * 4)


# -- layouts ----------------------------------------------------------------------------------------------------------


@every_dtype
@on_both_kinds
def test_shard_reshard_gather_are_bit_exact(dtype, kind):
    mesh, value = mesh_of(AXES, kind), any_values(SHAPE, dtype)
    x = lamina.shard(value, mesh, ["x", "y"])
    assert x.dtype == value.dtype
    routes = [[("y", "x"), None], [None, ("x", "y")], ["y", None], [None, None]]
    results = compiled(lambda x: [lamina.shard(x, mesh, spec) for spec in routes])(x)
    for spec, y in zip(routes, results, strict=True):
        assert bits(y.numpy()) == bits(value), spec
        assert_holds(y, scatter(value, y.layout))
    assert bits(lamina.all_gather(x).numpy()) == bits(value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "complex64", "float64"])
@on_both_kinds
def test_special_values_keep_their_bits(dtype, kind):
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, 1.5]).astype(numpy_dtype(dtype))
    mesh = mesh_of(AXES, kind)
    x = lamina.shard(special, mesh, [("y", "x")])
    assert bits(lamina.shard(x, mesh, ["x"]).numpy()) == bits(special)
    assert bits(lamina.distributed_broadcast(x).numpy()) == bits(special)


@pytest.mark.parametrize(("given", "stored"), [("float64", "float32"), ("int64", "int32"), ("complex128", "complex64")])
def test_without_x64_host_data_gets_jax_own_dtypes(given, stored):
    assert lamina.shard(np.ones(4, given), mesh_of({"x": 2}), ["x"]).dtype == stored
    assert lamina.tensor(np.ones(4, given)).dtype == stored


@every_dtype
@on_both_kinds
def test_replicated_to_partial_and_back_keeps_the_value(dtype, kind):
    ops = ordered_ops(dtype)
    mesh, value = mesh_of(AXES, kind), any_values(SHAPE, dtype)
    pieces = [lamina.shard(value, mesh, ["x"], partial={"y": op}) for op in ops]  # made of host data
    whole = lamina.shard(value, mesh, ["x"])
    again, unreduced = compiled(
        lambda pieces, x: (
            [lamina.shard(p, mesh, ["x"]) for p in pieces],
            [lamina.shard(x, mesh, ["x"], partial={"y": op}) for op in ops],  # made on the devices
        )
    )(pieces, whole)
    for op, by_host, by_devices, back in zip(ops, pieces, unreduced, again, strict=True):
        expected = scatter(value, Layout(AXES, ["x", ()], {"y": op}))
        assert_holds(by_host, expected)
        assert_holds(by_devices, expected)
        if op is AVG:  # (v + v + v) / 3 need not be v
            assert_close(back.numpy(), value, dtype)
        else:
            np.testing.assert_array_equal(back.numpy(), value, strict=True)


@pytest.mark.parametrize("dtype", [*FLOAT8, "float16"])
@on_both_kinds
def test_the_average_of_large_short_floats_does_not_overflow(dtype, kind):
    """`shard` keeps the value, so it must not be lost on the way because the sum of its copies is too large.

    Four copies of 20,000 are too many for a float16, of 120 for a float8_e4m3fn: values that people do have.
    """
    largest = np.array([ml_dtypes.finfo(numpy_dtype(dtype)).max, 1]).astype(numpy_dtype(dtype))
    mesh = mesh_of({"x": 4}, kind)
    found = lamina.shard(lamina.shard(largest, mesh, [None], partial={"x": "avg"}), mesh, [None])
    np.testing.assert_array_equal(found.numpy(), largest)


# -- reductions -------------------------------------------------------------------------------------------------------


@every_dtype
@on_both_kinds
def test_every_reduction_of_any_pieces(dtype, kind):
    """All-reduce, and reduce-scatter into an even and an uneven dim, of every op that the dtype has."""
    ops = ordered_ops(dtype)
    mesh, pieces = mesh_of({"x": 6}, kind), any_values((6, *SHAPE), dtype)
    given = [lamina.from_shards(list(pieces), lamina.NamedMapping(mesh, unreduced={"x": op})) for op in ops]
    reduced, even, uneven = compiled(
        lambda xs: (
            [lamina.all_reduce(x) for x in xs],
            [lamina.reduce_scatter(x, 0) for x in xs],
            [lamina.reduce_scatter(x, 1) for x in xs],
        )
    )(given)
    for results in (reduced, even, uneven):
        for op, found in zip(ops, results, strict=True):
            assert_close(found.numpy(), combine(list(pieces), op), dtype)
    for found in reduced:
        assert len({bits(np.asarray(shard)) for shard in found.shards}) == 1


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8", "float32"])
@pytest.mark.parametrize("ops", list(product(OPS, OPS)), ids=lambda ops: "-".join(ops))
def test_two_partial_axes_are_reduced_from_the_last_to_the_first(dtype, ops):
    """Whatever the target keeps: the average of integers has a floor, so that even AVG and AVG don't commute."""
    source = Layout({"x": 2, "y": 3}, [(), ()], dict(zip("xy", ops, strict=True)))
    pieces = any_values((6, 6, 6), dtype)
    blocks = dict(zip(positions(source), pieces, strict=True))
    value = collect(blocks, source, (6, 6), pieces.dtype)
    targets = [
        source.replace(partial=()),
        source.replace(partial=source.partial[:1]),
        source.replace(partial=source.partial[1:]),
        source.replace([("y", "x"), ()], ()),
        source.replace(["x", ()], source.partial[1:]),
        source.replace([(), "y"], source.partial[:1]),
    ]
    for kind in KINDS:
        mesh = mesh_of(source.sizes, kind)
        found = compiled(lambda x, mesh=mesh: [laid(x, mesh, target) for target in targets])(
            holding(blocks, mesh, source)
        )
        for target, y in zip(targets, found, strict=True):
            assert y.layout == target
            try:
                assert_close(y.numpy(), value, dtype)
            except AssertionError as error:
                raise AssertionError(f"{kind}: {source} -> {target}\n{error}") from None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "float8_e5m2"])
@on_both_kinds
def test_nan_wins_every_reduction(dtype, kind):
    columns = [[1, np.nan, 2, 0.5], [2, 5, 3, 1], [np.nan, 1, 4, 2], [-np.nan, 1, 1, 1]]
    mesh, pieces = mesh_of({"x": 4}, kind), np.array(columns).T.astype(numpy_dtype(dtype))
    given = [lamina.from_shards(list(pieces), lamina.NamedMapping(mesh, unreduced={"x": op})) for op in OPS]
    whole, parts = compiled(lambda xs: ([lamina.all_reduce(x) for x in xs], [lamina.reduce_scatter(x, 0) for x in xs]))(
        given
    )
    found = {
        op: [np.isnan(x.numpy().astype("float32")).tolist() for x in xs]
        for op, *xs in zip(OPS, whole, parts, strict=True)
    }
    assert found == {op: [[True, False, True, True]] * 2 for op in OPS}


@pytest.mark.parametrize("dtype", INTEGERS)
@on_both_kinds
def test_the_average_of_extreme_integers_does_not_overflow(dtype, kind):
    limits = ml_dtypes.iinfo(numpy_dtype(dtype))
    low, high = int(limits.min), int(limits.max)
    columns = [[high] * 3, [low] * 3, [high, high, high - 1], [low, low, low + 1], [low, high, high], [low, low, high]]
    # By way of Python's own integers: numpy would make floats of a list with both signs of 64 bits.
    pieces = [np.array(piece, object).astype(numpy_dtype(dtype)) for piece in zip(*columns, strict=True)]
    x = lamina.from_shards(pieces, lamina.NamedMapping(mesh_of({"x": 3}, kind), unreduced={"x": "avg"}))
    expected = [sum(column) // 3 for column in columns]
    assert [int(v) for v in lamina.all_reduce(x).numpy()] == expected
    assert [int(v) for v in lamina.reduce_scatter(x, 0).numpy()] == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
@on_both_kinds
def test_integer_sums_and_products_wrap(dtype, kind):
    high = np.iinfo(dtype).max
    pieces = [np.array([high, 3], dtype), np.array([high, high], dtype)]
    for op in (SUM, PROD):
        x = lamina.from_shards(pieces, lamina.NamedMapping(mesh_of({"x": 2}, kind), unreduced={"x": op}))
        assert lamina.all_reduce(x).tolist() == combine(pieces, op).tolist()


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("op", [MAX, MIN])
def test_complex_numbers_have_no_order(dtype, op):
    value, fact = np.ones(4, dtype), rf"{op} of {dtype} isn't defined: complex numbers have no order"
    for kind in KINDS:
        mesh = mesh_of({"x": 2}, kind)
        with pytest.raises(lamina.LayoutError, match=fact):
            lamina.shard(value, mesh, [None], partial={"x": op})
        x = lamina.shard(value, mesh, ["x"])
        with pytest.raises(lamina.LayoutError, match=fact):
            lamina.shard(x, mesh, [None], partial={"x": op})
        with pytest.raises(lamina.LayoutError, match=fact):
            lamina.all_reduce(x, reduce_op=op)
        pieces = lamina.from_shards([value, value], lamina.NamedMapping(mesh, unreduced={"x": op}))
        with pytest.raises(lamina.LayoutError, match=fact):
            lamina.all_reduce(pieces)
        assert x.numpy().tolist() == value.tolist()  # a failed call leaves its input usable


@every_dtype
def test_ppermute_and_all_to_all_keep_the_bits(dtype):
    mesh, value = mesh_of({"x": 2, "y": 3}), any_values((6, 6), dtype)
    x = lamina.shard(value, mesh, ["x", "y"])
    moved_x, transposed = compiled(lambda x: (lamina.ppermute(x, [(0, 3)]), lamina.all_to_all(x, 0, 1)))(x)
    assert bits(held_by(moved_x)[1, 0]) == bits(value[:3, :2])
    assert bits(held_by(moved_x)[0, 0]) == bits(np.zeros((3, 2), value.dtype))
    assert bits(transposed.numpy()) == bits(value)
