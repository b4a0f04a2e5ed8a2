"""Between any two layouts there is a plan, and it moves the value and nothing but the value."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import LayoutError, PlanError
from lamina.planning import Plan, plan
from lamina.planning.bounds import Bytes
from lamina.planning.simulate import collect, run, scatter, step_forward
from lamina.sharding.layout import Layout
from lamina.sharding.text import parse_layout
from tests.strategies import EXHAUSTIVE_MESHES, OPS, all_layouts, any_blocks, layout_pairs, layouts, mesh_axes, shapes

CUBE, UNEVEN_GRID, LINE = EXHAUSTIVE_MESHES
GRID = {"x": 2, "y": 2}


def check(found: Plan, dtype: str = "float64") -> None:
    """The plan's layouts chain, every step keeps the global value, and the target holds what it should."""
    shape, target = found.shape, found.target
    assert (found.layouts[0], found.layouts[-1]) == (found.source, target)
    assert found.layouts[1:] == tuple(s.after(b) for s, b in zip(found.steps, found.layouts, strict=False))
    blocks = any_blocks(found.source, shape, dtype)
    value = collect(blocks, found.source, shape, dtype)
    after = blocks
    for step, layout in zip(found.steps, found.layouts, strict=False):
        after = step_forward(step, after, layout, shape)
        now = collect(after, step.after(layout), shape, dtype)
        assert np.array_equal(now, value), f"{step} made {now} of {value} in the plan\n{found}"
    if not target.partial:
        # Many pieces make up one value, but without pieces every block is known.
        wanted = scatter(value, target)
        assert all(np.array_equal(after[where], wanted[where]) for where in wanted), f"wrong blocks from\n{found}"


# -- any pair of layouts ----------------------------------------------------------------------------------------------

EVEN_AND_UNEVEN = [
    (CUBE, (8, 8)),
    (CUBE, (10, 5)),
    (UNEVEN_GRID, (6, 12)),
    (UNEVEN_GRID, (7, 4)),
    (LINE, (8, 16)),
    (LINE, (3, 9)),
    (GRID, (4,)),
    (GRID, (5,)),
    (GRID, (4, 4, 4)),
    (GRID, (5, 3, 2)),
    (GRID, ()),
    (GRID, (0, 4)),
]


@pytest.mark.parametrize(("axes", "shape"), EVEN_AND_UNEVEN, ids=str)
def test_every_pair_of_layouts(axes, shape):
    everything = all_layouts(axes, len(shape))
    for source in everything:
        for target in everything:
            check(plan(source, target, shape))


@pytest.mark.parametrize(
    ("axes", "shape", "dtype"),
    [
        (GRID, (4,), "float64"),
        (GRID, (5,), "float64"),
        (GRID, (4,), "int32"),  # AVG rounds down: here no order but the right one gives the value
        (GRID, (4,), "bool"),
        (UNEVEN_GRID, (6,), "float64"),
        (UNEVEN_GRID, (7,), "int32"),
        (LINE, (8, 9), "float64"),
    ],
    ids=str,
)
def test_every_pair_of_layouts_with_partial_axes_of_every_op(axes, shape, dtype):
    everything = all_layouts(axes, len(shape), OPS)
    for source in everything:
        for target in everything:
            check(plan(source, target, shape), dtype)


