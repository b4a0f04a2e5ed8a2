"""What is run, not what comes out: the collectives in the lowered programs, the program cache, the queue, donation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina import DeviceMesh, ReduceOp
from lamina.engine import primitive, programs, relabel, transfer
from lamina.engine.storage import storage
from lamina.planning import Plan
from lamina.planning.schedule import schedule
from lamina.planning.steps import AllGather, AllReduce, AllToAll, Exchange, Permute, ReduceScatter, Slice, Unreduce
from lamina.sharding import Layout
from tests.engine.oracles import mesh_of
from tests.strategies import all_layouts, values

ROOT = Path(__file__).parent.parent.parent
KINDS = ("all_gather", "all_to_all", "collective_permute", "all_reduce", "reduce_scatter")


def lowered(f: Any, *args: Any) -> str:
    return jax.jit(f).lower(*args).as_text()


def collectives(stablehlo: str) -> Counter:
    """How many of each kind the program has."""
    return Counter(kind for kind in re.findall(r"stablehlo\.(\w+)", stablehlo) if kind in KINDS)


def compiled_collectives(f: Any, *args: Any) -> Counter:
    """The same after XLA's partitioner, which may add its own: `all-gather`, `all-to-all-start`, …"""
    text = jax.jit(f).lower(*args).compile().as_text()
    names = "|".join(kind.replace("_", "-") for kind in KINDS)
    return Counter(re.findall(rf" ({names})(?:-start)?\(", text))


def planned_collectives(plan: Plan) -> Counter:
    """The collectives that a plan's steps are, for SUM and a dtype that XLA reduces."""
    found: Counter = Counter()
    for step, layout in zip(plan.steps, plan.layouts, strict=False):
        match step:
            case AllGather():
                found["all_gather"] += 1
            case AllToAll():
                found["all_to_all"] += 1
            case Permute():
                found["collective_permute"] += 1
            case AllReduce():
                found["all_reduce"] += 1
            case ReduceScatter():
                found["reduce_scatter"] += 1
            case Exchange():
                found["collective_permute"] += len(schedule(layout, step.after(layout), plan.shape).rounds)
            case Slice() | Unreduce():
                pass
    return +found


# -- the program is the plan ------------------------------------------------------------------------------------------


def _sample(axes: dict[str, int], count: int) -> list[tuple[Layout, Layout]]:
    every = all_layouts(axes, 2, (ReduceOp.SUM,))
    random = np.random.default_rng(3)
    return [tuple(every[i] for i in random.integers(len(every), size=2)) for _ in range(count)]


@pytest.mark.parametrize(
    "axes, shape",
    [({"x": 2, "y": 2, "z": 2}, (8, 8)), ({"x": 2, "y": 3}, (6, 12)), ({"x": 2, "y": 3}, (7, 5))],
    ids=str,
)
def test_the_collectives_are_the_plans(axes, shape):
    """40 pairs of layouts each: lowering is fast, compiling would not be."""
    mesh = DeviceMesh.create(tuple(axes.values()), tuple(axes))
    found: Counter = Counter()
    for source, target in _sample(axes, 40):
        held, wanted = storage(mesh, source, shape), storage(mesh, target, shape)
        x = jax.ShapeDtypeStruct(held.array_shape, jnp.float32, sharding=held.sharding)
        route = primitive.route(held, wanted)
        planned = sum((planned_collectives(leg.plan(4)) for leg in route), Counter())
        program = collectives(lowered(partial(primitive.transition, source=held, target=wanted), x))
        assert program == planned, f"{source} to {target} of {shape}"
        found += program
    assert len(found) >= 3, found


@pytest.mark.parametrize(
    "op, expected",
    [
        (lambda t: lamina.all_gather(t, 0), {"all_gather": 1}),
        (lambda t: lamina.all_to_all(t, 1, 0), {"all_to_all": 1}),
        (lambda t: lamina.ppermute(t, [(0, 1), (1, 0)], axis="x"), {"collective_permute": 1}),
        (lambda t: lamina.shard(t, t.mesh, ["y", "x"]), {"collective_permute": 1}),
        (lambda t: lamina.shard(t, t.mesh, ["x", "y"]), {}),
        (lambda t: lamina.all_reduce(t, reduce_axes="y"), {"all_reduce": 1}),
        (lambda t: lamina.all_reduce(t, reduce_axes="y", reduce_op="max"), {"all_reduce": 1}),
        (lambda t: lamina.reduce_scatter(t, 0, reduce_axes="y"), {"reduce_scatter": 1}),
    ],
    ids=["gather one", "all-to-all", "ppermute", "swap", "nothing", "sum", "max", "reduce-scatter"],
)
def test_the_collectives_of_an_op(op, expected):
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    t = lamina.shard(np.ones((8, 8), np.float32), mesh, ["x", "y"])
    assert collectives(lowered(op, t)) == expected


