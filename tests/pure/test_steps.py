"""Each step on its own: what it does to a layout, when it may be taken, and that it keeps the global value."""

from collections.abc import Iterator
from itertools import combinations, permutations, product

import numpy as np
import pytest

from lamina.errors import LayoutError
from lamina.planning import AllGather, AllReduce, AllToAll, Exchange, Permute, ReduceScatter, Slice, Step, Unreduce
from lamina.planning.pieces import may_reduce, may_unreduce
from lamina.planning.simulate import collect, scatter, step_forward
from lamina.planning.steps import may_append, may_remove, most_received
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp
from tests.strategies import OPS, Mesh, all_layouts, any_blocks

SUM, AVG, MIN, MAX, PROD = ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PROD
GRID = {"x": 2, "y": 2}


def lists(blocks):
    return {where: block.tolist() for where, block in blocks.items()}


# -- what a step does, on blocks that fit on a line -------------------------------------------------------------------

ROWS = Layout({"x": 2}, [("x",), ()])
COPIES = Layout({"x": 2}, [(), ()])


@pytest.mark.parametrize(
    ("step", "layout", "before", "after"),
    [
        (Slice(1, ("x",)), COPIES, [[[1, 2, 3]], [[1, 2, 3]]], [[[1, 2]], [[3]]]),
        (AllGather(0, ("x",)), ROWS, [[[1], [2]], [[3]]], [[[1], [2], [3]], [[1], [2], [3]]]),
        (AllToAll.of(("x",), 0, 1), ROWS, [[[1, 2], [3, 4]], [[5, 6]]], [[[1], [3], [5]], [[2], [4], [6]]]),
        (AllReduce(("x",), SUM), Layout({"x": 2}, [()], {"x": SUM}), [[1, 2], [3, 4]], [[4, 6], [4, 6]]),
        (AllReduce(("x",), AVG), Layout({"x": 2}, [()], {"x": AVG}), [[1, 2], [3, 5]], [[2, 3], [2, 3]]),
        (ReduceScatter(("x",), PROD, 0), Layout({"x": 2}, [()], {"x": PROD}), [[1, 2], [3, 4]], [[3], [8]]),
        (Unreduce("x", PROD), Layout({"x": 2}, [()]), [[5], [5]], [[5], [1]]),
        (Unreduce("x", AVG), Layout({"x": 2}, [()]), [[5], [5]], [[5], [5]]),
    ],
    ids=str,
)
def test_a_step_on_two_devices(step, layout, before, after):
    shape = collect_shape(before, layout)
    blocks = {(i,): np.array(block) for i, block in enumerate(before)}
    assert lists(step_forward(step, blocks, layout, shape)) == {(i,): block for i, block in enumerate(after)}


def collect_shape(blocks: list, layout: Layout) -> tuple[int, ...]:
    shapes = np.array([np.shape(block) for block in blocks])
    return tuple(sum(sizes) if axes else sizes[0] for sizes, axes in zip(shapes.T.tolist(), layout.dims, strict=True))


def test_a_permute_brings_blocks_from_devices_that_hold_them():
    major, minor = Layout(GRID, [("x", "y")]), Layout(GRID, [("y", "x")])
    assert lists(step_forward(Permute(minor.dims), scatter(range(4), major), major, (4,))) == lists(
        scatter(range(4), minor)
    )


def test_a_permute_leaves_every_piece_with_its_own_device_along_a_partial_axis():
    layout = Layout({"x": 2, "y": 2, "p": 2}, [("x",)], {"p": SUM})
    blocks = {where: np.array([100 * where[2] + where[0]]) for where in scatter([0, 0], layout)}
    after = step_forward(Permute((("y",),)), blocks, layout, (2,))
    assert lists(after) == {where: [100 * where[2] + where[1]] for where in blocks}


def test_the_axes_of_a_step_go_from_major_to_minor():
    layout = Layout({"x": 2, "y": 3}, [(), ("y", "x")])
    value = np.arange(36).reshape(6, 6)
    step = AllToAll.of(("y", "x"), 1, 0)
    assert lists(step_forward(step, scatter(value, layout), layout, (6, 6))) == lists(
        scatter(value, step.after(layout))
    )


