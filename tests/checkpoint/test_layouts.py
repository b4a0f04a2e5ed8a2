"""A tensor saved in any layout and loaded in any other: what each device holds, beside plain numpy."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina.planning.simulate import collect, scatter
from lamina.sharding import DeviceMesh, Layout
from tests.engine.oracles import (
    KINDS,
    assert_holds,
    assert_same_blocks,
    held_by,
    holding,
    laid,
    mapping_of,
    mesh_of,
    moved,
)
from tests.strategies import (
    DTYPES,
    NARROW_DTYPES,
    Mesh,
    all_layouts,
    any_blocks,
    layout_pairs,
    layouts,
    mesh_axes,
    numpy_dtype,
    ops_for,
    shapes,
    values,
)


@contextmanager
def files_of(size):
    """Blocks as large ones are written and read: "merged" into one file, as small ones are, or one file for each."""
    with pytest.MonkeyPatch.context() as patch:
        if size == "large":
            patch.setattr("lamina.checkpoint.leaves.MERGED_BYTES", -1)
            patch.setattr("lamina.checkpoint.targets.TILE_BYTES", -1)
        yield


SIZES = st.sampled_from(["small", "large"])


def resaved(x, like, path, size="small"):
    with files_of(size):
        lamina.save(path, {"x": x})
        return lamina.load(path, {"x": like})["x"]


@given(layout_pairs(max_devices=8), st.sampled_from(KINDS), st.sampled_from(KINDS), SIZES)
def test_any_layout_to_any_other_of_the_mesh(tmp_path_factory, pair, kind, other, size):
    source, target, shape = pair
    blocks = any_blocks(source, shape, "float32")
    x = holding(blocks, mesh_of(dict(source.axes), kind), source, shape)
    mapping = mapping_of(mesh_of(dict(target.axes), other), target)
    assert_holds(
        resaved(x, mapping, tmp_path_factory.mktemp("run"), size), moved(blocks, source, target, shape), target
    )


@st.composite
def layouts_of_two_meshes(draw):
    rank = draw(st.integers(0, 3))
    source, target = (draw(layouts(draw(mesh_axes(8)), rank)) for _ in range(2))
    return source, target, draw(shapes(rank))


@given(layouts_of_two_meshes(), st.sampled_from(KINDS), SIZES)
def test_any_layout_to_another_mesh(tmp_path_factory, pair, kind, size):
    source, target, shape = pair
    blocks = any_blocks(source, shape, "float32")
    x = holding(blocks, mesh_of(dict(source.axes)), source, shape)
    y = resaved(x, mapping_of(mesh_of(dict(target.axes), kind), target), tmp_path_factory.mktemp("run"), size)
    assert y.layout == target
    value = collect(blocks, source, shape, np.dtype("float32"))
    np.testing.assert_array_equal(collect(held_by(y), target, shape, value.dtype), value)
    if source.axes == target.axes:
        assert_same_blocks(held_by(y), moved(blocks, source, target, shape))


FULL: Mesh = {"x": 2, "y": 2, "z": 2}


@pytest.mark.exhaustive(keep=16)
@pytest.mark.parametrize("source", all_layouts(FULL, 2), ids=str)
def test_every_layout_of_a_mesh_to_every_one_of_another(tmp_path, source):
    """One file set, read in all layouts of a mesh of six devices in another order: even, uneven and empty blocks."""
    mesh = DeviceMesh([lamina.CPU(i) for i in (7, 2, 5, 0, 1, 3)], (2, 3), ("a", "b"))
    everything = {str(shape): values(shape) for shape in ((24, 48), (12, 10), (5, 7), (1, 3))}
    with files_of("large"):
        lamina.save(tmp_path, {name: laid(value, mesh_of(FULL), source) for name, value in everything.items()})
        loaded = [
            (target, lamina.load(tmp_path, mapping_of(mesh, target))) for target in all_layouts({"a": 2, "b": 3}, 2)
        ]
    for target, found in loaded:
        for name, y in found.items():
            for shard, where in zip(y.shards, target.positions(), strict=True):
                box = tuple(slice(*part) for part in target.block(y.shape, where))
                np.testing.assert_array_equal(np.asarray(shard), everything[name][box], strict=True)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [*((dtype, "real") for dtype in (*DTYPES, *NARROW_DTYPES)), ("int32", "simulated"), ("bfloat16", "simulated")],
)
def test_every_dtype(tmp_path, dtype, kind):
    """Cut, padded and empty; the pieces of each reduction stay as they are, and read back as the value."""
    axes = {"x": 2, "y": 3}
    trees, expected = {}, {}
    for shape in ((), (5,), (4, 7), (0, 3)):
        for op in (None, *(ops_for(dtype) if shape in ((), (4, 7)) else ())):
            dims = [("y",), () if op else ("x",)][: len(shape)]
            layout = Layout(axes, dims, {"x": op} if op else {})
            value = values(shape, dtype, op)
            expected[f"{shape} {op}"] = value
            trees[f"{shape} {op}"] = holding(scatter(value, layout), mesh_of(axes, kind), layout, shape)
    lamina.save(tmp_path, trees)
    again, host = lamina.load(tmp_path, trees), lamina.load(tmp_path)
    for name, x in trees.items():
        assert_same_blocks(held_by(again[name]), held_by(x))
        np.testing.assert_array_equal(host[name], expected[name], strict=True)


TINY = ("int2", "uint2", "float8_e4m3", "float4_e2m1fn", "float8_e8m0fnu")
POWERS = np.resize([1.0, 0.5, 1.0, 1.0], (4, 6))  # float8_e8m0fnu has nothing else
NUMPYS = (*DTYPES, *NARROW_DTYPES, "int64", "float64", "complex128", *TINY)


@pytest.mark.parametrize("dtype", NUMPYS)
def test_every_dtype_of_host_data(tmp_path, dtype):
    """As it is, 64-bit numbers too; other byte orders and memory orders become the usual ones."""
    value = POWERS.astype(numpy_dtype(dtype)) if dtype in TINY else values((4, 6), dtype)
    given = {"a": value, "transposed": value.T, "every other": value[::2, ::-1], "one": value[1, 2], "none": value[:0]}
    if value.dtype.kind in "iufc":
        given["swapped"] = value.astype(value.dtype.newbyteorder())
    lamina.save(tmp_path, given)
    for found in (lamina.load(tmp_path), lamina.load(tmp_path, {name: value for name, value in given.items()})):
        for name, expected in given.items():
            np.testing.assert_array_equal(found[name], expected)
            assert found[name].dtype == np.dtype(value.dtype)


def test_what_jax_has_by_32_bits_is_so_on_devices(tmp_path):
    lamina.save(tmp_path, {"wide": np.array([1.5, 2.5])})
    assert lamina.load(tmp_path, {"wide": lamina.CPU(1)})["wide"].dtype == np.float32
    assert lamina.load(tmp_path)["wide"].dtype == np.float64


def test_pieces_are_reduced_for_another_op(tmp_path):
    """max over x of the pieces, then as a sum over x: the first holds the maximum, the others zeros."""
    mesh = mesh_of({"x": 2})
    pieces = [np.array([1.0, 5.0], "float32"), np.array([4.0, 2.0], "float32")]
    x = lamina.from_shards(pieces, lamina.NamedMapping(mesh, unreduced={"x": "max"}))
    y = resaved(x, lamina.NamedMapping(mesh, [None], unreduced=["x"]), tmp_path)
    assert [shard.tolist() for shard in y.shards] == [[4.0, 5.0], [0.0, 0.0]]


def test_a_leaf_is_cut_into_many_files_and_read_across_them(tmp_path, monkeypatch):
    from lamina.checkpoint import tiles

    monkeypatch.setattr("lamina.checkpoint.records.tiling", lambda *given: tiles.tiling(*given, limit=64))
    mesh, other = mesh_of({"x": 2, "y": 2}), mesh_of({"x": 3})
    value = values((37, 29))
    x = laid(value, mesh, Layout({"x": 2, "y": 2}, [("x",), ("y",)]))
    y = resaved(x, lamina.NamedMapping(other, [None, "x"]), tmp_path, "large")
    np.testing.assert_array_equal(y.numpy(), value)
    assert len(list(tmp_path.rglob("c.*"))) > 50


@given(st.data())
def test_boxes_of_any_tiling(data):
    """Every element stands where `spans` says, whatever the tiles; nothing overlaps."""
    from lamina.checkpoint.tiles import parts, tiling

    layout = data.draw(layouts(data.draw(mesh_axes(12)), 2, partial=False))
    shape = data.draw(shapes(2))
    tiles = tiling(shape, layout, 4, data.draw(st.sampled_from([1, 16, 100, 1000])))
    stored = np.full(tiles.array_shape, -1)
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    for where in layout.positions():
        box = layout.block(shape, where)
        start = tiles.place(layout.block_index(where))
        block = value[tuple(slice(*part) for part in box)]
        stored[tuple(slice(at, at + size) for at, size in zip(start, block.shape, strict=True))] = block
    assert (stored >= 0).sum() == value.size
    box = tuple(sorted(data.draw(st.tuples(*[st.integers(0, size)] * 2))) for size in shape)
    wanted = value[tuple(slice(*part) for part in box)]
    found = np.full(wanted.shape, -1)
    for there, here in parts(tiles, box):
        found[here] = stored[there]
    np.testing.assert_array_equal(found, wanted)