def test_a_simulated_mesh_has_no_collectives():
    mesh = DeviceMesh.simulated((2, 4), ("x", "y"))
    t = lamina.shard(np.ones((8, 8), np.float32), mesh, ["x"], partial={"y": "sum"})
    assert not collectives(lowered(lambda t: lamina.shard(t, mesh, ["y", "x"]), t))


def test_the_backward_program_is_planned_too():
    """The gradient of a gather is a slice, that of a reduction nothing: no collective is invented."""
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    t = lamina.shard(np.ones((8, 8), np.float32), mesh, ["x"], partial={"y": "sum"})

    def f(t):
        return jnp.sum(lamina.all_gather(lamina.all_reduce(t)).jax() * 2.0)

    # The value itself isn't needed for the gradient of a linear function.
    assert collectives(lowered(jax.grad(f), t)) == {}


def test_the_steps_show_in_profiles():
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    t = lamina.shard(np.ones((8, 8), np.float32), mesh, [None], partial={"x": "sum", "y": "sum"})
    op = lambda t: lamina.shard(t, mesh, [None, "x"])  # noqa: E731
    text = jax.jit(op).lower(t).as_text(debug_info=True)
    (leg,) = primitive.route(t._held, lamina.shard(t, mesh, [None, "x"])._held)
    steps = leg.plan(4).steps
    assert steps
    for step in steps:
        assert str(step) in text, step


# -- shards read as pieces: no data moves -----------------------------------------------------------------------------

RELABELS: dict[str, tuple[tuple[int, ...], list, str]] = {
    "one axis": ((8, 8), ["x", None], "x"),
    "the minor axis of a nested dim": ((16, 8), [("x", "y"), None], "y"),
    "the major axis of a nested dim": ((16, 8), [("x", "y"), None], "x"),
    "the major axis, nested against mesh order": ((16, 8), [("y", "x"), None], "y"),
    "the middle of three": ((32, 8), [("x", "y", "z"), None], "y"),
    "both ends of three": ((32, 8), [("x", "y", "z"), None], "xz"),
    "two dims": ((16, 16), [("x", "z"), "y"], "zy"),
    "beside a split dim": ((16, 8), ["x", ("z", "y")], "x"),
}


@pytest.mark.parametrize("op, reduction", [("sum", "all-reduce"), ("max", "all-reduce")])
@pytest.mark.parametrize("name", RELABELS)
def test_reducing_shards_moves_nothing_but_the_reduction(name, op, reduction):
    """The relabel is a reshape and a transpose in JAX's eyes; XLA must see that it's local to each device."""
    shape, specs, axes = RELABELS[name]
    mesh = DeviceMesh.create((2, 2, 2), ("x", "y", "z"))
    t = lamina.shard(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), mesh, specs)
    f = lambda t: lamina.all_reduce(t, reduce_op=op, reduce_axes=list(axes))  # noqa: E731
    found = compiled_collectives(f, t)
    assert set(found) == {reduction} and found[reduction] == 1, found


@pytest.mark.parametrize("name", RELABELS)
def test_scattering_shards_moves_nothing_but_the_reduction(name):
    shape, specs, axes = RELABELS[name]
    mesh = DeviceMesh.create((2, 2, 2), ("x", "y", "z"))
    t = lamina.shard(np.zeros(shape, np.float32), mesh, specs)
    f = lambda t: lamina.reduce_scatter(t, 1, reduce_axes=list(axes))  # noqa: E731
    found = compiled_collectives(f, t)
    assert sum(found.values()) == 1 and set(found) <= {"reduce-scatter", "all-reduce"}, found


def test_untiled_all_to_all_moves_nothing_but_the_exchange():
    mesh = DeviceMesh.create((2, 4), ("x", "y"))
    t = lamina.shard(np.zeros((4, 6, 16), np.float32), mesh, [None, "x", "y"])
    found = compiled_collectives(lambda t: lamina.all_to_all(t, 0, 2, tiled=False), t)
    assert found == {"all-to-all": 1}


# -- the program cache ------------------------------------------------------------------------------------------------


