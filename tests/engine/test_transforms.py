"""JAX's transformations take Tensors: jit, vmap, scan, cond, checkpoint, tree functions, and what is built on them.

Here the question is whether a transformation keeps values *and* layouts; derivatives are in test_gradients.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamina
from lamina import CPU, DeviceMesh, TransformError

MESHES = {"real": DeviceMesh.create, "simulated": DeviceMesh.simulated}


@pytest.fixture(params=list(MESHES))
def mesh(request) -> DeviceMesh:
    return MESHES[request.param]((2, 3), ("x", "y"))


def counted(*shape: int) -> np.ndarray:
    return np.arange(1.0, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


def assert_is(t: lamina.Tensor, value: Any, like: lamina.Tensor) -> None:
    """The value, the layout, and shards that agree with both."""
    assert isinstance(t, lamina.Tensor)
    assert t.sharding == like.sharding and t.shape == like.shape
    np.testing.assert_allclose(t.numpy(), value, rtol=1e-6)
    for mine, other in zip(t.shards, like.shards, strict=True):
        assert mine.shape == other.shape
        assert mine.devices() == other.devices()


# -- jit --------------------------------------------------------------------------------------------------------------


class TestJit:
    def test_takes_and_returns_tensors(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        moved = jax.jit(lambda t: lamina.shard(t, mesh, [("y", "x")]))(t)
        assert_is(moved, counted(5, 4), lamina.shard(counted(5, 4), mesh, [("y", "x")]))

    def test_the_second_call_does_not_trace_again(self, mesh):
        traces = []

        @jax.jit
        def f(t):
            traces.append(t)
            return lamina.all_gather(t)

        first, second = (lamina.shard(counted(5, 4) * k, mesh, ["x", "y"]) for k in (1, 2))
        f(first)
        np.testing.assert_array_equal(f(second).numpy(), 2 * counted(5, 4))
        assert len(traces) == 1
        assert jax.tree.structure(first) == jax.tree.structure(second)
        # An equal mesh and layout made anew is the same to JAX.
        make = DeviceMesh.simulated if mesh.is_simulated else DeviceMesh.create
        f(lamina.shard(counted(5, 4), make((2, 3), ("x", "y")), [lamina.DimSpec("x"), ("y",)]))
        assert len(traces) == 1
        f(lamina.shard(counted(5, 4), mesh, ["y", "x"]))
        assert len(traces) == 2

    def test_outputs_feed_the_next_call_without_a_trace(self, mesh):
        """As a training loop does: state goes round and round."""
        traces = []

        @jax.jit
        def step(t):
            traces.append(t)
            gathered = lamina.shard(t, mesh, ["y"])
            return lamina.shard(jax.tree.map(lambda a: a + 1, gathered), mesh, ["x", None], partial={"y": "sum"})

        t = lamina.shard(counted(6, 4), mesh, ["x"], partial={"y": "sum"})
        for _ in range(3):
            t = step(t)
        np.testing.assert_allclose(t.numpy(), counted(6, 4) + 3)
        assert len(traces) == 1

    @pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
    def test_an_array_becomes_a_tensor_inside(self, kind, mesh):
        """The program must run on the mesh's devices, though its argument names none of them."""
        x = kind(counted(5, 4))
        moved = jax.jit(lambda x: lamina.shard(lamina.shard(x, mesh, ["x", "y"]), mesh, ["y"]))(x)
        assert_is(moved, counted(5, 4), lamina.shard(counted(5, 4), mesh, ["y"]))
        gathered = jax.jit(lambda x: lamina.all_gather(lamina.shard(x, mesh, ["x", "y"])).jax() * 2)(x)
        np.testing.assert_array_equal(gathered, 2 * counted(5, 4))

    def test_a_tensor_whose_array_is_on_the_host(self, mesh):
        """What `jax.device_get` makes of a pytree of Tensors, and what numpy arithmetic on the leaves gives."""
        t = jax.device_get(lamina.shard(counted(5, 4), mesh, ["x", "y"]))
        np.testing.assert_array_equal(t.numpy(), counted(5, 4))
        np.testing.assert_array_equal(lamina.all_gather(t).numpy(), counted(5, 4))
        np.testing.assert_array_equal(jax.jit(lamina.all_gather)(t).numpy(), counted(5, 4))
        assert [part.shape for part in t.shards] == [
            part.shape for part in lamina.shard(counted(5, 4), mesh, ["x", "y"]).shards
        ]

    def test_an_array_sharded_inside_needs_no_constraint_of_the_user(self):
        """The result's shards lie on the devices of the mesh, one each, also as XLA sees it."""
        mesh = DeviceMesh.create((4,), ("x",))
        t = jax.jit(lambda x: lamina.shard(x, mesh, ["x"]))(counted(8))
        assert len(t.jax().sharding.device_set) == 4

    def test_closed_over_tensors_are_constants(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        value = jax.jit(lambda factor: lamina.all_gather(t).jax() * factor)(2.0)
        np.testing.assert_array_equal(value, 2 * counted(5, 4))

    def test_the_body_of_a_loop_may_close_over_a_tensor(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        total, _ = jax.lax.scan(lambda c, _: (c + jnp.sum(lamina.all_gather(t).jax()), None), 0.0, None, length=2)
        assert total == 2 * counted(5, 4).sum()

    def test_shardings_given_to_jit(self, mesh):
        """A pytree of shardings has the Tensors' structure: `jax.tree.map` makes it."""
        t, like = lamina.shard(counted(5, 4), mesh, ["x", "y"]), lamina.shard(counted(5, 4), mesh, ["y"])
        sharding_of = lambda t: jax.tree.map(lambda a: a.sharding, t)  # noqa: E731
        f = jax.jit(
            lambda t: lamina.shard(t, mesh, ["y"]), in_shardings=(sharding_of(t),), out_shardings=sharding_of(like)
        )
        assert_is(f(t), counted(5, 4), like)

    def test_disabled(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        with jax.disable_jit():
            moved = jax.jit(lambda t: lamina.shard(t, mesh, ["y"], partial={"x": "max"}))(t)
        assert_is(moved, counted(5, 4), lamina.shard(counted(5, 4), mesh, ["y"], partial={"x": "max"}))

    def test_static_and_keyword_arguments(self, mesh):
        f = jax.jit(lambda t, *, specs: lamina.shard(t, mesh, specs), static_argnames="specs")
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        assert f(t, specs=("y", "x")).sharding == lamina.NamedMapping(mesh, ["y", "x"])

    def test_donated_tensors(self, mesh):
        t = lamina.shard(counted(6, 4), mesh, ["x"])
        same = jax.jit(lambda t: jax.tree.map(lambda a: a * 2, t), donate_argnums=0)(t)
        assert t._array.is_deleted()
        np.testing.assert_array_equal(same.numpy(), 2 * counted(6, 4))

    def test_using_a_donated_tensor_is_an_error(self):
        """And not a segmentation fault, which is what jax 0.10.2 makes of a deleted array in a program that it knows.

        In a process of its own, so that the fault doesn't end the suite.
        """
        text = """
            import jax; jax.config.update("jax_num_cpu_devices", 8)
            import numpy as np, lamina
            mesh = lamina.DeviceMesh.create((2, 3), ("x", "y"))
            t, again = (lamina.shard(np.ones((6, 4)), mesh, ["x"]) for _ in range(2))
            lamina.all_gather(again), again.numpy(), again.shards  # the programs are compiled
            jax.jit(lambda t: jax.tree.map(lambda a: a * 2, t), donate_argnums=0)(t)
            for use in (lamina.all_gather, lambda t: t.numpy(), lambda t: t.shards, repr):
                try:
                    use(t)
                except (RuntimeError, ValueError) as error:
                    assert "deleted" in str(error) or "donated" in str(error), error
                else:
                    raise SystemExit("no error")
            print("fine")
        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", textwrap.dedent(text)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert run.stdout.endswith("fine\n"), run.stderr[-2000:]

    def test_nested_jit(self, mesh):
        inner = jax.jit(lambda t: lamina.shard(t, mesh, ["y"]))
        t = lamina.shard(counted(5, 4), mesh, [("x", "y")])
        assert_is(jax.jit(lambda t: inner(inner(t)))(t), counted(5, 4), lamina.shard(counted(5, 4), mesh, ["y"]))

    def test_ahead_of_time(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        compiled = jax.jit(lamina.all_gather).lower(t).compile()
        np.testing.assert_array_equal(compiled(t).numpy(), counted(5, 4))

    def test_xla_may_choose_another_sharding_for_a_result(self):
        """The layout says what the shards are, wherever XLA left the array."""
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        for specs, partial in ((["x", "y"], {}), ([("y", "x")], {}), (["x"], {"y": "sum"})):
            t = lamina.shard(counted(5, 4), mesh, specs, partial=partial)
            whole = jax.jit(lambda a: a, out_shardings=jax.NamedSharding(t._array.sharding.mesh, jax.P()))(t._array)
            astray = jax.tree.unflatten(jax.tree.structure(t), [whole])
            assert_is(astray, counted(5, 4), t)
            for mine, right in zip(astray.shards, t.shards, strict=True):
                np.testing.assert_array_equal(mine, right)
            np.testing.assert_array_equal(lamina.all_gather(astray).numpy(), counted(5, 4))
            there = lamina.shard(astray, DeviceMesh([CPU(7), CPU(6)], (2,), ("a",)), [None, "a"])
            np.testing.assert_array_equal(there.numpy(), counted(5, 4))


class TestAstray:
    """A Tensor whose array isn't where its layout says: whoever else moved it, the layout holds.

    `jax.device_put`, a checkpoint library, or a host callback may have done it.
    """

    USES = {  # noqa: RUF012
        "numpy": lambda t: t.numpy(),
        "all_gather": lamina.all_gather,
        "all_reduce": lambda t: lamina.all_reduce(t, reduce_axes="x"),
        "to other devices": lambda t: lamina.shard(t, DeviceMesh([CPU(7), CPU(6)], (2,), ("a",)), ["a"]),
    }

    @pytest.mark.parametrize("use", USES)
    def test_on_one_device(self, use):
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        t = lamina.shard(counted(6, 4), mesh, ["x", "y"])
        astray = jax.device_put(t, jax.devices()[0])
        op = self.USES[use]
        np.testing.assert_array_equal(np.asarray(op(astray)), np.asarray(op(t)))

    def test_its_shards(self):
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        astray = jax.device_put(t, jax.devices()[0])
        for mine, right in zip(astray.shards, t.shards, strict=True):
            np.testing.assert_array_equal(mine, right)
            assert mine.devices() == right.devices()

    def test_in_a_callback(self):
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        t = lamina.shard(counted(6, 4), mesh, ["x", "y"])
        seen = []
        jax.jit(lambda t: jax.debug.callback(lambda t: seen.append(repr(t)), t))(t)
        jax.effects_barrier()
        assert seen == [repr(t)]

    def test_sent_to_one_device_by_jit(self):
        """Inside jit all devices hold the result; outside it's on the device that it says."""
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        there = jax.jit(lambda t: lamina.to_device(t, CPU(5)))(t)
        assert there.device == CPU(5)
        assert there.shards[0].devices() == {jax.devices("cpu")[5]}


class TestOtherMeshes:
    def test_the_same_devices_under_other_names_inside_of_jit(self):
        mesh, flat = DeviceMesh.create((2, 3), ("x", "y")), DeviceMesh.create((6,), ("z",))
        t, like = lamina.shard(counted(5, 4), mesh, ["x", "y"]), lamina.shard(counted(5, 4), flat, ["z"])
        send = lambda t: lamina.shard(t, flat, ["z"])  # noqa: E731
        assert_is(jax.jit(send)(t), counted(5, 4), like)
        assert_is(
            jax.vmap(send)(lamina.shard(counted(2, 5, 4), mesh, [None, "x"])),
            counted(2, 5, 4),
            lamina.shard(counted(2, 5, 4), flat, [None, "z"]),
        )
        gradient = jax.jit(jax.grad(lambda t: jnp.sum(lamina.all_gather(send(t)).jax() ** 2)))(t)
        assert_is(gradient, 2 * counted(5, 4), t)

    def test_other_devices_inside_of_jit_are_a_clear_error(self):
        mesh, other = DeviceMesh.create((2, 3), ("x", "y")), DeviceMesh([CPU(7), CPU(6)], (2,), ("d",))
        t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
        with pytest.raises(
            TransformError, match=r"inside jax.jit a value can't move .*(\n.*)*fix: move it outside of jax.jit"
        ):
            jax.jit(lambda t: lamina.shard(t, other, ["d"]))(t)

    def test_other_devices_under_eager_vmap(self):
        mesh, other = DeviceMesh.create((2, 3), ("x", "y")), DeviceMesh([CPU(7), CPU(6)], (2,), ("d",))
        t = lamina.shard(counted(3, 5), mesh, [None, "x"])
        out = jax.vmap(lambda t: lamina.shard(t, other, ["d"]))(t)
        assert_is(out, counted(3, 5), lamina.shard(counted(3, 5), other, [None, "d"]))

    @pytest.mark.parametrize("kind", ["Auto", "Explicit"])
    def test_beside_the_mesh_that_the_user_set(self, kind):
        """`jax.set_mesh` is for the user's own arrays; a Tensor brings its mesh along."""
        axis_types = (getattr(jax.sharding.AxisType, kind),) * 2
        set_by_user = jax.make_mesh((2, 4), ("x", "y"), axis_types=axis_types)
        mesh = DeviceMesh.create((2, 3), ("x", "y"))
        with jax.set_mesh(set_by_user):
            t = lamina.shard(counted(5, 4), mesh, ["x", "y"])
            np.testing.assert_array_equal(lamina.all_gather(t).numpy(), counted(5, 4))
            np.testing.assert_array_equal(t.numpy(), counted(5, 4))

    def test_an_array_with_an_explicit_mesh(self):
        """`lamina.from_jax` takes it as it is, and all ops work."""
        explicit = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
        array = jax.device_put(counted(4, 8), jax.NamedSharding(explicit, jax.P("x", "y")))
        t = lamina.from_jax(array)
        assert t.layout.dims == (("x",), ("y",))
        np.testing.assert_array_equal(lamina.all_gather(t).numpy(), counted(4, 8))
        swapped = lamina.shard(t, t.mesh, ["y", "x"])
        np.testing.assert_array_equal(swapped.numpy(), counted(4, 8))
        gradient = jax.grad(lambda t: jnp.sum(lamina.all_gather(t).jax() ** 2))(t)
        np.testing.assert_array_equal(gradient.numpy(), 2 * counted(4, 8))


def test_threads_share_the_programs(mesh):
    t = lamina.shard(counted(5, 4), mesh, ["x", "y"])

    def work(k):
        specs = [["y", "x"], [("x", "y")], [None, "y"]][k % 3]
        return np.array_equal(lamina.shard(t, mesh, specs).numpy(), counted(5, 4))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(60)))


# -- vmap -------------------------------------------------------------------------------------------------------------


class TestVmapOverArrays:
    @pytest.mark.parametrize("in_axes", [0, 1, -1])
    def test_each_entry_is_sharded(self, in_axes, mesh):
        x = counted(4, 5, 3)
        f = lambda row: lamina.all_gather(lamina.shard(row, mesh, ["x", "y"])).jax() ** 2  # noqa: E731
        np.testing.assert_allclose(jax.vmap(f, in_axes)(x), np.moveaxis(x, in_axes, 0) ** 2)
        np.testing.assert_allclose(jax.jit(jax.vmap(f, in_axes))(x), np.moveaxis(x, in_axes, 0) ** 2)

    @pytest.mark.parametrize("out_axes", [0, 1, 2, -1, -2, -3])
    def test_a_tensor_comes_out(self, out_axes, mesh):
        x = counted(4, 5, 3)
        out = jax.vmap(lambda row: lamina.shard(row, mesh, ["x", "y"]), out_axes=out_axes)(x)
        specs = ["x", "y"]
        specs.insert(out_axes % 3, None)
        assert out.sharding == lamina.NamedMapping(mesh, specs)
        np.testing.assert_array_equal(out.numpy(), np.moveaxis(x, 0, out_axes))

    def test_twice(self, mesh):
        x = counted(2, 4, 5)
        f = lambda row: lamina.all_gather(lamina.shard(row, mesh, [("y", "x")])).jax()  # noqa: E731
        np.testing.assert_array_equal(jax.vmap(jax.vmap(f))(x), x)


OPS: dict[str, tuple[list, dict, Callable, Callable]] = {
    # name: (dim_specs of one entry of shape (6, 4), partial, op, the same in numpy)
    "shard": (["x", "y"], {}, lambda t: lamina.shard(t, t.mesh, [None, ("y", "x")]), lambda v: v),
    "shard into pieces": (["x"], {}, lambda t: lamina.shard(t, t.mesh, [None], partial={"x": "max"}), lambda v: v),
    "all_gather": ([("y", "x")], {}, lamina.all_gather, lambda v: v),
    "all_reduce of pieces": (["x"], {"y": "prod"}, lamina.all_reduce, lambda v: v),
    "all_reduce of shards": (
        ["y", "x"],
        {},
        lambda t: lamina.all_reduce(t, reduce_op="max", reduce_axes="y"),
        lambda v: v.reshape(3, 2, 4).max(0),
    ),
    "reduce_scatter": ([None, "x"], {"y": "avg"}, lambda t: lamina.reduce_scatter(t, 0), lambda v: v),
    "all_to_all": (["y"], {}, lambda t: lamina.all_to_all(t, 1, 0), lambda v: v),
    "distributed_broadcast": ([("x", "y")], {}, lamina.distributed_broadcast, lambda v: v),
    "ppermute": (
        ["y", "x"],
        {},
        lambda t: lamina.ppermute(t, [(0, 1), (1, 2)], axis="y"),
        lambda v: np.concatenate([np.zeros_like(v[:2]), v[:4]]),
    ),
}


class TestVmapOverATensor:
    """`in_axes` and `out_axes` count the tensor's dims, whatever axes its array has in front for pieces."""

    @pytest.mark.parametrize("name", OPS)
    @pytest.mark.parametrize("in_axes", [0, 1, 2, -1])
    def test_every_op(self, name, in_axes, mesh):
        specs, partial, op, numpy_op = OPS[name]
        entries = counted(3, 6, 4) / 10
        specs = [*specs, *[None] * (2 - len(specs))]
        specs.insert(in_axes % 3, None)
        t = lamina.shard(np.moveaxis(entries, 0, in_axes), mesh, specs, partial=partial)
        out = jax.jit(jax.vmap(op, in_axes=in_axes))(t)
        assert isinstance(out, lamina.Tensor)
        np.testing.assert_allclose(out.numpy(), np.stack([numpy_op(entry) for entry in entries]), rtol=1e-5)
        one = op(lamina.shard(entries[0], mesh, [s for i, s in enumerate(specs) if i != in_axes % 3], partial=partial))
        assert out.layout.dims == ((), *one.layout.dims) and out.layout.partial == one.layout.partial

    def test_all_to_all_not_tiled(self, mesh):
        entries = counted(2, 3, 6)
        t = lamina.shard(entries, mesh, [None, None, "y"])
        op = lambda t: lamina.all_to_all(t, 0, 1, tiled=False)  # noqa: E731
        out = jax.vmap(op)(t)
        one = op(lamina.shard(entries[1], mesh, [None, "y"]))
        np.testing.assert_array_equal(out.numpy()[1], one.numpy())
        assert out.layout.dims == ((), *one.layout.dims)

    @pytest.mark.parametrize("out_axes", [0, 1, 2, -1, -2, -3])
    def test_out_axes(self, out_axes, mesh):
        entries = counted(4, 5, 7)
        t = lamina.shard(entries, mesh, [None, "x"], partial={"y": "max"})
        out = jax.vmap(lambda t: lamina.shard(t, mesh, ["y", "x"]), out_axes=out_axes)(t)
        specs = ["y", "x"]
        specs.insert(out_axes % 3, None)
        like = lamina.shard(np.moveaxis(entries, 0, out_axes), mesh, specs)
        assert_is(out, like.numpy(), like)

    @pytest.mark.parametrize("out_axes", [0, 1, 2, -1])
    def test_pieces_that_come_out(self, out_axes, mesh):
        entries = counted(4, 5, 7)
        t = lamina.shard(entries, mesh, [None, "x"], partial={"y": "max"})
        out = jax.vmap(lambda t: t, out_axes=out_axes)(t)
        specs = ["x", None]
        specs.insert(out_axes % 3, None)
        like = lamina.shard(np.moveaxis(entries, 0, out_axes), mesh, specs, partial={"y": "max"})
        assert_is(out, like.numpy(), like)

    def test_none_passes_the_whole_tensor(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x"], partial={"y": "sum"})
        factors = np.arange(3.0, dtype=np.float32)
        out = jax.vmap(lambda t, k: lamina.all_gather(lamina.all_reduce(t)).jax() * k, in_axes=(None, 0))(t, factors)
        np.testing.assert_allclose(out, counted(5, 4) * factors[:, None, None])

    def test_out_axes_none_returns_what_was_not_mapped(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x"], partial={"y": "sum"})
        same, _ = jax.vmap(lambda t, k: (lamina.all_reduce(t), k), in_axes=(None, 0), out_axes=(None, 0))(
            t, np.arange(3.0)
        )
        assert_is(same, counted(5, 4), lamina.shard(counted(5, 4), mesh, ["x"]))

    def test_an_unmapped_tensor_is_repeated_when_an_axis_is_asked_for(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x"], partial={"y": "sum"})
        out, _ = jax.vmap(lambda t, k: (t, k), in_axes=(None, 0), out_axes=(1, 0))(t, np.arange(3.0))
        assert out.layout.dims == (("x",), (), ())
        np.testing.assert_array_equal(out.numpy(), np.stack([counted(5, 4)] * 3, axis=1))

    def test_two_tensors_mapped_over_different_dims(self, mesh):
        a = lamina.shard(counted(3, 5), mesh, [None, "x"])
        b = lamina.shard(counted(5, 3), mesh, ["y"])
        out = jax.vmap(lambda a, b: lamina.all_gather(a).jax() + lamina.all_gather(b).jax(), in_axes=(0, 1))(a, b)
        np.testing.assert_array_equal(out, counted(3, 5) + counted(5, 3).T)

    def test_a_pytree_of_tensors(self, mesh):
        tree = {"a": lamina.shard(counted(3, 5), mesh, [None, "x"]), "b": [lamina.shard(counted(3), mesh, [None])]}
        out = jax.vmap(lambda tree: lamina.shard(tree["a"], mesh, ["y"]))(tree)
        assert_is(out, counted(3, 5), lamina.shard(counted(3, 5), mesh, [None, "y"]))

    def test_nested(self, mesh):
        entries = counted(2, 5, 3, 4)
        t = lamina.shard(entries, mesh, [None, "x", None, "y"])
        f = lambda t: lamina.shard(t, mesh, [("x", "y")])  # noqa: E731
        out = jax.vmap(jax.vmap(f, in_axes=1, out_axes=-1), in_axes=0, out_axes=1)(t)
        # inner: (5, 3, 4) over dim 1 → (5, 4, 3); outer: its 2 entries at dim 1 → (5, 2, 4, 3)
        like = lamina.shard(np.transpose(entries, (1, 0, 3, 2)), mesh, [("x", "y")])
        assert_is(out, like.numpy(), like)

    def test_inside_of_jit_and_around_it(self, mesh):
        t = lamina.shard(counted(3, 5), mesh, [None, "x"], partial={"y": "avg"})
        like = lamina.shard(counted(3, 5), mesh, [None, "y"])
        f = lambda t: lamina.shard(t, mesh, ["y"])  # noqa: E731
        assert_is(jax.jit(jax.vmap(f))(t), counted(3, 5), like)
        assert_is(jax.vmap(jax.jit(f))(t), counted(3, 5), like)

    def test_inside_the_function_it_is_an_ordinary_tensor(self, mesh):
        t = lamina.shard(counted(5, 3, 4), mesh, ["x"], partial={"y": "sum"})

        def f(entry):
            assert (entry.shape, entry.ndim) == ((5, 4), 2)
            assert entry.layout.dims == (("x",), ()) and entry.layout.partial_axes == ("y",)
            assert "traced" in repr(entry)
            return entry

        assert jax.vmap(f, in_axes=1)(t).shape == (3, 5, 4)

    @pytest.mark.parametrize("in_axes", [0, -2])
    def test_a_split_dim_is_a_clear_error(self, in_axes, mesh):
        t = lamina.shard(counted(6, 4), mesh, [("x", "y")])
        with pytest.raises(TransformError) as caught:
            jax.vmap(lambda t: t, in_axes=in_axes)(t)
        assert str(caught.value).startswith(
            f"jax.vmap(in_axes={in_axes}): dim 0 of this Tensor is split over ('x', 'y') in [x=2,y=3] (x,y),-, "
            "so its entries lie on different devices\n"
            "  fix: map over a whole dim, or lamina.all_gather(x, 0) first"
        )

    @pytest.mark.parametrize("in_axes", [2, -3])
    def test_a_dim_out_of_range(self, in_axes, mesh):
        t = lamina.shard(counted(6, 4), mesh, [None], partial={"x": "sum"})
        with pytest.raises(TransformError, match=rf"jax.vmap\(in_axes={in_axes}\) is out of range"):
            jax.vmap(lambda t, other: t, in_axes=(in_axes, 0))(t, np.arange(6))

    @pytest.mark.parametrize("out_axes", [3, -4])
    def test_an_out_axis_out_of_range(self, out_axes, mesh):
        t = lamina.shard(counted(6, 4), mesh, [None], partial={"x": "sum"})
        with pytest.raises(TransformError, match=rf"jax.vmap\(out_axes={out_axes}\) is out of range"):
            jax.vmap(lambda t: lamina.shard(t, mesh, [None]), out_axes=out_axes)(lamina.shard(t, mesh, [None, None]))

    def test_reading_a_mapped_tensor_is_a_clear_error(self, mesh):
        t = lamina.shard(counted(3, 4), mesh, [None, "x"])
        with pytest.raises(TransformError, match="traced"):
            jax.vmap(lambda t: t.shards[0])(t)


class TestVmapAndGrad:
    @pytest.mark.parametrize("op", ["sum", "prod", "max"])
    def test_of_each_other(self, op, mesh):
        t = lamina.shard(counted(3, 5) / 4, mesh, [None, "x"], partial={"y": op})

        def f(entry):
            return jnp.sum(lamina.shard(entry, mesh, [None]).jax() ** 2)

        per_entry = jax.jit(jax.vmap(jax.grad(f)))(t)
        at_once = jax.jit(jax.grad(lambda t: jnp.sum(jax.vmap(f)(t))))(t)
        assert per_entry.sharding == at_once.sharding == t.sharding
        for mine, other in zip(per_entry.shards, at_once.shards, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)
        np.testing.assert_allclose(at_once.shards[0][0, 0], 2 * counted(3, 5)[0, 0] / 4, rtol=1e-6)

    def test_mapped_over_a_dim_in_the_middle(self, mesh):
        t = lamina.shard(counted(5, 3, 4), mesh, ["x"], partial={"y": "avg"})
        f = lambda entry: jnp.sum(lamina.shard(entry, mesh, [None]).jax() ** 2)  # noqa: E731
        gradient = jax.grad(lambda t: jnp.sum(jax.vmap(f, in_axes=1)(t)))(t)
        assert gradient.sharding == t.sharding
        for mine, held in zip(gradient.shards, t.shards, strict=True):
            np.testing.assert_allclose(mine, 2 * np.asarray(held) / 3, rtol=1e-6)  # AVG over 3: a third each


# -- control flow -----------------------------------------------------------------------------------------------------


class TestScan:
    def test_carries_a_tensor(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x"], partial={"y": "sum"})

        def step(carry, k):
            moved = lamina.shard(carry, mesh, [None, "y"])
            doubled = jax.tree.map(lambda a: a * k, moved)
            return lamina.shard(doubled, mesh, ["x"], partial={"y": "sum"}), None

        last, _ = jax.lax.scan(step, t, jnp.array([2.0, 3.0]))
        assert_is(last, 6 * counted(5, 4), t)

    def test_runs_over_a_tensor_whose_dim_0_is_whole(self, mesh):
        t = lamina.shard(counted(3, 5), mesh, [None, "x"])

        def step(total, entry):
            assert entry.shape == (5,)
            value = lamina.shard(entry, mesh, [None])
            return total + value.jax(), lamina.shard(entry, mesh, ["y"])

        total, entries = jax.lax.scan(step, jnp.zeros(5), t)
        np.testing.assert_allclose(total, counted(3, 5).sum(0))
        assert_is(entries, counted(3, 5), lamina.shard(counted(3, 5), mesh, [None, "y"]))

    def test_runs_over_a_dim_as_long_as_an_axis_of_the_mesh(self, mesh):
        """Where sizes coincide, a dim must not be taken for the pieces of an axis, or for another dim."""
        t = lamina.shard(np.ones((2, 2, 2), np.float32), mesh, [None, "x", None])
        _, out = jax.lax.scan(lambda c, entry: (c, lamina.shard(entry, mesh, [None, "x"])), 0, t)
        assert_is(out, np.ones((2, 2, 2)), lamina.shard(np.ones((2, 2, 2), np.float32), mesh, [None, None, "x"]))

    @pytest.mark.parametrize(
        "specs, partial", [([None, "x"], {"y": "sum"}), (["x"], {})], ids=["pieces", "a split dim"]
    )
    def test_over_what_it_would_cut_wrongly_is_an_error(self, specs, partial, mesh):
        """scan cuts the array's first axis: the pieces of a Partial axis, or a dim that lies on several devices."""
        t = lamina.shard(counted(6, 6), mesh, specs, partial=partial)
        with pytest.raises(lamina.LaminaError, match="no layout explains"):
            jax.lax.scan(lambda c, entry: (c, lamina.all_gather(entry)), 0, t)

    def test_stacked_pieces_are_an_error_when_they_are_used(self, mesh):
        def step(carry, entry):
            return carry, lamina.shard(entry, mesh, ["x"], partial={"y": "sum"})

        _, out = jax.lax.scan(step, 0, lamina.shard(counted(3, 5), mesh, [None, "x"]))
        with pytest.raises(lamina.LaminaError, match="no layout explains"):
            lamina.all_reduce(out)

    def test_has_a_gradient(self, mesh):
        weights = lamina.shard(counted(3, 5), mesh, [None, "y"])

        def f(weights, x):
            def step(x, w):
                return lamina.shard(jax.tree.map(lambda a, b: a * b, x, w), mesh, ["y"]), None

            return jnp.sum(lamina.all_gather(jax.lax.scan(step, x, weights)[0]).jax())

        x = lamina.shard(np.ones(5, np.float32), mesh, ["y"])
        by_weights, by_x = jax.jit(jax.grad(f, argnums=(0, 1)))(weights, x)
        product = counted(3, 5).prod(0)
        assert_is(by_x, product, x)
        assert_is(by_weights, product / counted(3, 5), weights)


def test_cond_and_switch(mesh):
    t = lamina.shard(counted(5, 4), mesh, ["x"])

    @jax.jit
    def f(flag, t):
        return jax.lax.cond(
            flag,
            lambda t: lamina.shard(lamina.all_gather(t), mesh, ["y"]),
            lambda t: jax.tree.map(jnp.negative, lamina.shard(t, mesh, ["y"])),
            t,
        )

    like = lamina.shard(counted(5, 4), mesh, ["y"])
    assert_is(f(True, t), counted(5, 4), like)
    assert_is(f(False, t), -counted(5, 4), like)


def test_branches_of_cond_with_different_layouts_are_an_error(mesh):
    t = lamina.shard(counted(6, 4), mesh, ["x"])
    with pytest.raises(TypeError, match="branches?|structure|pytree"):
        jax.jit(lambda flag, t: jax.lax.cond(flag, lambda t: t, lambda t: lamina.shard(t, mesh, ["y"]), t))(True, t)


def test_while_loop(mesh):
    t = lamina.shard(np.zeros((5, 4), np.float32), mesh, ["x"])

    def body(state):
        count, t = state
        return count + 1, lamina.shard(jax.tree.map(lambda a: a + 1, lamina.all_gather(t)), mesh, ["x"])

    count, last = jax.lax.while_loop(lambda state: state[0] < 4, body, (0, t))
    assert count == 4
    assert_is(last, np.full((5, 4), 4), t)


def test_checkpoint(mesh):
    t = lamina.shard(counted(5, 4) / 8, mesh, ["x"], partial={"y": "prod"})

    def f(t):
        return jnp.sum(jnp.sin(lamina.all_gather(lamina.all_reduce(t)).jax()))

    plain, again = jax.grad(f)(t), jax.grad(jax.checkpoint(f))(t)
    assert plain.sharding == again.sharding == t.sharding
    for a, b in zip(plain.shards, again.shards, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    # Between two checkpointed parts, Tensors themselves are what is kept.
    part = jax.checkpoint(lambda t: lamina.shard(t, mesh, ["y"]))
    gradient = jax.jit(jax.grad(lambda t: jnp.sum(lamina.all_gather(part(part(t))).jax() * 3)))(t)
    assert gradient.sharding == t.sharding


def test_a_custom_vjp_over_tensors(mesh):
    @jax.custom_vjp
    def clipped(t):
        return lamina.shard(t, mesh, ["y"])

    def forward(t):
        return clipped(t), None

    def backward(_, ct):
        return (lamina.shard(jax.tree.map(lambda a: jnp.clip(a, -1, 1), ct), mesh, ["x"]),)

    clipped.defvjp(forward, backward)
    t = lamina.shard(counted(5), mesh, ["x"])
    gradient = jax.grad(lambda t: jnp.sum(lamina.all_gather(clipped(t)).jax() * 5))(t)
    assert_is(gradient, np.ones(5), t)


# -- pytrees ----------------------------------------------------------------------------------------------------------


class TestPytree:
    def test_flatten_and_back(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x"], partial={"y": "min"})
        leaves, structure = jax.tree.flatten(t)
        assert len(leaves) == 1
        assert_is(jax.tree.unflatten(structure, leaves), counted(5, 4), t)
        (path, _), *_ = jax.tree_util.tree_leaves_with_path({"w": t})
        assert jax.tree_util.keystr(path) == "['w'].array"

    def test_map_keeps_the_layout(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, [("y", "x")])
        assert_is(jax.tree.map(lambda a: a * 2, t), 2 * counted(5, 4), t)
        assert_is(jax.tree.map(lambda a, b: a + b, t, t), 2 * counted(5, 4), t)

    def test_equal_layouts_are_equal_structures(self, mesh):
        structure = lambda specs: jax.tree.structure(lamina.shard(counted(5, 4), mesh, specs))  # noqa: E731
        assert structure(["x"]) == structure([("x",), None])
        assert hash(structure(["x"])) == hash(structure([("x",), None]))
        assert structure(["x"]) != structure(["y"])

    def test_map_to_things_that_are_no_arrays(self, mesh):
        """JAX itself passes such trees around: shardings, specs, Nones, booleans."""
        t = lamina.shard(counted(5, 4), mesh, ["x"])
        assert jax.tree.leaves(jax.tree.map(lambda a: a.shape, t), is_leaf=lambda s: isinstance(s, tuple)) == [(6, 4)]
        assert jax.tree.leaves(jax.tree.map(lambda a: a.sharding, t)) == [t._array.sharding]
        assert jax.tree.leaves(jax.tree.map(lambda a: None, t)) == []
        assert jax.tree.reduce(lambda total, a: total + a.size, t, 0) == 24

    def test_transpose_of_trees(self, mesh):
        t = lamina.shard(counted(6, 4), mesh, ["x"])
        pair = jax.tree.map(lambda a: (a, 2 * a), t)
        one, two = jax.tree.transpose(jax.tree.structure(t), jax.tree.structure((0, 0)), pair)
        assert_is(one, counted(6, 4), t)
        assert_is(two, 2 * counted(6, 4), t)

    def test_a_map_that_changes_the_shape_says_so_when_it_matters(self, mesh):
        odd = jax.tree.map(lambda a: a[..., None, None], lamina.shard(counted(5, 4), mesh, ["x"]))
        assert "no layout explains" in repr(odd)
        with pytest.raises(lamina.LayoutError, match="which no layout explains"):
            lamina.all_gather(odd)

    def test_block_until_ready(self, mesh):
        t = lamina.shard(counted(5, 4), mesh, ["x"])
        assert jax.block_until_ready(t).sharding == t.sharding


def test_eval_shape(mesh):
    t = lamina.shard(counted(5, 4), mesh, ["x"])
    abstract = jax.eval_shape(lambda t: lamina.shard(t, mesh, ["y"], partial={"x": "sum"}), t)
    assert isinstance(abstract, lamina.Tensor)
    assert (abstract.shape, abstract.dtype) == ((5, 4), np.float32)
    assert abstract.sharding == lamina.NamedMapping(mesh, ["y", None], unreduced={"x": "sum"})
    # And what came out describes an argument, as for arrays.
    again = jax.eval_shape(lambda t: lamina.all_gather(lamina.all_reduce(t)), abstract)
    assert again.layout.is_replicated
    assert "5,4" in repr(again)


def test_make_jaxpr_shows_the_transition(mesh):
    t = lamina.shard(counted(5, 4), mesh, ["x"])
    text = str(jax.make_jaxpr(lambda t: lamina.shard(t, mesh, ["y"]))(t))
    assert "lamina_layout_change" in text


# -- optimisers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize(
    "optimiser",
    [optax.sgd(0.1, momentum=0.9), optax.adam(0.1), optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1))],
    ids=["sgd", "adam", "clipped adamw"],
)
def test_optax_keeps_the_layouts(optimiser, wrap, mesh):
    """Two steps on sharded parameters are two steps on plain ones; parameters and moments lie as they did."""
    plain = {"w": counted(5, 4) / 10, "b": counted(3) / 10}
    params = {
        "w": lamina.shard(plain["w"], mesh, ["x", "y"]),
        "b": lamina.shard(plain["b"], mesh, [("y", "x")]),
    }

    def loss(params, read):
        return jnp.sum(jnp.sin(read(params["w"]))) * jnp.sum(read(params["b"]) ** 2)

    def train(params, read):
        @wrap
        def step(params, state):
            gradients = jax.grad(loss)(params, read)
            updates, state = optimiser.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        state = optimiser.init(params)
        for _ in range(2):
            params, state = step(params, state)
        return params, state

    trained, state = train(params, lambda t: lamina.all_gather(t).jax())
    expected, _ = train(jax.tree.map(jnp.asarray, plain), lambda a: a)
    for name in params:
        assert trained[name].sharding == params[name].sharding
        np.testing.assert_allclose(trained[name].numpy(), expected[name], rtol=2e-5, atol=1e-6)
    moments = [leaf for leaf in jax.tree.leaves(state, is_leaf=lambda s: isinstance(s, lamina.Tensor))]
    assert {m.sharding for m in moments if isinstance(m, lamina.Tensor)} == {p.sharding for p in params.values()}
