"""The lowered program has just the collectives of its plan, and they make a device receive just the plan's bytes."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import pytest

import lamina
from lamina.engine import primitive
from lamina.engine.storage import storage
from lamina.planning import Plan
from lamina.planning.schedule import schedule
from lamina.planning.steps import AllGather, AllReduce, AllToAll, Exchange, Permute, ReduceScatter, Slice, Step
from lamina.sharding import Layout, ReduceOp
from tests.engine.oracles import mesh_of
from tests.engine.stablehlo import counted, received
from tests.strategies import EXHAUSTIVE_MESHES, all_layouts

ITEMSIZE = 4
SHAPES = {"even": (24, 48), "uneven": (10, 7)}
SOURCES = [
    pytest.param(source, shape, id=f"{source} {name}")
    for axes in EXHAUSTIVE_MESHES
    for source in all_layouts(axes, 2, [ReduceOp.SUM])
    for name, shape in SHAPES.items()
]


def kind_of(step: Step) -> str | None:
    """For SUM, and a dtype that XLA reduces."""
    match step:
        case AllGather():
            return "all_gather"
        case AllToAll():
            return "all_to_all"
        case Permute() | Exchange():
            return "collective_permute"
        case AllReduce():
            return "all_reduce"
        case ReduceScatter():
            return "reduce_scatter"
        case _:
            return None


def planned(plan: Plan) -> tuple[dict[str, int], dict[str, float]]:
    """The collectives by kind, and their bytes."""
    counts: dict[str, int] = {}
    total: dict[str, float] = {}
    for step, layout, moved in zip(plan.steps, plan.layouts, plan.step_bytes, strict=False):
        rounds = len(schedule(layout, step.after(layout), plan.shape).rounds) if isinstance(step, Exchange) else 1
        if (kind := kind_of(step)) and rounds:
            counts[kind] = counts.get(kind, 0) + rounds
            total[kind] = total.get(kind, 0.0) + moved
    return counts, total


@pytest.mark.exhaustive(keep=40)
@pytest.mark.parametrize(("source", "shape"), SOURCES)
def test_every_pair_of_layouts(source: Layout, shape):
    mesh = mesh_of(source.sizes)
    held = storage(mesh, source, shape)
    x = jax.ShapeDtypeStruct(held.array_shape, jnp.float32, sharding=held.sharding)
    for target in all_layouts(source.sizes, 2, [ReduceOp.SUM]):
        wanted = storage(mesh, target, shape)
        if held is wanted:
            continue
        (leg,) = primitive.route(held, wanted)
        plan = leg.plan(ITEMSIZE)
        text = jax.jit(partial(primitive.transition, source=held, target=wanted)).lower(x).as_text()
        counts, total = planned(plan)
        assert counted(text) == counts, f"{plan}"
        assert received(text) == pytest.approx(total), f"{plan}"


def test_a_plan_without_communication_lowers_to_none():
    mesh = mesh_of({"x": 2, "y": 2})
    x = lamina.shard(jnp.zeros((8, 8)), mesh, ["x"])
    text = jax.jit(lambda x: lamina.shard(x, mesh, ["x", "y"])).lower(x).as_text()
    assert counted(text) == {} and [type(s) for s in lamina.explain(x, mesh, ["x", "y"]).steps] == [Slice]