class TestProgramCache:
    def test_a_repeated_op_is_found(self):
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        t = lamina.shard(np.ones((6, 6), np.float32), mesh, ["x", "y"])
        lamina.all_gather(t)
        before = programs.runner.cache_info()
        for _ in range(5):
            lamina.all_gather(t)
        after = programs.runner.cache_info()
        assert (after.misses, after.hits - before.hits) == (before.misses, 5)

    def test_an_equal_layout_made_anew_is_found(self):
        def gather():
            mesh = DeviceMesh.create((2, 3), ("x", "y"))
            return lamina.all_gather(lamina.shard(np.ones((6, 6), np.float32), mesh, [("x",), lamina.DimSpec("y")]))

        gather()
        before = programs.runner.cache_info().misses
        gather()
        assert programs.runner.cache_info().misses == before

    def test_dtypes_share_an_entry(self):
        """JAX itself specialises the program by dtype."""
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        lamina.all_gather(lamina.shard(np.ones((6, 6), np.float32), mesh, ["y"]))
        before = programs.runner.cache_info().misses
        result = lamina.all_gather(lamina.shard(np.ones((6, 6), np.int8), mesh, ["y"]))
        assert result.dtype == np.int8
        assert programs.runner.cache_info().misses == before

    @pytest.mark.parametrize("cache", [programs.program, programs.runner], ids=["programs", "runners"])
    def test_it_is_bounded(self, cache):
        info = cache.cache_info()
        assert info.maxsize == programs.CACHED_PROGRAMS
        assert info.currsize <= info.maxsize

    def test_inside_of_jit_no_program_is_made(self):
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        t = lamina.shard(np.ones((6, 12), np.float32), mesh, ["x", "y"])
        before = programs.runner.cache_info().misses
        jax.jit(lambda t: lamina.shard(t, mesh, ["y", "x"]))(t)
        assert programs.runner.cache_info().misses == before


# -- donation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [DeviceMesh.create, DeviceMesh.simulated], ids=["real", "simulated"])
class TestDonate:
    @pytest.mark.parametrize("specs", [["y", "x"], [None], [("y", "x")]], ids=str)
    def test_the_source_is_gone(self, specs, make):
        mesh = make((2, 3), ("x", "y"))
        t = lamina.shard(np.arange(36.0, dtype=np.float32).reshape(6, 6), mesh, ["x", "y"])
        array = t._array
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "Some donated buffers were not usable" is noise that the user can't act on
            moved = lamina.shard(t, mesh, specs, donate=True)
        np.testing.assert_array_equal(moved.numpy(), np.arange(36.0).reshape(6, 6))
        assert array.is_deleted()

    def test_nothing_to_do_keeps_the_tensor(self, make):
        mesh = make((2, 3), ("x", "y"))
        t = lamina.shard(np.ones((6, 6)), mesh, ["x", "y"])
        same = lamina.shard(t, mesh, ["x", "y"], donate=True)
        np.testing.assert_array_equal(same.numpy(), np.ones((6, 6)))

    def test_pieces_that_go_by_two_transitions(self, make):
        mesh = make((2, 3), ("x", "y"))
        t = lamina.shard(np.arange(6.0, dtype=np.float32), mesh, [None], partial={"x": "sum"})
        array = t._array
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            moved = lamina.shard(t, mesh, [None], partial={"x": "max"}, donate=True)
        np.testing.assert_array_equal(moved.numpy(), np.arange(6.0))
        assert array.is_deleted()

    def test_without_donate_the_source_stays(self, make):
        mesh = make((2, 3), ("x", "y"))
        t = lamina.shard(np.ones((6, 6)), mesh, ["x", "y"])
        lamina.shard(t, mesh, ["y", "x"])
        np.testing.assert_array_equal(t.numpy(), np.ones((6, 6)))

    @pytest.mark.parametrize(
        "fail",
        [
            lambda t: lamina.shard(t, t.mesh, ["x", "x"], donate=True),
            lambda t: lamina.shard(t, t.mesh, [None], donate=True, memory_limit=1),
            lambda t: lamina.shard(t, t.mesh, ["y", "x"], donate=True, speed=11),
            lambda t: lamina.shard(t, t.mesh, [None, None, None], donate=True),
        ],
        ids=["axis used twice", "memory limit", "unknown keyword", "too many entries"],
    )
    def test_a_failed_call_leaves_the_input_usable(self, fail, make):
        mesh = make((2, 3), ("x", "y"))
        t = lamina.shard(np.ones((6, 6), np.float32), mesh, ["x", "y"])
        with pytest.raises((lamina.LaminaError, TypeError)):
            fail(t)
        np.testing.assert_array_equal(t.numpy(), np.ones((6, 6)))


