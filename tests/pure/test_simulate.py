"""The numpy interpreter is what everything else is compared with, so it is held against numbers written by hand."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning.simulate import collect, combine, identity, scatter
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp
from tests.strategies import (
    DTYPES,
    NARROW_DTYPES,
    OPS,
    WIDE_DTYPES,
    any_blocks,
    layout_pairs,
    numpy_dtype,
    ops_for,
    values,
)

SUM, AVG, MIN, MAX, PROD = ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PROD
ALL_DTYPES = (*DTYPES, *WIDE_DTYPES, *NARROW_DTYPES)
GRID = {"x": 2, "y": 2}


def lists(blocks):
    return {where: block.tolist() for where, block in blocks.items()}


# -- scatter ----------------------------------------------------------------------------------------------------------


def test_uneven_nested_blocks_are_one_grid_with_the_larger_first():
    assert lists(scatter(range(10), Layout(GRID, [("x", "y")]))) == {
        (0, 0): [0, 1, 2],
        (0, 1): [3, 4, 5],
        (1, 0): [6, 7],
        (1, 1): [8, 9],
    }


def test_the_first_axis_of_a_dim_is_the_major_one():
    assert lists(scatter(range(4), Layout(GRID, [("y", "x")]))) == {(0, 0): [0], (0, 1): [2], (1, 0): [1], (1, 1): [3]}


def test_more_devices_than_rows_leave_some_empty():
    assert lists(scatter([7, 8], Layout({"x": 3}, [("x",)]))) == {(0,): [7], (1,): [8], (2,): []}


def test_axes_that_split_nothing_hold_copies():
    assert lists(scatter([1, 2], Layout(GRID, [("y",)]))) == {(0, 0): [1], (0, 1): [2], (1, 0): [1], (1, 1): [2]}


@pytest.mark.parametrize(("op", "others"), [(SUM, 0), (PROD, 1), (MAX, -np.inf), (MIN, np.inf), (AVG, 5.0)])
def test_the_first_device_of_a_partial_axis_keeps_the_value(op, others):
    assert lists(scatter([5.0], Layout({"x": 3}, [()], {"x": op}))) == {(0,): [5.0], (1,): [others], (2,): [others]}


def test_of_two_partial_axes_the_last_decides_whose_identity_it_is():
    blocks = scatter([5.0], Layout(GRID, [()], {"x": MAX, "y": SUM}))
    assert lists(blocks) == {(0, 0): [5.0], (0, 1): [0.0], (1, 0): [-np.inf], (1, 1): [0.0]}


def test_blocks_are_arrays_of_their_own():
    value = np.zeros(2)
    scatter(value, Layout({"x": 2}, [()]))[0,][0] = 1
    assert value.tolist() == [0, 0]


# -- collect ----------------------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(ALL_DTYPES))
def test_collect_reads_what_scatter_laid_out(data, dtype):
    layout, _, shape = data.draw(layout_pairs(ops=ops_for(dtype)))
    value = values(shape, dtype)
    found = collect(scatter(value, layout), layout, shape, value.dtype)
    np.testing.assert_array_equal(found, value, strict=True)


@pytest.mark.parametrize(
    ("ops", "value"),
    [
        ({"x": SUM, "y": MAX}, 2 + 4),
        ({"x": MAX, "y": SUM}, max(1 + 2, 3 + 4)),
        ({"x": MIN, "y": PROD}, min(1 * 2, 3 * 4)),
        ({"x": AVG, "y": MAX}, (2 + 4) / 2),
        ({"x": SUM, "y": SUM}, 1 + 2 + 3 + 4),
    ],
)
def test_partial_axes_are_reduced_from_the_last_to_the_first(ops, value):
    blocks = {(0, 0): np.array(1.0), (0, 1): np.array(2.0), (1, 0): np.array(3.0), (1, 1): np.array(4.0)}
    assert collect(blocks, Layout(GRID, [], ops), (), float) == value


def test_the_floor_of_an_integer_average_falls_once_per_axis():
    blocks = {(0, 0): np.array(3), (0, 1): np.array(0), (1, 0): np.array(1), (1, 1): np.array(0)}
    assert collect(blocks, Layout(GRID, [], {"x": AVG, "y": AVG}), (), int) == (3 // 2 + 1 // 2) // 2 == 0
    assert collect(blocks, Layout({"y": 2, "x": 2}, [], {"x": AVG, "y": AVG}), (), int) == 0
    crosswise = {(y, x): block for (x, y), block in blocks.items()}
    assert collect(crosswise, Layout(GRID, [], {"x": AVG, "y": AVG}), (), int) == ((3 + 1) // 2 + 0) // 2 == 1


def test_devices_that_disagree_are_found():
    layout = Layout(GRID, [("x",)])
    blocks = scatter([1, 2], layout)
    blocks[1, 1] = np.array([3])
    with pytest.raises(
        AssertionError, match=r"\(1, 0\) and \(1, 1\) hold one block of \[x=2,y=2\] x, but different values"
    ):
        collect(blocks, layout, (2,), int)


def test_nan_agrees_with_nan():
    layout = Layout({"x": 2}, [()])
    assert np.isnan(collect(scatter([np.nan], layout), layout, (1,), float)).all()


@pytest.mark.parametrize(
    ("block", "fact"),
    [
        (np.zeros(2), r"\(1,\) holds float64\(2,\), but its block of \[x=2\] x is float64\(1,\)"),
        (np.zeros(1, int), r"\(1,\) holds int64\(1,\), but its block"),
    ],
)
def test_a_block_of_the_wrong_shape_or_dtype_is_found(block, fact):
    layout = Layout({"x": 2}, [("x",)])
    with pytest.raises(AssertionError, match=fact):
        collect(scatter(np.zeros(3), layout) | {(1,): block}, layout, (3,), float)


# -- reductions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "dtype", "pieces", "result"),
    [
        (SUM, "int8", [100, 100], -56),
        (SUM, "uint8", [200, 100], 44),
        (PROD, "int8", [16, 16], 0),
        (AVG, "int8", [127, 127], 127),
        (AVG, "int8", [-3, -4], -4),
        (AVG, "int32", [1, 0, 0], 0),
        (AVG, "int64", [2**63 - 1, 2**63 - 3], 2**63 - 2),
        (AVG, "uint64", [2**64 - 1, 2**64 - 1], 2**64 - 1),
        (AVG, "int4", [7, 6], 6),
        (AVG, "float32", [1, 2], 1.5),
        (AVG, "bfloat16", [1, 2], 1.5),
        (AVG, "complex64", [1 + 2j, 3 + 4j], 2 + 3j),
        (SUM, "complex64", [1 + 2j, 3 + 4j], 4 + 6j),
        (PROD, "complex64", [1j, 1j], -1),
        (MAX, "float8_e4m3fn", [-2, -1], -1),
        (MAX, "uint4", [3, 15], 15),
        (MIN, "int4", [3, -8], -8),
        (SUM, "bool", [True, True], True),
        (SUM, "bool", [False, True], True),
        (PROD, "bool", [False, True], False),
        (AVG, "bool", [False, True], False),
        (AVG, "bool", [True, True], True),
        (MAX, "bool", [False, True], True),
        (MIN, "bool", [False, True], False),
    ],
)
def test_combine(op, dtype, pieces, result):
    dtype = numpy_dtype(dtype)
    found = combine([np.array(piece).astype(dtype) for piece in pieces], op)
    np.testing.assert_array_equal(found, np.array(result).astype(dtype), strict=True)


@pytest.mark.filterwarnings("ignore:invalid value")  # ml_dtypes warns, numpy doesn't
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("op", OPS)
def test_nan_wins_every_reduction(op, dtype):
    pieces = np.array([[1.0], [np.nan], [3.0]]).astype(numpy_dtype(dtype))
    assert np.isnan(combine(list(pieces), op)).all()


@pytest.mark.parametrize(("dtype", "op"), [(t, op) for t in ALL_DTYPES for op in ops_for(t) if op is not AVG])
def test_the_identity_changes_nothing(dtype, op):
    value = values((5,), dtype)
    nothing = np.full_like(value, identity(op, value.dtype))
    np.testing.assert_array_equal(combine([nothing, value], op), value, strict=True)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("bool", False, True),
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int4", -8, 7),
        ("float16", -np.inf, np.inf),
        ("bfloat16", -np.inf, np.inf),
        ("float8_e5m2", -np.inf, np.inf),
        ("float8_e4m3fn", -448, 448),  # it has no infinity
    ],
)
def test_the_identities_of_max_and_min(dtype, low, high):
    assert identity(MAX, numpy_dtype(dtype)) == low
    assert identity(MIN, numpy_dtype(dtype)) == high


@pytest.mark.parametrize("op", [MAX, MIN])
@pytest.mark.parametrize("call", [lambda op: combine([np.array(1j)], op), lambda op: identity(op, complex)])
def test_complex_numbers_have_no_order(op, call):
    with pytest.raises(ValueError, match=f"{op} of complex128: complex numbers have no order"):
        call(op)


def test_the_average_has_no_identity():
    with pytest.raises(ValueError, match="avg has no identity: all devices keep the value"):
        identity(AVG, float)


# -- what the tests draw from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_values_show_a_misplaced_row(dtype):
    value = values((12, 9), dtype)
    assert value.dtype == getattr(ml_dtypes, dtype, dtype)
    for axis in (0, 1):
        rows = {bytes(row.tobytes()) for row in np.moveaxis(value, axis, 0)}
        assert len(rows) == value.shape[axis]


def test_any_blocks_have_no_two_pieces_alike_and_copies_where_there_are_no_pieces():
    blocks = any_blocks(Layout({"x": 2, "y": 2, "z": 2}, [("z",)], {"x": MAX}), (4,))
    assert len({block.tobytes() for block in blocks.values()}) == 4
    assert all((blocks[x, 0, z] == blocks[x, 1, z]).all() for x in (0, 1) for z in (0, 1))
