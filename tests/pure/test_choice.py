"""The choice of a way: the short cut to the best one, and what specs with open dims and priorities ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning.choice import _Weighing, choices, choose
from lamina.planning.topology import topology
from lamina.planning.wishes import Wishes
from lamina.rules import Factors
from lamina.rules.contraction import matmul
from lamina.rules.elementwise import elementwise, linear
from lamina.rules.reduction import reduction
from lamina.sharding import DimSpec, P, ReduceOp
from lamina.sharding.layout import Layout
from tests.strategies import layouts, mesh_axes

AXES = {"x": 2, "y": 2}


@st.composite
def calls(draw: st.DrawFn) -> tuple[Factors, list[Layout]]:
    axes, size = draw(mesh_axes(8)), st.sampled_from([1, 4, 5, 6, 12])
    m, k, n = draw(size), draw(size), draw(size)
    match draw(st.sampled_from(["matmul", "add", "mul", "sum", "max"])):
        case "matmul":
            factors = matmul([(m, k), (k, n)])
        case "add":
            factors = elementwise([(m, n), (n,)], linear(0, 1, jointly=True))
        case "mul":
            factors = elementwise([(m, n), (m, n)], linear(0, 1))
        case "sum":
            factors = reduction([(m, k, n)], (1,), ReduceOp.SUM)
        case _:
            factors = reduction([(m, k)], (0, 1), ReduceOp.MAX)
    return factors, [draw(layouts(axes, len(shape))) for shape in factors.shapes]


@given(calls(), st.sampled_from(["bytes", "h100", "cpu"]))
def test_the_short_cut_finds_the_best(call: tuple[Factors, list[Layout]], links: str) -> None:
    factors, lies = call
    itemsizes = [4.0] * len(lies)
    best = choose(factors, lies, itemsizes, topology(links))
    every = choices(factors, lies, itemsizes, topology(links))
    assert best.rank == every[0].rank
    assert best.way in [choice.way for choice in every]


@given(calls())
def test_the_bounds_are_bounds(call: tuple[Factors, list[Layout]]) -> None:
    factors, lies = call
    weighing = _Weighing(factors, lies, [4.0] * len(lies), topology("bytes"), None, None)
    from lamina.rules import sketches

    for sketch in sketches(factors, lies):
        assert weighing._at_least(sketch) <= weighing._price(sketch).moving * (1 + 1e-9)


def chosen(factors: Factors, *specs: tuple[DimSpec, ...]) -> str:
    """The best way for operands that lie as their specs say."""
    lies = [Layout(AXES, [spec.axes for spec in own]) for own in specs]
    way = choose(factors, lies, [4.0] * len(lies), topology("bytes"), None, Wishes.of(specs, lies)).way
    return str(way).replace("[x=2,y=2] ", "")


OPEN = DimSpec((), is_open=True)
TALL = elementwise([(8, 8), (8, 8)], linear(0, 1, jointly=True))
WIDE = elementwise([(8,), (64, 8)], linear(0, 1, jointly=True))


@pytest.mark.parametrize(
    "factors, specs, way",
    [
        # nothing asked for: nothing moves if that can be
        (TALL, [P("x", None), P(None, None)], "x,- × x,- → x,-"),
        # closed dims stay where some dim is open, though splitting further would be free
        (TALL, [P("x", None), P(OPEN, OPEN)], "x,- × x,- → x,-"),
        (TALL, [P(None, None), P(DimSpec("x", is_open=True), OPEN)], "-,- × -,- → -,-"),
        (TALL, [P(OPEN, None), P(DimSpec("x", is_open=True), None)], "x,- × x,- → x,-"),
        # the cost decides between equals: least moves when both axes split the dim
        (WIDE, [P("x"), P(None, "y")], "(y,x) × -,(y,x) → -,(y,x)"),
        # and the smaller number wins whatever the cost
        (WIDE, [P(DimSpec("x", priority=1)), P(None, DimSpec("y", priority=2))], "x × -,x → -,x"),
        (WIDE, [P(DimSpec("x", priority=2)), P(None, DimSpec("y", priority=1))], "y × -,y → -,y"),
        # an axis can be wanted for two factors, too
        (TALL, [P(DimSpec("x", priority=1), None), P(None, DimSpec("x", priority=3))], "x,- × x,- → x,-"),
        (TALL, [P(DimSpec("x", priority=3), None), P(None, DimSpec("x", priority=1))], "-,x × -,x → -,x"),
    ],
)
def test_what_specs_ask_for(factors: Factors, specs: list[tuple[DimSpec, ...]], way: str) -> None:
    assert chosen(factors, *specs) == way


def test_wishes_are_none_where_all_are_closed_and_equal() -> None:
    lies = [Layout(AXES, [("x",), ()])] * 2
    assert Wishes.of([P("x", None), P("x", None)], lies) is None
    assert Wishes.of([None, None], lies) is None
    assert Wishes.of([P(DimSpec("x", priority=2), None), P(DimSpec("x", priority=2), None)], lies) is None