# -- every step that may be taken keeps the value ---------------------------------------------------------------------


def legal_steps(layout: Layout, shape: tuple[int, ...]) -> Iterator[Step]:
    """All of them, and not only those that a planner would think of."""
    for dim, current in enumerate(layout.dims):
        yield from (Slice(dim, axes) for axes in orders(layout.replicated_axes) if may_append(layout, shape, dim, axes))
        for axes in (current[start:] for start in range(len(current))):
            if may_remove(layout, shape, dim, axes):
                yield AllGather(dim, axes)
                others = [other for other in range(layout.rank) if other != dim]
                yield from (AllToAll.of(axes, dim, other) for other in others if may_append(layout, shape, other, axes))
    for step in joint_all_to_alls(layout):
        if all(may_append(layout, shape, d, axes) for d, axes in step.joining.items()):
            if all(may_remove(layout, shape, d, axes) for d, axes in step.leaving(layout).items()):
                yield step
    for other in all_layouts(layout.sizes, layout.rank):
        if other.grid == layout.grid and not set(other.sharded_axes) & set(layout.partial_axes):
            yield Permute(other.dims)
    for op in OPS:
        for axes in orders([axis for axis, found in layout.partial if found == op]):
            if may_reduce(layout, axes, op):
                yield AllReduce(axes, op)
                dims = [dim for dim in range(layout.rank) if may_append(layout, shape, dim, axes)]
                yield from (ReduceScatter(axes, op, dim) for dim in dims)
        yield from (Unreduce(axis, op) for axis in layout.replicated_axes if may_unreduce(layout, axis, op))


def joint_all_to_alls(layout: Layout) -> Iterator[AllToAll]:
    """Those of several axes that leave or join several dims."""
    for axes in orders(layout.sharded_axes):
        source = {axis: next(d for d, entry in enumerate(layout.dims) if axis in entry) for axis in axes}
        for targets in product(range(layout.rank), repeat=len(axes)):
            ways = {(source[axis], target) for axis, target in zip(axes, targets, strict=True)}
            if len(ways) < 2 or {s for s, _ in ways} & {t for _, t in ways}:
                continue
            step = AllToAll(tuple((a, source[a], t) for a, t in zip(axes, targets, strict=True)))
            minor = all(layout.dims[d][-len(gone) :] == gone for d, gone in step.leaving(layout).items())
            # Moves are listed dim by dim here, so that each step stands once.
            if minor and [t for _, _, t in step.moves] == sorted(targets):
                yield step


def orders(axes) -> Iterator[Axes]:
    for count in range(1, len(axes) + 1):
        for chosen in combinations(axes, count):
            yield from permutations(chosen)


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
@pytest.mark.parametrize(
    ("axes", "shape", "stride"),
    [
        (GRID, (4, 4), 1),
        (GRID, (5, 3), 1),
        ({"x": 2, "y": 3}, (6, 7), 3),
        ({"x": 2, "y": 2, "z": 2}, (8, 2), 31),
        (GRID, (2, 4, 6), 11),
    ],
    ids=str,
)
def test_every_legal_step_keeps_the_value(axes: Mesh, shape, stride, dtype):
    for layout in all_layouts(axes, len(shape), OPS)[::stride]:
        blocks = any_blocks(layout, shape, dtype)
        value = collect(blocks, layout, shape, dtype)
        for step in legal_steps(layout, shape):
            found = collect(step_forward(step, blocks, layout, shape), step.after(layout), shape, dtype)
            assert np.array_equal(found, value), f"{step} on {layout}: {found} instead of {value}"


