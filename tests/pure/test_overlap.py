"""What devices hold already, counted by dims and cells: element by element it comes to the same."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning import plan
from lamina.planning.bounds import elements_exchanged, elements_needed
from lamina.planning.overlap import ENUMERATED_CUTS, common_elements, cuts
from lamina.planning.schedule import schedule
from lamina.sharding.dims import split_offset
from lamina.sharding.layout import Layout
from tests.strategies import layouts, mesh_axes, shapes


def coordinates(layout: Layout, shape, element) -> dict[str, int]:
    """Where the holders of an element stand along the axes that split its dims."""
    found = {}
    for size, blocks, axes, i in zip(shape, layout.grid, layout.dims, element, strict=True):
        block = next(b for b in range(blocks) if split_offset(size, blocks, b) <= i < split_offset(size, blocks, b + 1))
        for axis in reversed(axes):
            block, found[axis] = divmod(block, layout.sizes[axis])
    return found


@st.composite
def questions(draw):
    axes, rank = draw(mesh_axes()), draw(st.integers(1, 3))
    source, target = (draw(layouts(axes, rank, partial=False)) for _ in range(2))
    zero = tuple(axis for axis in target.replicated_axes if draw(st.booleans()))
    outer = draw(st.none() | st.sets(st.sampled_from(list(axes))).map(frozenset))
    return source, target, draw(shapes(rank, 7)), zero, outer


@given(questions())
def test_as_many_as_an_element_by_element_count_gives(question):
    source, target, shape, zero, outer = question
    counted = frozenset(source.sizes) if outer is None else outer
    shared = set(source.sharded_axes) & counted & {*target.sharded_axes, *zero}
    expected = 0
    for element in product(*map(range, shape)):
        wanted = {**dict.fromkeys(zero, 0), **coordinates(target, shape, element)}
        held = coordinates(source, shape, element)
        expected += all(held[axis] == wanted[axis] for axis in shared)
    assert common_elements(source, target, shape, zero, outer) == pytest.approx(expected)


@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 50))
def test_cuts_are_where_the_blocks_of_both_grids_end(size, mine, theirs):
    found = list(cuts(size, mine, theirs))
    ends = {split_offset(size, blocks, i) for blocks in (mine, theirs) for i in range(blocks + 1)}
    assert [start for start, *_ in found] + [size] == sorted(ends | {size})
    for start, stop, i, j in found:
        for blocks, block in ((mine, i), (theirs, j)):
            assert split_offset(size, blocks, block) <= start < stop <= split_offset(size, blocks, block + 1)


def test_where_blocks_are_too_many_to_count_bounds_stay_below_and_steps_above():
    """A count would take as long as there are blocks; what is said in its place has to err to the safe side."""
    axes, shape = {"x": 64, "y": 64}, (4099, 4099)
    source, target = Layout(axes, [("x", "y"), ()]), Layout(axes, [(), ("y", "x")])
    assert prod(source.grid) > ENUMERATED_CUTS and common_elements(source, target, shape) is None
    small = Layout({"x": 4, "y": 4}, source.dims), Layout({"x": 4, "y": 4}, target.dims)
    assert common_elements(*small, (19, 19)) is not None
    needed, exchanged = elements_needed(source, target, shape), elements_exchanged(source, target, shape)
    wanted = 4099 * 4099 / 4096  # on the mean; of it a device can't hold more than two by two
    assert wanted - 4 <= needed < exchanged == wanted
    assert 1 <= plan(source, target, shape).ratio < 1.001


def test_what_is_counted_is_what_is_sent():
    axes, shape = {"x": 4, "y": 6}, (23, 17)
    source, target = Layout(axes, [("x",), ("y",)]), Layout(axes, [("y",), ("x",)])
    assert elements_exchanged(source, target, shape) * 24 == pytest.approx(
        schedule(source, target, shape).elements_received
    )