def test_inside_of_jit_donate_is_left_to_jit():
    mesh = DeviceMesh.create((2, 3), ("x", "y"))
    t = lamina.shard(np.ones((6, 6), np.float32), mesh, ["x", "y"])
    jax.jit(lambda t: lamina.shard(t, mesh, ["y", "x"], donate=True))(t)
    np.testing.assert_array_equal(t.numpy(), np.ones((6, 6)))


def test_host_data_is_copied_not_borrowed():
    """The caller may go on writing to its array."""
    for make in (DeviceMesh.create, DeviceMesh.simulated):
        mesh = make((2,), ("x",))
        mine = np.arange(4.0, dtype=np.float32)
        for specs in (["x"], [None]):
            t = lamina.shard(mine, mesh, specs)
            mine[0] = 77
            np.testing.assert_array_equal(t.numpy(), [0, 1, 2, 3])
            mine[0] = 0


def test_host_blocks_are_placed_once_each():
    """Replicas share one host block, and each device is sent just its part."""
    mesh = DeviceMesh.create((2, 4), ("x", "y"))
    held = storage(mesh, Layout(mesh.axes, [("x",), ()]), (6, 3))
    array = transfer.place(np.zeros((6, 3), np.float32), held)
    assert [shard.data.shape for shard in array.addressable_shards] == [(3, 3)] * 8


# -- the queue --------------------------------------------------------------------------------------------------------

# On virtual CPU devices every collective waits, in a thread pool, for all participants.  jax 0.10.2 deadlocks (and
# aborts after a while) when many such programs are queued, and this depends on timing.  So each variant runs in a
# process of its own, which can be ended, with a time limit far above the few seconds that it needs.
QUEUED = {
    "all_gather": """
        for i in range(3000):
            out = lamina.all_gather(t)
    """,
    "permute": """
        for i in range(3000):
            t = out = lamina.shard(t, mesh, ["y", "x"] if i % 2 == 0 else ["x", "y"])
    """,
    "a mix on two meshes": """
        other = lamina.DeviceMesh([lamina.CPU(i) for i in range(8)], (8,), ("d",))
        u = lamina.shard(value, other, [None], partial={"d": "sum"})
        for i in range(750):
            a = lamina.all_to_all(lamina.shard(t, mesh, ["x", None]), 1, 0)
            b = lamina.all_reduce(t, reduce_axes="x")
            c = lamina.reduce_scatter(u, 0)
            out = lamina.ppermute(t, [(0, 7), (7, 0)])
    """,
    "beside programs of the user without collectives": """
        double = jax.jit(lambda a: jnp.sin(a) * 2)
        for i in range(3000):
            mine = double(t.jax())
            out = lamina.all_gather(t)
            host = double(jnp.ones(8))
    """,
    "gradients": """
        f = lambda t: jnp.sum(lamina.all_gather(lamina.shard(t, mesh, ["y", "x"])).jax())
        step = jax.jit(jax.grad(f))
        for i in range(300):
            out = jax.grad(f)(t)
        for i in range(300):
            t2 = lamina.all_gather(t)
            out = lamina.shard(t2, mesh, [("x", "y")])
    """,
}


@pytest.mark.parametrize("variant", QUEUED)
def test_3000_queued_collectives_never_hang(variant):
    script = (
        textwrap.dedent("""
            import jax; jax.config.update("jax_num_cpu_devices", 8)
            import jax.numpy as jnp, numpy as np, lamina
            mesh = lamina.DeviceMesh.create((2, 4), ("x", "y"))
            value = np.arange(64.0, dtype=np.float32).reshape(8, 8)
            t = lamina.shard(value, mesh, ["x", "y"])
        """)
        + textwrap.dedent(QUEUED[variant])
        + "\njax.block_until_ready(out)\nprint('done')"
    )
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240)
    assert run.stdout == "done\n", run.stderr[-2000:]


@pytest.mark.parametrize("reduce", [lamina.all_reduce, partial(lamina.reduce_scatter, axis=0)], ids=["all", "scatter"])
def test_shards_are_read_as_pieces_and_reduced_by_one_program(reduce):
    """Two programs took 1.7 to 2.6 times as long as JAX's one on 8 devices."""
    x = lamina.shard(values((8, 4)), mesh_of({"x": 2, "y": 2}), ["x"])
    relabel.as_pieces.cache_clear()
    relabel.reduction.cache_clear()
    expected = values((8, 4))[:4] + values((8, 4))[4:]
    np.testing.assert_array_equal(reduce(x).numpy(), expected)
    assert (relabel.as_pieces.cache_info().currsize, relabel.reduction.cache_info().currsize) == (0, 1)
    np.testing.assert_array_equal(jax.jit(reduce)(x).numpy(), expected)
