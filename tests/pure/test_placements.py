"""Placements and reduce ops: values that refuse what can't be."""

from __future__ import annotations

import copy
import math
import pickle
from itertools import chain, product

import pytest

from lamina.errors import LayoutError
from lamina.sharding import Partial, Placement, ReduceOp, Replicated, Sharded


def average(values):
    """AVG of integers is the floor of the mean, axis by axis."""
    return sum(values) // len(values) if all(type(value) is int for value in values) else sum(values) / len(values)


COMPUTE = {
    ReduceOp.SUM: sum,
    ReduceOp.AVG: average,
    ReduceOp.MIN: min,
    ReduceOp.MAX: max,
    ReduceOp.PROD: math.prod,
}


def test_reduce_op_is_a_str():
    assert [*ReduceOp] == ["sum", "avg", "min", "max", "prod"]
    assert ReduceOp("max") is ReduceOp.MAX == "max"
    assert f"{ReduceOp.SUM}" == "sum"
    assert pickle.loads(pickle.dumps(ReduceOp.AVG)) is ReduceOp.AVG


@pytest.mark.parametrize("op", ReduceOp)
@pytest.mark.parametrize("other", ReduceOp)
def test_commutes_with_is_true_to_arithmetic(op, other):
    """Over two axes of a 2×2 square, of floats and of integers: does it matter which is reduced first?"""
    squares = chain(product([-2.0, 0.0, 1.0, 3.0], repeat=4), product([-2, 0, 1, 3], repeat=4))
    same = all(
        math.isclose(
            COMPUTE[op]([COMPUTE[other](row) for row in ((a, b), (c, d))]),
            COMPUTE[other]([COMPUTE[op](column) for column in ((a, c), (b, d))]),
        )
        for a, b, c, d in squares
    )
    assert op.commutes_with(other) == same


def test_is_linear():
    assert [op for op in ReduceOp if op.is_linear] == [ReduceOp.SUM, ReduceOp.AVG]


def test_placements_are_values():
    assert Replicated() == Replicated() != Sharded(0) != Sharded(1) != Partial()
    assert Partial() == Partial(ReduceOp.SUM) == Partial("sum") == Partial("SUM") == Partial(reduce_op="sum")
    assert Partial("max") != Partial("min")
    assert len({Replicated(), Replicated(), Sharded(0), Sharded(0), Sharded(-1), Partial(), Partial("avg")}) == 5
    assert [*map(repr, (Replicated(), Sharded(-1), Partial(), Partial("max")))] == [
        "Replicated()",
        "Sharded(-1)",
        "Partial(SUM)",
        "Partial(MAX)",
    ]
    assert all(isinstance(p, Placement) for p in (Replicated(), Sharded(0), Partial()))


def test_they_match_by_position():
    match Sharded(3), Partial("max"):
        case Sharded(axis), Partial(op):
            assert (axis, op) == (3, ReduceOp.MAX)


@pytest.mark.parametrize("placement", [Replicated(), Sharded(2), Partial("prod")], ids=repr)
def test_frozen_and_pickled(placement):
    for twin in (pickle.loads(pickle.dumps(placement)), copy.deepcopy(placement)):
        assert twin == placement and hash(twin) == hash(placement)
    with pytest.raises((AttributeError, TypeError)):
        placement.axis = 1
    with pytest.raises((AttributeError, TypeError)):
        placement.reduce_op = ReduceOp.SUM


@pytest.mark.parametrize("bad", ["a", True, 1.0, None, (0,)])
def test_the_axis_of_sharded_is_an_integer(bad):
    with pytest.raises(LayoutError) as caught:
        Sharded(bad)
    assert str(caught.value) == f"Sharded({bad!r}): the axis must be an integer"


def test_any_integer_type_will_do():
    numpy = pytest.importorskip("numpy")
    assert Sharded(numpy.int64(1)) == Sharded(1)
    assert type(Sharded(numpy.int64(1)).axis) is int


@pytest.mark.parametrize("bad", ["bogus", "", None, 3, True, "sum,max"])
def test_the_op_of_partial_is_one_of_five(bad):
    with pytest.raises(LayoutError) as caught:
        Partial(bad)
    assert str(caught.value) == f"Partial({bad!r}): the reduce op must be one of sum, avg, min, max, prod"
