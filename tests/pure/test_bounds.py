"""The lower bound is what its docstring derives, counted element by element here; and no plan goes below it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning import Plan, plan, topology
from lamina.planning.bounds import elements_crossing, elements_exchanged, elements_needed, lower_bound
from lamina.planning.pieces import kept_pieces
from lamina.planning.schedule import schedule
from lamina.planning.steps import Exchange
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp
from lamina.sharding.text import parse_layout
from tests.strategies import all_layouts, layout_pairs, layouts, mesh_axes, shapes

SUM, AVG = ReduceOp.SUM, ReduceOp.AVG
PIECES = (SUM, AVG)


# -- counted by hand --------------------------------------------------------------------------------------------------


def places(layout: Layout) -> list[dict[str, int]]:
    names = list(layout.sizes)
    return [dict(zip(names, where, strict=True)) for where in product(*(range(layout.sizes[a]) for a in names))]


def has(layout: Layout, shape, where, element) -> bool:
    bounds = layout.block(shape, where)
    return all(start <= i < stop for i, (start, stop) in zip(element, bounds, strict=True))


def groups_that(layout: Layout, shape, element, outer: Iterable[str], keep) -> set[tuple]:
    """The groups (devices that agree on the outer axes) with a device that has the element and is kept."""
    return {tuple(w[a] for a in outer) for w in places(layout) if keep(w) and has(layout, shape, w, element)}


def needed_by_hand(source: Layout, target: Layout, shape, outer: tuple[str, ...]) -> float:
    """The messages that must arrive, element by element: the docstring's argument, word for word."""
    kept = kept_pieces(source, target)
    outer = tuple(axis for axis in outer if axis not in kept)
    resolved = [axis for axis, _ in source.partial if axis not in kept and axis in outer]
    zero = [a for a, op in target.partial if a not in kept and op is not AVG and a in outer]

    # Pieces that stay pieces are as many separate problems: look at one, all others are alike.
    def here(w: dict[str, int]) -> bool:
        return all(w[axis] == 0 for axis in kept)

    total = 0
    for element in product(*map(range, shape)):
        wanting = groups_that(target, shape, element, outer, lambda w: here(w) and not any(w[a] for a in zero))
        holding = groups_that(source, shape, element, outer, here)
        if not resolved:
            total += len(wanting - holding)
        else:
            pieces = prod(source.sizes[axis] for axis in resolved)
            total += pieces - 1 + len(wanting) - bool(wanting & holding)
    return total / prod(source.sizes[axis] for axis in outer)


SMALL = [({"x": 2, "y": 2}, (4, 4)), ({"x": 2, "y": 2}, (3, 5)), ({"x": 2, "y": 3}, (6, 4)), ({"x": 4, "y": 2}, (8, 8))]


@pytest.mark.parametrize(("axes", "shape"), SMALL, ids=str)
def test_the_bound_is_what_counting_every_element_gives(axes, shape):
    everything = all_layouts(axes, len(shape), [SUM])
    for number, (source, target) in enumerate(product(everything, everything)):
        if number % 7 == 0:
            assert elements_needed(source, target, shape) == pytest.approx(
                needed_by_hand(source, target, shape, tuple(axes)) if source != target else 0
            ), f"{source} -> {target}"


@given(layout_pairs(max_devices=8, max_rank=2, ops=PIECES))
def test_the_bound_on_any_mesh(pair):
    source, target, shape = pair
    by_hand = needed_by_hand(source, target, shape, tuple(source.sizes)) if source != target else 0
    assert elements_needed(source, target, shape) == pytest.approx(by_hand)


@given(st.data(), layout_pairs(max_devices=8, max_rank=2, ops=PIECES))
def test_what_hosts_must_receive(data, pair):
    """Between hosts that are joined by some axes: what their devices want together and don't hold together."""
    source, target, shape = pair
    outer = tuple(axis for axis in source.sizes if data.draw(st.booleans(), axis))
    by_hand = needed_by_hand(source, target, shape, outer) if source != target else 0
    assert elements_needed(source, target, shape, frozenset(outer)) == pytest.approx(by_hand)


@given(layout_pairs(max_rank=2, ops=PIECES))
def test_an_exchange_receives_just_what_its_schedule_sends(pair):
    source, target, shape = pair
    kept = kept_pieces(source, target)
    pieces = [(a, op) for a, op in target.partial if kept.get(a) == op or a not in source.partial_axes]
    target = target.replace(partial=pieces)
    if len({op for axis, op in source.partial if axis not in kept}) > 1 or kept != kept_pieces(source, target):
        return
    sent = schedule(source, target, shape).elements_received
    assert elements_exchanged(source, target, shape) * source.num_devices == pytest.approx(sent)
    if target != source:
        assert Exchange(target.dims, target.partial).received(source, shape) * source.num_devices == pytest.approx(sent)