@pytest.mark.parametrize(("axes", "shape"), [(CUBE, (8, 8)), (CUBE, (10, 5)), (UNEVEN_GRID, (7, 6))], ids=str)
def test_a_sample_of_the_pairs_with_partial_axes(axes, shape):
    everything = all_layouts(axes, len(shape), OPS)
    pairs = [(source, target) for source in everything for target in everything]
    for source, target in pairs[:: len(pairs) // 300]:
        check(plan(source, target, shape))


@pytest.mark.parametrize("shape", [(2, 2), (3, 1)], ids=str)
def test_three_partial_axes_of_any_ops(shape):
    pieces = [layout for layout in all_layouts(CUBE, 2, OPS) if len(layout.partial) == 3]
    for source, target in zip(pieces, reversed(pieces), strict=True):
        check(plan(source, target, shape))


@given(layout_pairs(), st.sampled_from(["float64", "int32", "bool"]))
def test_any_mesh(pair, dtype):
    check(plan(*pair), dtype)


@given(layout_pairs())
def test_there_and_back_is_the_identity(pair):
    source, target, shape = pair
    blocks = any_blocks(source, shape)
    back = run(plan(target, source, shape), run(plan(source, target, shape), blocks))
    np.testing.assert_array_equal(
        collect(back, source, shape, "float64"), collect(blocks, source, shape, "float64"), strict=True
    )


# -- what a plan costs ------------------------------------------------------------------------------------------------


@given(st.data(), mesh_axes(), st.integers(0, 3))
def test_nothing_to_do_costs_nothing(data, axes, rank):
    layout, shape = data.draw(layouts(axes, rank)), data.draw(shapes(rank))
    found = plan(layout, layout, shape)
    assert (found.steps, found.bytes_received, found.ratio) == ((), Bytes(0, 0), 1)


@pytest.mark.parametrize(
    ("source", "target", "steps"),
    [
        ("-,-", "x,-", ["slice dim 0 over x"]),
        ("x,-", "(x,y),-", ["slice dim 0 over y"]),  # Nabla drops half of the data here
        ("x,-", "-,x", ["all-to-all over x from dim 0 to dim 1"]),
        ("(x,y),-", "-,(x,y)", ["all-to-all over (x,y) from dim 0 to dim 1"]),
        ("(x,y),-", "(y,x),-", ["permute to (y,x),-"]),
        ("x,-", "y,-", ["permute to y,-"]),
        ("x,y", "y,x", ["permute to y,x"]),
        ("(x,y),-", "-,-", ["all-gather dim 0 over (x,y)"]),
        ("-,- +sum(x)", "-,-", ["all-reduce sum over x"]),
        ("-,- +max(x,y)", "-,-", ["all-reduce max over (x,y)"]),
        ("-,- +sum(x)", "-,x", ["reduce-scatter sum over x into dim 1"]),
        ("-,- +min(x,y)", "-,(y,x)", ["reduce-scatter min over (y,x) into dim 1"]),
        (
            "-,- +sum(x) +max(y)",  # only half of it is summed, once the maximum is there
            "-,-",
            [
                "reduce-scatter max over y into dim 0",
                "reduce-scatter sum over x into dim 0",
                "all-gather dim 0 over (y,x)",
            ],
        ),
        ("x,- +sum(y)", "-,x +sum(y)", ["all-to-all over x from dim 0 to dim 1"]),  # pieces stay pieces
        ("-,- +sum(x)", "-,- +max(x)", ["all-reduce sum over x", "unreduce max over x"]),
        ("-,-", "-,- +prod(y)", ["unreduce prod over y"]),
        ("(x,y),-", "-,(y,x)", ["all-to-all over (y,x) from dim 0 to dim 1"]),
        ("(y,x),-", "x,y", ["exchange to x,y"]),
    ],
)
def test_the_obvious_route_is_taken(source, target, steps):
    found = plan(parse_layout(f"[x=2,y=2] {source}"), parse_layout(f"[x=2,y=2] {target}"), (2048, 2048), links="h100")
    assert [str(step) for step in found.steps] == steps


def test_what_makes_blocks_smaller_comes_before_what_sends_them():
    found = plan(Layout(GRID, [("x",), (), ()]), Layout(GRID, [(), ("x",), ("y",)]), (8, 8, 8))
    assert [str(step) for step in found.steps] == ["slice dim 2 over y", "all-to-all over x from dim 0 to dim 1"]


def test_several_axes_change_dims_at_once():
    """One after the other they would move 3/4 of what a device holds twice."""
    axes = {"x": 2, "y": 2, "z": 2}
    found = plan(Layout(axes, [("x",), ("y",), (), ()]), Layout(axes, [(), (), ("x",), ("y",)]), (8, 8, 8, 8))
    assert [str(step) for step in found.steps] == ["all-to-all over x from dim 0 to dim 2 and y from dim 1 to dim 3"]
    assert found.ratio == 1


def test_blocks_that_nest_in_no_other_grid_are_exchanged():
    """10 over 4 is 3,3,2,2 and over 2 it is 5,5: gathering whole would receive 7 or 8 where 2 or 3 are lacking."""
    found = plan(Layout(GRID, [("x", "y")]), Layout(GRID, [("x",)]), (10,), itemsize=1)
    assert [str(step) for step in found.steps] == ["exchange to x"]
    assert found.bytes_received.mean == found.lower_bound.mean == 2.75


def test_the_size_of_the_axes_is_no_matter():
    """65,536 devices: were the states the devices, this would never end."""
    axes = {"a": 16, "b": 16, "c": 16, "d": 16}
    found = plan(Layout(axes, [("a", "b"), ("c", "d")]), Layout(axes, [("d", "c"), ("b", "a")]), (2**20, 2**20))
    assert found.layouts[-1] == found.target


# -- memory -----------------------------------------------------------------------------------------------------------


@given(layout_pairs(), st.integers(0, 4))
def test_a_memory_limit_is_kept_or_refused(pair, eighths):
    source, target, shape = pair
    freely = plan(source, target, shape)
    limit = freely.peak_memory * (4 + eighths) / 8
    try:
        found = plan(source, target, shape, memory_limit=limit)
    except PlanError as error:
        assert limit < freely.peak_memory
        assert str(error) == (
            f"no route from {source} to {target} keeps a device under {limit:.0f} bytes; "
            f"the best needs {freely.peak_memory:.0f}"
        )
    else:
        assert not found.steps or found.peak_memory <= limit
        assert found.bytes_received.mean >= freely.bytes_received.mean * (1 - 1e-9)
        check(found)


def test_what_fits_is_planned_as_if_there_were_no_limit():
    source, target = Layout(GRID, [("x",), ()]), Layout(GRID, [("y",), ("x",)])
    freely = plan(source, target, (8, 8))
    assert plan(source, target, (8, 8), memory_limit=freely.peak_memory).steps == freely.steps


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), [("-", "-,-"), ("-,-", "-")])
def test_layouts_of_another_rank_than_the_shape(source, target):
    with pytest.raises(LayoutError, match=r"the layout \[x=2\] - has 1 dims, but the shape \(8, 8\) has 2"):
        plan(parse_layout(f"[x=2] {source}"), parse_layout(f"[x=2] {target}"), (8, 8))