# -- when a step may be taken -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "current", "axes", "allowed"),
    [
        (8, (), ("y",), True),
        (7, (), ("x", "y"), True),  # an uneven dim may be cut at once
        (8, ("x",), ("y",), True),
        (6, ("x",), ("y",), False),  # 2,2,1,1 doesn't lie within 3,3
        (10, ("x",), ("y",), False),
        (0, ("x",), ("y",), True),
    ],
)
def test_may_append(size, current, axes, allowed):
    assert may_append(Layout(GRID, [current]), (size,), 0, axes) is allowed


@pytest.mark.parametrize(
    ("size", "axes", "allowed"),
    [
        (8, ("y",), True),
        (8, ("x", "y"), True),
        (6, ("y",), False),
        (6, ("x", "y"), True),  # all at once leaves no grid that could be wrong
        (0, ("y",), True),
    ],
)
def test_may_remove(size, axes, allowed):
    assert may_remove(Layout(GRID, [("x", "y")]), (size,), 0, axes) is allowed


@pytest.mark.parametrize(
    ("first", "second", "before_the_second"),
    [(op, op, op is not AVG) for op in OPS]  # of integers, the floors of AVG don't change places
    + [
        (SUM, AVG, False),
        (AVG, SUM, False),
        (SUM, MAX, False),
        (MIN, MAX, False),
        (PROD, SUM, False),
        (PROD, MIN, False),
    ],
)
def test_may_reduce_and_may_unreduce(first, second, before_the_second):
    partial = Layout(GRID, [()], {"x": first, "y": second})
    assert may_reduce(partial, ("x",), first) is before_the_second
    assert may_reduce(partial, ("y",), second) is True  # the last axis can always go
    assert may_unreduce(Layout(GRID, [()], {"y": second}), "x", first) is before_the_second
    assert may_unreduce(Layout(GRID, [()], {"x": first}), "y", second) is True


@pytest.mark.parametrize("op", OPS)
def test_axes_with_one_op_can_be_reduced_together(op):
    assert may_reduce(Layout(GRID, [()], {"x": op, "y": op}), ("x", "y"), op)


def test_an_axis_between_two_others_keeps_them_apart():
    between = Layout({"x": 2, "y": 2, "z": 2}, [()], {"x": SUM, "y": MAX, "z": SUM})
    assert not may_reduce(between, ("x", "z"), SUM)
    assert may_reduce(between, ("z",), SUM)


# -- what a step refuses ----------------------------------------------------------------------------------------------

NESTED = Layout(GRID, [("y", "x"), ()])
PIECES = Layout(GRID, [(), ()], {"x": SUM})


@pytest.mark.parametrize(
    ("step", "layout", "text"),
    [
        (Slice(1, ("x",)), NESTED, "axes ('x',) are not replicated in [x=2,y=2] (y,x),-"),
        (Slice(0, ("y", "x")), PIECES, "axes ('x',) are not replicated in [x=2,y=2] -,- +sum(x)"),
        (AllGather(0, ("y",)), NESTED, "('y',) is not the minor end of dim 0 in [x=2,y=2] (y,x),-"),
        (AllGather(1, ("x",)), NESTED, "('x',) is not the minor end of dim 1 in [x=2,y=2] (y,x),-"),
        (AllGather(0, ()), NESTED, "() is not the minor end of dim 0 in [x=2,y=2] (y,x),-"),
        (AllToAll.of(("y",), 0, 1), NESTED, "('y',) is not the minor end of dim 0 in [x=2,y=2] (y,x),-"),
        (Permute((("x",), ())), NESTED, "a permute can't change the grid (4, 1) of [x=2,y=2] (y,x),- into (2, 1)"),
        (Permute(((), ("x", "y"))), NESTED, "a permute can't change the grid (4, 1) of [x=2,y=2] (y,x),- into (1, 4)"),
        (AllReduce(("x",), MAX), PIECES, "axis 'x' is not Partial(MAX) in [x=2,y=2] -,- +sum(x)"),
        (AllReduce(("y",), SUM), PIECES, "axis 'y' is not Partial(SUM) in [x=2,y=2] -,- +sum(x)"),
        (ReduceScatter(("y",), SUM, 0), PIECES, "axis 'y' is not Partial(SUM) in [x=2,y=2] -,- +sum(x)"),
        (Unreduce("x", SUM), PIECES, "axis 'x' is not replicated in [x=2,y=2] -,- +sum(x)"),
        (Unreduce("x", SUM), NESTED, "axis 'x' is not replicated in [x=2,y=2] (y,x),-"),
    ],
    ids=str,
)
def test_a_step_says_why_it_cannot_be_taken(step, layout, text):
    with pytest.raises(LayoutError) as error:
        step.after(layout)
    assert str(error.value) == text