@given(layout_pairs(max_rank=2, partial=False))
def test_the_most_that_a_device_must_receive(pair):
    source, target, shape = pair
    lacks = []
    for where in places(source):
        held, wanted = source.block(shape, where), target.block(shape, where)
        both = (max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in zip(held, wanted, strict=True))
        lacks.append(prod(stop - start for start, stop in wanted) - prod(both))
    bound = lower_bound(source, target, shape, 1)
    assert bound.mean == pytest.approx(sum(lacks) / len(lacks))
    assert bound.mean <= bound.max * (1 + 1e-9)
    if source.is_even(shape) and target.is_even(shape):
        assert bound.max == max(lacks)
    else:
        assert bound.max <= max(lacks) * (1 + 1e-9)


# -- what plans make of it --------------------------------------------------------------------------------------------


@given(layout_pairs(), st.sampled_from(["bytes", "h100", "gloo"]))
def test_no_plan_is_below_the_bound(pair, links):
    source, target, shape = pair
    found = plan(source, target, shape, links=links)
    assert found.ratio >= 1 - 1e-9, f"the bound is wrong:\n{found}"
    assert found.bytes_received.max >= found.bytes_received.mean * (1 - 1e-9)
    assert found.bytes_received.max >= found.lower_bound.max * (1 - 1e-9)
    assert all(received >= 0 for received in found.step_bytes)
    assert found.time >= 0


@given(layout_pairs(partial=False))
def test_without_pieces_every_plan_reaches_the_bound(pair):
    source, target, shape = pair
    found = plan(source, target, shape)
    assert found.bytes_received.mean == pytest.approx(found.lower_bound.mean), f"{found}"


@given(st.data(), mesh_axes(), st.integers(0, 3))
def test_a_detour_is_never_shorter(data, axes, rank):
    first, middle, last = (data.draw(layouts(axes, rank, partial=False)) for _ in range(3))
    shape = data.draw(shapes(rank))
    direct, there, on = (
        plan(a, b, shape).bytes_received.mean for a, b in ((first, last), (first, middle), (middle, last))
    )
    assert direct <= (there + on) * (1 + 1e-9)


@pytest.mark.parametrize(("axes", "shape"), [({"x": 2, "y": 4}, (8, 8)), ({"x": 2, "y": 3}, (6, 6))], ids=str)
def test_with_pieces_no_detour_is_shorter_either(axes, shape):
    """Where pieces aren't kept: these are moved as pieces, and a detour that resolves them is another problem."""
    everything = all_layouts(axes, len(shape), [SUM])
    moved = {pair: plan(*pair, shape).bytes_received.mean for pair in product(everything, everything)}
    for first, last in product(everything, everything):
        if not kept_pieces(first, last):
            detour = min(moved[first, middle] + moved[middle, last] for middle in everything)
            assert moved[first, last] <= detour * (1 + 1e-9), f"{first} -> {last}"


@pytest.mark.parametrize(
    ("source", "target", "received"),
    [
        ("[x=2,y=4] y +sum(x)", "[x=2,y=4] x", 32 + 112),  # the other way round it is 152
        ("[x=2,y=2,z=2] y +sum(z)", "[x=2,y=2,z=2] - +sum(y)", 32 + 112),  # over copies, too: else it is 160
    ],
)
def test_pieces_are_reduced_where_they_are_and_sent_as_values(source, target, received):
    assert plan(parse_layout(source), parse_layout(target), (64,)).bytes_received.mean == received


# -- a hierarchy ------------------------------------------------------------------------------------------------------

LINKS = topology("h100").between("host", "ethernet")
SHAPE, ITEMSIZE = (4096, 4096), 4


def on_hosts(source: str, target: str, memory_limit: float | None = None) -> Plan:
    layouts = (parse_layout(f"[host=2,gpu=4] {spec}") for spec in (source, target))
    return plan(*layouts, SHAPE, ITEMSIZE, memory_limit, LINKS)


def received_by_a_host(found: Plan) -> float:
    """The bytes that come through a host's link."""
    walk = zip(found.layouts, found.layouts[1:], strict=False)
    return 4 * ITEMSIZE * sum(elements_crossing(a, b, found.shape, LINKS.shared_axes) for a, b in walk)


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [
        ("host,-", "-,-", "slice all-gather all-gather"),
        ("host,gpu", "gpu,host", "exchange"),
        ("host,-", "-,host", "exchange all-gather"),
        ("-,- +sum(host)", "-,-", "slice all-reduce all-gather"),
        ("gpu,- +sum(host)", "gpu,-", "all-reduce"),
    ],
)
def test_a_host_receives_no_byte_twice(source, target, kinds):
    """Sliced inside before it crosses, gathered inside after: else each device of a host would fetch its own copy."""
    found = on_hosts(source, target)
    assert [str(step).split()[0] for step in found.steps] == kinds.split(), f"{found}"
    assert received_by_a_host(found) == pytest.approx(found.host_bound.mean), f"{found}"


def test_with_room_to_spare_no_byte_crosses_twice_where_source_and_target_leave_none():
    """Within source + target only one all-gather over all devices fits, whose every device fetches from afar."""
    assert len(on_hosts("(host,gpu),-", "-,-").steps) == 1
    found = on_hosts("(host,gpu),-", "-,-", memory_limit=84e6)
    assert received_by_a_host(found) == pytest.approx(found.host_bound.mean), f"{found}"
    assert found.time < on_hosts("(host,gpu),-", "-,-").time / 3
