"""Arrays of several devices as one and back: no data moves, and JAX's transformations go through."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamina.engine import compat, families
from lamina.sharding.placements import ReduceOp


@pytest.fixture
def mesh():
    return compat.make_mesh(np.array(jax.devices()[:4][::-1]), ("x",))


@pytest.fixture
def parts(mesh):
    return [
        jax.device_put(np.arange(6, dtype="float32").reshape(2, 3) + 10 * i, device)
        for i, device in enumerate(mesh.devices.flat)
    ]


def test_there_and_back_without_a_copy(mesh, parts):
    array = families.assemble(parts, mesh)
    np.testing.assert_array_equal(np.asarray(array), np.concatenate(parts))
    assert array.sharding == families.family_sharding(mesh)
    for part, one in zip(parts, families.disassemble(array, mesh), strict=True):
        assert one.devices() == part.devices()
        assert one.unsafe_buffer_pointer() == part.unsafe_buffer_pointer()


def test_scalars_and_parts_elsewhere(mesh):
    array = families.assemble([jnp.float32(i) for i in range(4)], mesh)
    assert array.shape == (4,)
    assert [one.devices() for one in families.disassemble(array, mesh)] == [{d} for d in mesh.devices.flat]


def squares(mesh, *parts):
    program = compat.shard_map(
        lambda x: jax.lax.psum(x * x, "x"),
        mesh,
        families.family_sharding(mesh).spec,
        families.family_sharding(mesh).spec,
    )
    return families.disassemble(jax.jit(program)(families.assemble(parts, mesh)), mesh)


@pytest.mark.parametrize("in_jit", [False, True])
def test_transformations(mesh, parts, in_jit):
    given = [np.asarray(part) for part in parts] if in_jit else parts
    wrap = jax.jit if in_jit else lambda f: f

    def loss(*parts):
        return (squares(mesh, *parts)[1] ** 2).sum()

    def dense(*parts):
        return (sum(part * part for part in parts) ** 2).sum()

    plain = [np.asarray(part) for part in parts]
    every = (0, 1, 2, 3)
    for one, want in zip(wrap(jax.grad(loss, every))(*given), jax.grad(dense, every)(*plain), strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5)
    np.testing.assert_allclose(
        wrap(lambda *p: jax.jvp(loss, p, p))(*given)[1], jax.jvp(dense, plain, plain)[1], rtol=1e-5
    )
    first = wrap(lambda x: jax.hessian(lambda x: loss(x, *given[1:]))(x))(given[0])
    np.testing.assert_allclose(first, jax.hessian(lambda x: dense(x, *plain[1:]))(plain[0]), rtol=1e-4)
    several = jnp.stack([plain[0], 2 * plain[0]], axis=1)
    np.testing.assert_allclose(
        wrap(lambda x: jax.vmap(lambda x: loss(x, *given[1:]), 1)(x))(several),
        jax.vmap(lambda x: dense(x, *plain[1:]), 1)(several),
        rtol=1e-5,
    )


def test_gradients_return_to_their_devices(mesh, parts):
    gradients = jax.grad(lambda *parts: squares(mesh, *parts)[2].sum(), (0, 1, 2, 3))(*parts)
    assert [one.devices() for one in gradients] == [part.devices() for part in parts]


def test_a_value_that_moves_takes_its_gradient_back(parts):
    there = jax.devices()[7]

    def f(x):
        moved = families.at(x, there)
        return (moved * moved).sum()

    gradient = jax.grad(f)(parts[1])
    assert gradient.devices() == parts[1].devices()
    np.testing.assert_array_equal(gradient, 2 * parts[1])


@pytest.mark.parametrize("op", list(ReduceOp))
def test_the_lockstep_reduction_is_that_of_numpy(mesh, parts, op):
    from lamina.engine import lockstep
    from lamina.planning.simulate import combine

    spec = families.family_sharding(mesh).spec
    program = compat.shard_map(lambda x: lockstep.all_reduce(x, op, ("x",), {"x": 4}), mesh, spec, spec)
    for one in families.disassemble(jax.jit(program)(families.assemble(parts, mesh)), mesh):
        np.testing.assert_allclose(one, combine([np.asarray(part) for part in parts], op), rtol=1e-6)