# -- what a step costs and how it prints ------------------------------------------------------------------------------

EIGHT = {"x": 2, "y": 4}


BOTH = (("x", 0, 2), ("y", 1, 2))


@pytest.mark.parametrize(
    ("step", "layout", "received", "text"),
    [
        (Slice(0, ("y",)), Layout(EIGHT, [(), (), ()]), 0, "slice dim 0 over y"),
        (AllGather(0, ("x", "y")), Layout(EIGHT, [("x", "y"), (), ()]), 7 * 64, "all-gather dim 0 over (x,y)"),
        (AllToAll.of(("y",), 0, 1), Layout(EIGHT, [("y",), (), ()]), 96, "all-to-all over y from dim 0 to dim 1"),
        (
            AllToAll(BOTH),
            Layout(EIGHT, [("x",), ("y",), ()]),
            56,
            "all-to-all over x from dim 0 to dim 2 and y from dim 1 to dim 2",
        ),
        (Permute((("y", "x"), (), ())), Layout(EIGHT, [("x", "y"), (), ()]), 48, "permute to (y,x),-,-"),
        (AllReduce(("y",), MAX), Layout(EIGHT, [(), (), ()], {"y": MAX}), 768, "all-reduce max over y"),
        (
            ReduceScatter(("y",), SUM, 1),
            Layout(EIGHT, [(), (), ()], {"y": SUM}),
            384,
            "reduce-scatter sum over y into dim 1",
        ),
        (Unreduce("x", AVG), Layout(EIGHT, [(), (), ()]), 0, "unreduce avg over x"),
        (Exchange((("x",), (), ())), Layout(EIGHT, [("y",), (), ()]), 192, "exchange to x,-,-"),
    ],
    ids=str,
)
def test_bytes_and_text(step, layout, received, text):
    assert step.received(layout, (8, 8, 8)) == received
    assert str(step) == text


@pytest.mark.parametrize(
    ("step", "layout", "most"),
    [
        (Permute((("y", "x"), ())), Layout(EIGHT, [("x", "y"), ()]), 8),  # on the mean 6: two devices keep their block
        (Exchange((("x",), ())), Layout(EIGHT, [("y",), ()]), 32),
        (Exchange(((), ())), Layout(EIGHT, [(), ()], {"x": SUM}), 64),
        (AllGather(0, ("x",)), Layout(EIGHT, [("x",), ()]), 32),
    ],
    ids=str,
)
def test_the_device_that_receives_most(step, layout, most):
    assert most_received(step, layout, (8, 8)) == most >= step.received(layout, (8, 8))


@pytest.mark.parametrize(
    "moves", [(), (("x", 0, 1), ("y", 1, 0)), (("x", 0, 1), ("y", 1, 2))], ids=["none", "a swap", "a chain"]
)
def test_an_all_to_all_needs_dims_that_lose_and_others_that_gain(moves):
    with pytest.raises(LayoutError, match="is no all-to-all: no dim can both lose and gain axes"):
        AllToAll(moves)


@pytest.mark.parametrize("axes", [{"x": 2, "y": 2, "z": 2}, {"x": 2, "y": 3}], ids=str)
def test_transposing_an_all_to_all_leads_back(axes):
    steps = 0
    for layout in all_layouts(axes, 3):
        for step in joint_all_to_alls(layout):
            back = step.transpose(layout)
            assert isinstance(back, AllToAll) and back.after(step.after(layout)) == layout
            assert back.transpose(step.after(layout)) == step
            steps += 1
    assert steps > 10
