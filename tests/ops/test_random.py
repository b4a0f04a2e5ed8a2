"""`lamina.random`: for one key the numbers of `jax.random`, to the bit, on every layout; each device makes its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina.engine import randomness
from lamina.engine.storage import storage
from lamina.errors import LayoutError
from lamina.sharding.layout import Layout
from tests.engine.oracles import mapping_of, mesh_of, on_both_kinds
from tests.ops.checks import assert_padding_is_zero, assert_value
from tests.ops.laying import MESHES, tensor_of
from tests.ops.test_spmd import every_layout
from tests.ops.test_values import case_name
from tests.strategies import Mesh, all_layouts

KEY = jax.random.key(7)
A = np.arange(20, dtype="float32").reshape(4, 5) + 1
Way = Callable[..., Any]
DRAWS: dict[str, Way] = {  # the same call of lamina.random and of jax.random
    "uniform": lambda r, k, s, **w: r.uniform(k, s, minval=-1, maxval=2, **w),
    "uniform-bf16": lambda r, k, s, **w: r.uniform(k, s, "bfloat16", **w),
    "normal": lambda r, k, s, **w: r.normal(k, s, **w),
    "normal-complex": lambda r, k, s, **w: r.normal(k, s, "complex64", **w),
    "truncated": lambda r, k, s, **w: r.truncated_normal(k, -1, 2, s, **w),
    "gumbel": lambda r, k, s, **w: r.gumbel(k, s, **w),
    "randint": lambda r, k, s, **w: r.randint(k, s, -5, 1000, **w),
    "randint-8": lambda r, k, s, **w: r.randint(k, s, 0, 100, "uint8", **w),
    "bernoulli": lambda r, k, s, **w: r.bernoulli(k, 0.3, s, **w),
}
PLAIN = [(axes, layout) for axes in MESHES for layout in all_layouts(axes, 2)]
every_plain_layout = pytest.mark.parametrize(("axes", "layout"), PLAIN, ids=case_name)


@on_both_kinds
@every_plain_layout
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.exhaustive(keep=48)
def test_the_numbers_are_jax_randoms(name: str, axes: Mesh, layout: Layout, kind: str) -> None:
    draw = DRAWS[name]
    found = draw(lamina.random, KEY, (4, 5), mesh=mapping_of(mesh_of(axes, kind), layout))
    expected = draw(jax.random, KEY, (4, 5))
    assert (found.layout, found.dtype) == (layout, expected.dtype)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert_padding_is_zero(found)


@on_both_kinds
def test_pieces_of_random_numbers(kind: str) -> None:
    mesh = mesh_of({"x": 2, "y": 2}, kind)
    there = lamina.NamedMapping(mesh, ["y"], unreduced=["x"])
    found = lamina.random.uniform(KEY, (5,), mesh=there)
    assert found.sharding == there
    assert_value(found, jax.random.uniform(KEY, (5,)))


def test_a_device_makes_no_more_than_its_block() -> None:
    """512 kB of 4 MB, also where a dim is uneven; and nothing is communicated."""
    for shape in ((1024, 1024), (1021, 1023)):
        held = storage(mesh_of({"x": 2, "y": 4}), Layout({"x": 2, "y": 4}, [("x",), ("y",)]), shape)
        program = randomness._program(jax.random.normal, held, (jnp.dtype("float32"),), True).lower(
            np.zeros(2, "uint32")
        )
        made = program.compile()
        memory = made.memory_analysis()
        assert memory.output_size_in_bytes <= 4 * 512 * 256
        assert memory.temp_size_in_bytes <= 4 * 4 * 512 * 256
        text = made.as_text()
        assert not any(name in text for name in ("all-gather", "all-reduce", "all-to-all", "collective-permute"))


@pytest.mark.parametrize("shape", [(3, 5), (2**20, 2**16, 3), (5, 2**33 // 7)])
def test_positions_in_64_bits(shape: tuple[int, ...]) -> None:
    block = tuple(min(size, 3) for size in shape)
    starts = [max(0, size - 2) for size in shape]
    high, low = randomness.flat_positions(jnp.asarray(starts, "uint32"), block, shape)
    expected = np.zeros(block, "uint64")
    for dim, start in enumerate(starts):
        along = (np.arange(block[dim], dtype="uint64") + np.uint64(start)).reshape(
            [-1 if d == dim else 1 for d in range(len(shape))]
        )
        expected = expected + along * np.uint64(int(np.prod(shape[dim + 1 :], dtype="uint64")))
    np.testing.assert_array_equal((np.asarray(high).astype("uint64") << np.uint64(32)) | np.asarray(low), expected)


@on_both_kinds
def test_in_jit_and_vmap_with_old_keys_and_other_generators(kind: str) -> None:
    mesh = mesh_of({"x": 2, "y": 3}, kind)

    def draw(key: Any) -> Any:
        return lamina.random.normal(jax.random.split(key)[1], (5, 7), mesh=mesh, dim_specs=["x", "y"])

    def plain(key: Any) -> Any:
        return jax.random.normal(jax.random.split(key)[1], (5, 7))

    np.testing.assert_array_equal(jax.jit(draw)(KEY).numpy(), plain(KEY))
    keys = jax.random.split(KEY, 3)
    assert_value(jax.vmap(draw)(keys), jax.vmap(plain)(keys))
    for key in (jax.random.PRNGKey(1), jax.random.key(1, impl="rbg")):
        np.testing.assert_array_equal(draw(key).numpy(), plain(key))
    key = lamina.distributed_broadcast(jax.random.PRNGKey(2), mesh)
    found = lamina.random.uniform(key, (5,), mesh=mesh, dim_specs=["y"])
    np.testing.assert_array_equal(found.numpy(), jax.random.uniform(jax.random.PRNGKey(2), (5,)))


@on_both_kinds
@every_layout
@pytest.mark.exhaustive(keep=10)
def test_permutation_and_dropout(axes: Mesh, layout: Layout, kind: str) -> None:
    x = tensor_of(A, mesh_of(axes, kind), layout)
    assert_value(lamina.random.permutation(KEY, x, 1), jax.random.permutation(KEY, A, 1))
    assert_value(
        lamina.random.permutation(KEY, x, 0, independent=True), jax.random.permutation(KEY, A, 0, independent=True)
    )
    kept = jax.random.bernoulli(KEY, 0.75, (4, 5))
    assert_value(lamina.random.dropout(KEY, x, 0.25), np.where(kept, A / 0.75, 0))
    gradient = jax.grad(lambda t: lamina.shard(lamina.sum(lamina.random.dropout(KEY, t, 0.25)), t.mesh, []).jax())
    if not layout.partial:
        assert_value(gradient(x), np.where(kept, 1 / 0.75, 0).astype("float32"))


@on_both_kinds
def test_probabilities_of_their_own(kind: str) -> None:
    mesh = mesh_of({"x": 2, "y": 3}, kind)
    p = tensor_of(A / 20, mesh, Layout(mesh.axes, [("x",), ("y",)]))
    assert_value(lamina.random.bernoulli(KEY, p), jax.random.bernoulli(KEY, jnp.asarray(A / 20)))
    order = lamina.random.permutation(KEY, 7, mesh=mesh, dim_specs=["y"])
    np.testing.assert_array_equal(order.numpy(), jax.random.permutation(KEY, 7))


def test_where_it_lies_without_a_mesh() -> None:
    assert lamina.random.normal(KEY, (4,)).mesh.is_single
    mesh = mesh_of({"x": 2}, "simulated")
    with mesh:
        assert lamina.random.normal(KEY, (4,), dim_specs=["x"]).sharding == lamina.NamedMapping(mesh, ["x"])


def test_what_cannot_be_is_said() -> None:
    mesh = mesh_of({"x": 2}, "simulated")
    with pytest.raises(LayoutError, match=r"^random.normal\(dim_specs=\['z'\]\): 'z' is not an axis of the mesh"):
        lamina.random.normal(KEY, (4,), mesh=mesh, dim_specs=["z"])
    with pytest.raises(TypeError, match=r"^random.uniform\(minval\) must be a number, not array"):
        lamina.random.uniform(KEY, (4,), minval=np.zeros(4))
    with pytest.raises(TypeError, match=r"^random.normal\(shape\) must be a tuple of sizes, not 4$"):
        lamina.random.normal(KEY, 4)
    with pytest.raises(ValueError, match=r"^dropout\(rate=1\): it must be at least 0, and less than 1$"):
        lamina.random.dropout(KEY, A, 1)
    with pytest.raises(LayoutError, match=r"permutation\(axis=2\): axis=2 is out of range"):
        lamina.random.permutation(KEY, A, 2)
    p = tensor_of(A / 20, mesh, Layout(mesh.axes, [("x",), ()]))
    with pytest.raises(LayoutError, match=r"^bernoulli\(p, shape=\(3,\)\): p has shape \(4, 5\)"):
        lamina.random.bernoulli(KEY, p, (3,))
