"""Values in and out of a mesh that spans processes: every process reads the global value, from any layout.

Run with 2 devices per process.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import lamina
from lamina import CPU, DeviceMesh, NamedMapping
from tests.strategies import values

UNEVEN = (5, 7)
EVEN = values((8, 8))


def main() -> None:
    count = jax.device_count()
    mesh = DeviceMesh.create((2, count // 2), ("x", "y"))
    value = values(UNEVEN)
    layouts(mesh, value)
    parts(mesh, value)
    locals_and_simulated(mesh, value)
    computes(mesh, value)
    other_meshes(mesh, value)
    print("read everything")


def layouts(mesh: DeviceMesh, value: np.ndarray) -> None:
    """Sharded, nested, replicated and Partial, uneven and with empty blocks."""
    for spec, partial in [(["x", "y"], {}), ([("y", "x")], {}), ([], {}), ([None, "x"], {"y": "max"}), ([], ["x"])]:
        t = lamina.shard(value, mesh, spec, partial=partial)
        same(t.numpy(), value)
        assert t.tolist() == value.tolist() and repr(t).startswith("Tensor([[ 0.,")
        shards = t.shards  # of all processes
        assert len(shards) == mesh.num_devices
        same(lamina.from_shards(shards, t.sharding, t.shape).numpy(), value)
        same(np.asarray(lamina.shard(t, mesh, ["y"])), value)
    scalar = lamina.shard(np.float32(3), mesh, [], partial=["x"])
    assert scalar.item() == 3 and bool(scalar) and float(scalar) == 3


def parts(mesh: DeviceMesh, value: np.ndarray) -> None:
    """Tensors of which each process reads, or has, only its own part."""
    asked = []

    def read(part: tuple[slice, ...]) -> np.ndarray:
        asked.append(part)
        return value[part]

    t = lamina.from_callback(UNEVEN, NamedMapping(mesh, [("x", "y")]), read)
    same(t.numpy(), value)
    rows = np.array_split(value, mesh.num_devices)
    first = jax.process_index() * jax.local_device_count()
    own = [sum(map(len, rows[:device])) for device in range(first, first + jax.local_device_count())]
    assert {part[0].start for part in asked} == set(own) and len(asked) == len(set(own))  # none of the others'
    mine = np.concatenate(rows[first : first + jax.local_device_count()])
    t = lamina.from_local(mine, NamedMapping(mesh, [("x", "y")]), UNEVEN)
    same(t.numpy(), value)
    try:
        lamina.from_local(value, NamedMapping(mesh, [("x", "y")]), UNEVEN)
    except lamina.LayoutError as error:
        assert "give just what the devices of this process hold" in str(error)
    else:
        raise AssertionError("a part that isn't this process's")


def locals_and_simulated(mesh: DeviceMesh, value: np.ndarray) -> None:
    """What lies on one device of each process, and a mesh that each process plays alone."""
    here = lamina.tensor(value)
    same(here.numpy(), value)
    same(lamina.shard(here, mesh, ["x"]).numpy(), value)
    same(lamina.shard(jnp.asarray(value), mesh, [None, "y"]).numpy(), value)
    simulated = DeviceMesh.simulated((2, 3), ("a", "b"))
    there = lamina.shard(lamina.shard(value, mesh, ["x", "y"]), simulated, ["a", "b"])
    same(there.numpy(), value)
    same(lamina.shard(there, mesh, ["y"]).numpy(), value)


def computes(mesh: DeviceMesh, value: np.ndarray) -> None:
    t = lamina.shard(value, mesh, ["x", "y"])
    same(((t + 1) * t).numpy(), (value + 1) * value)
    same(lamina.all_reduce(lamina.shard(value, mesh, ["x"], partial=["y"])).numpy(), value)
    np.testing.assert_allclose(lamina.matmul(t, lamina.shard(value.T, mesh, ["y"])).numpy(), value @ value.T)
    same(lamina.spmd(lambda x: 2 * x, mesh, (["x", "y"],), ["x", "y"])(lamina.shard(EVEN, mesh, [])).numpy(), 2 * EVEN)
    same(lamina.apply(jnp.fliplr, t).numpy(), np.fliplr(value))
    key = jax.random.key(3)
    made = lamina.random.uniform(key, UNEVEN, mesh=mesh, dim_specs=["x", "y"])
    np.testing.assert_allclose(made.numpy(), jax.random.uniform(key, UNEVEN), rtol=1e-6)
    grad = jax.grad(lambda t: lamina.all_reduce((lamina.shard(t, mesh, [None, "y"]) ** 2).sum()).jax())(t)
    same(grad.numpy(), 2 * value)


def other_meshes(mesh: DeviceMesh, value: np.ndarray) -> None:
    """Between meshes of some of the processes: disjoint ones, overlapping ones, other orders; one of one process."""
    count = mesh.num_devices
    low = DeviceMesh([CPU(i) for i in range(count // 2)], (count // 2,), ("a",))
    high = DeviceMesh([CPU(i) for i in reversed(range(count // 2, count))], (count // 2,), ("b",))
    some = DeviceMesh([CPU(count - 1), CPU(1), CPU(count // 2)], (3,), ("c",))
    start = lamina.shard(value, low, ["a"])
    for there in (high, some, mesh):
        axis = there.axis_names[0]
        for spec in ([axis], [None, axis], []):
            t = lamina.shard(start, there, spec)
            same(lamina.shard(t, mesh, ["y"]).numpy(), value)
            back = lamina.shard(t, low, [None, "a"])
            same(lamina.shard(back, mesh, []).numpy(), value)
    t = lamina.shard(start, high, ["b"])
    try:
        same(t.numpy(), value)
    except lamina.ProcessError as error:
        assert jax.process_index() < jax.process_count() // 2
        assert "shard it onto a mesh that has devices of every process" in str(error)
    else:
        assert jax.process_index() >= jax.process_count() // 2
    pieces = lamina.shard(value, low, [], partial=["a"])
    same(lamina.shard(lamina.shard(pieces, high, ["b"]), mesh, ["x"]).numpy(), value)


def same(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)


if __name__ == "__main__":
    main()
