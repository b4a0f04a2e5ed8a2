"""To another mesh: the value arrives, each byte is sent once, and nobody is sent what it has."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import LayoutError
from lamina.planning import homes_between, plan_across
from lamina.planning.schedule import schedule
from lamina.planning.simulate import collect, run, scatter
from lamina.planning.steps import Transfer
from lamina.sharding import CPU, DeviceMesh
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp
from lamina.sharding.text import parse_layout
from tests.strategies import any_blocks, layouts, mesh_axes, shapes

SUM = ReduceOp.SUM


@st.composite
def crossings(draw):
    """Two layouts on two meshes that share some, all or none of their devices, and a shape."""
    rank = draw(st.integers(0, 3))
    source, target = (draw(layouts(draw(mesh_axes(8)), rank)) for _ in range(2))
    here = draw(st.permutations(range(source.num_devices)))
    homes = [home if draw(st.booleans()) else None for home in here][: target.num_devices]
    homes += [None] * (target.num_devices - len(homes))
    return source, target, draw(shapes(rank)), tuple(homes)


@given(crossings())
def test_the_value_arrives(crossing):
    source, target, shape, homes = crossing
    found = plan_across(source, target, shape, homes)
    assert found.layouts[0] == source and found.layouts[-1] == target
    blocks = any_blocks(source, shape)
    value = collect(blocks, source, shape, "float64")
    after = run(found, blocks)
    np.testing.assert_array_equal(collect(after, target, shape, "float64"), value)
    if not target.partial:
        wanted = scatter(value, target)
        assert all(np.array_equal(after[where], wanted[where]) for where in wanted)


@given(crossings())
def test_nobody_is_sent_what_it_has_and_everybody_what_it_lacks(crossing):
    source, target, shape, homes = crossing
    source, target = source.replace(partial=()), target.replace(partial=())
    step = Transfer(target.axes, target.dims, homes)
    turns = schedule(source, target, shape, homes)
    assert step.received(source, shape) * len(homes) == turns.elements_received
    for turn in turns.rounds:
        senders, receivers = [m.sender for m in turn], [m.receiver for m in turn]
        assert len(set(senders)) == len(senders) and len(set(receivers)) == len(receivers)
        assert all(homes[m.receiver] != m.sender for m in turn)


@given(crossings())
def test_no_route_is_below_the_bound(crossing):
    source, target, shape, homes = crossing
    found = plan_across(source, target, shape, homes)
    assert found.ratio >= 1 - 1e-9, f"{found}"
    assert found.bytes_received.max >= found.lower_bound.max * (1 - 1e-9)


@given(crossings())
def test_without_pieces_every_byte_is_received_once(crossing):
    source, target, shape, homes = crossing
    source, target = source.replace(partial=()), target.replace(partial=())
    found = plan_across(source, target, shape, homes)
    assert found.bytes_received.mean == pytest.approx(found.lower_bound.mean), f"{found}"


@given(crossings())
def test_the_way_back(crossing):
    source, target, shape, homes = crossing
    source, target = source.replace(partial=()), target.replace(partial=())
    back = plan_across(source, target, shape, homes).transpose()
    assert (back.source, back.target) == (target, source)
    value = np.arange(prod(shape), dtype=float).reshape(shape)
    after = run(back, scatter(value, target))
    wanted = scatter(value, source)
    assert all(np.array_equal(after[where], wanted[where]) for where in wanted)


@pytest.mark.parametrize(
    ("source", "target", "steps"),
    [
        ("[a=4] a,-", "[b=2] -,b", ["transfer to [b=2] -,b"]),
        ("[a=4] a,-", "[b=4] -,-", ["transfer to [b=4] b,-", "all-gather dim 0 over b"]),
        ("[a=4] -,-", "[b=2,c=2] b,-", ["transfer to [b=2,c=2] (b,c),-", "all-gather dim 0 over c"]),
        ("[a=4] -,- +sum(a)", "[b=2] b,-", ["reduce-scatter sum over a into dim 0", "transfer to [b=2] b,-"]),
        ("[a=4] a,-", "[b=2] -,- +sum(b)", ["transfer to [b=2] b,-", "exchange to -,- +sum(b)"]),
    ],
)
def test_between_disjoint_meshes_each_byte_is_sent_once(source, target, steps):
    """Copies are made inside the destination; pieces are reduced where they are."""
    here, there = parse_layout(source), parse_layout(target)
    found = plan_across(here, there, (8, 8), (None,) * there.num_devices, itemsize=1)
    assert [str(step) for step in found.steps] == steps
    crossing = next(step for step in found.steps if isinstance(step, Transfer))
    before = found.layouts[found.steps.index(crossing)]
    assert crossing.received(before, (8, 8)) * there.num_devices == 64


def test_what_is_sent_is_balanced_over_the_holders():
    copies, rows = Layout({"a": 4}, [()]), Layout({"b": 4}, [("b",)])
    turns = schedule(copies, rows, (8,), (None,) * 4)
    assert sorted(message.sender for turn in turns.rounds for message in turn) == [0, 1, 2, 3]


def test_pieces_do_not_travel():
    with pytest.raises(LayoutError, match=r"pieces can't be transferred: \[a=2\] - \+sum\(a\) has to be reduced first"):
        Transfer((("b", 2),), ((),), (None, None)).after(Layout({"a": 2}, [()], {"a": SUM}))


@pytest.mark.parametrize(
    ("here", "there", "homes"),
    [
        (DeviceMesh([CPU(0), CPU(1)], (2,), ("a",)), DeviceMesh([CPU(1), CPU(2)], (2,), ("a",)), (1, None)),
        (DeviceMesh([CPU(0), CPU(1)], (2,), ("a",)), DeviceMesh([CPU(1), CPU(0)], (2,), ("a",)), (1, 0)),
        (DeviceMesh.abstract((4,), ("a",)), DeviceMesh.abstract((2, 2), ("b", "c")), (0, 1, 2, 3)),
        (DeviceMesh.simulated((2,), ("a",)), DeviceMesh.simulated((3,), ("b",)), (0, 1, None)),
    ],
)
def test_homes(here, there, homes):
    assert homes_between(here, there) == homes