def test_layouts_on_different_meshes():
    with pytest.raises(PlanError, match=r"the layouts \[x=2\] - and \[x=4\] - are on different meshes"):
        plan(parse_layout("[x=2] -"), parse_layout("[x=4] -"), (8,))


# -- one plan, in every process ---------------------------------------------------------------------------------------

PRINT_PLANS = """
from lamina.planning import plan
from tests.strategies import OPS, all_layouts
everything = all_layouts({"x": 2, "y": 2, "z": 2}, 2, OPS)
pairs = [(source, target) for source in everything for target in everything]
for source, target in pairs[:: len(pairs) // 200]:
    print(plan(source, target, (8, 6)))
"""


@pytest.mark.processes
def test_processes_that_hash_differently_find_the_same_plans():
    """Each process of a cluster plans for itself: if two found different plans, the collectives would hang."""

    def printed(seed: str) -> str:
        path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, "-c", PRINT_PLANS]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    first, second = printed("1"), printed("2")
    assert first == second
    assert first.count("→") >= 200


def test_a_plan_prints_its_steps_with_what_they_receive():
    text = str(plan(parse_layout("[x=2,y=2] x,- +sum(y)"), parse_layout("[x=2,y=2] -,-"), (8, 8)))
    assert text.splitlines() == [
        "[x=2,y=2] x,- +sum(y)  →  [x=2,y=2] -,-   (8, 8), itemsize 4",
        "  1. all-reduce sum over y: 128 B",
        "  2. all-gather dim 0 over x: 128 B",
        "receives 256 B (bound 256 B, ratio 1.00), holds at most 384 B",
    ]
    assert "nothing to do" in str(plan(parse_layout("[x=2] x"), parse_layout("[x=2] x"), (8,)))
