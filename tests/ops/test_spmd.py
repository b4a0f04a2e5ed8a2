"""`lamina.spmd`: local code sees exactly its device's blocks, on every layout, and what it makes lies as it says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina import TensorLayout
from lamina.errors import LayoutError, TransformError
from lamina.sharding.layout import Layout
from tests.engine.oracles import assert_holds, compiled, held_by, mapping_of, mesh_of, on_both_kinds
from tests.ops.checks import assert_value
from tests.ops.laying import MESHES, blocks_of, pieces_of, tensor_of
from tests.ops.test_values import case_name
from tests.strategies import Mesh, all_layouts, ops_for

A = np.arange(20, dtype="float32").reshape(4, 5) + 1
LAYOUTS = [(axes, layout) for axes in MESHES for layout in all_layouts(axes, 2, ops_for("float32")[:3])]
every_layout = pytest.mark.parametrize(("axes", "layout"), LAYOUTS, ids=case_name)
on_both_meshes = pytest.mark.parametrize("axes", MESHES, ids=case_name)


@on_both_kinds
@every_layout
@pytest.mark.exhaustive(keep=12)
def test_code_sees_padded_blocks_and_their_valid_length(axes: Mesh, layout: Layout, kind: str) -> None:
    """What a device makes of its own block, and of what it may ask, is what numpy makes of the shard."""
    mesh, mapping = mesh_of(axes, kind), mapping_of(mesh_of(axes, kind), layout)
    x = tensor_of(A, mesh, layout)

    def local(block: Any) -> tuple[Any, Any]:
        here = lamina.here()
        assert here.size(block, 0) == 4
        asked = [f(block, dim) for dim in (0, 1) for f in (here.start, here.length)]
        told = jnp.stack([*asked, jnp.sum(block).astype(int), *block.shape])
        return 3 * block, told.reshape(*(1 for _ in axes), -1)

    names = [*axes]
    tripled, told = lamina.spmd(local, mesh, [mapping], (mapping, names))(x)
    assert_holds(tripled, {where: 3 * block for where, block in held_by(x).items()}, layout)
    for where, block in held_by(x).items():
        at = dict(zip(axes, where, strict=True))
        ends = [end for start, stop in layout.block((4, 5), at) for end in (start, stop - start)]
        expected = [*ends, int(block.sum()), *layout.padded_block((4, 5))]
        np.testing.assert_array_equal(told.numpy()[where], expected)


@on_both_kinds
@every_layout
@pytest.mark.exhaustive(keep=12)
def test_gradients_are_those_of_the_blocks(axes: Mesh, layout: Layout, kind: str) -> None:
    """Of squares summed over all devices: twice each block that the device counts."""
    mesh, mapping = mesh_of(axes, kind), mapping_of(mesh_of(axes, kind), layout)
    x = tensor_of(A, mesh, layout)
    used = (*layout.sharded_axes, *layout.partial_axes)

    def local(block: Any) -> Any:
        total = (block**2).sum()
        for axis in used:
            total = jax.lax.psum(total, axis)
        return total

    squares = lamina.spmd(local, mesh, [mapping], [])
    gradient = compiled(jax.grad(lambda x: squares(x).jax()))(x)
    assert_holds(gradient, {where: 2 * block for where, block in held_by(x).items()}, layout)
    assert squares(x).item() == sum(
        float((block**2).sum())
        for where, block in blocks_of(pieces_of(A, layout), layout).items()
        if all(where[list(axes).index(axis)] == 0 for axis in layout.replicated_axes)
    )


@on_both_kinds
@on_both_meshes
def test_a_local_matmul_in_jit_grad_and_vmap(axes: Mesh, kind: str) -> None:
    mesh, w = mesh_of(axes, kind), np.cos(np.arange(30, dtype="float32")).reshape(5, 6)

    def local(x: Any, w: Any) -> Any:
        return jax.lax.psum(x @ w, "y")

    product = lamina.spmd(local, mesh, (["x", "y"], ["y"]), ["x"])
    x = tensor_of(A, mesh, Layout(axes, [("y",), ()]))
    assert_value(product(x, w), A @ w)
    assert_value(compiled(product)(x, jnp.asarray(w)), A @ w)
    stacked = tensor_of(np.stack([A, 2 * A]), mesh, Layout(axes, [(), ("y",), ()]))
    assert_value(jax.vmap(lambda x: product(x, w))(stacked), np.stack([A, 2 * A]) @ w)
    gradient = jax.grad(lambda x: lamina.shard(lamina.sum(product(x, w)), mesh, []).jax())(x)
    assert_value(gradient, np.broadcast_to(w.sum(1), A.shape))


@on_both_kinds
def test_trees_several_results_and_partial_ones(kind: str) -> None:
    mesh = mesh_of({"x": 2, "y": 2}, kind)

    def local(tree: dict[str, Any]) -> dict[str, Any]:
        return {"sum": tree["a"].sum(0), "both": [tree["a"] + tree["b"], tree["b"]]}

    into = {"a": ["x"], "b": [lamina.Sharded(0), lamina.Replicated()]}
    out = {"sum": lamina.NamedMapping(mesh, [None], unreduced=["x"]), "both": [["x"], ["x"]]}
    made = lamina.spmd(local, mesh, (into,), out)({"a": A, "b": 2 * A})
    assert made["sum"].placements == (lamina.Partial(), lamina.Replicated())
    assert_value(made["sum"], A.sum(0))
    assert_value(made["both"][0], 3 * A)


@on_both_kinds
def test_a_layout_says_the_shape_of_an_uneven_result(kind: str) -> None:
    mesh = mesh_of({"x": 2, "y": 3}, kind)
    out = TensorLayout("int32", (7,), lamina.NamedMapping(mesh, ["y"]))
    made = lamina.spmd(lambda: jax.lax.axis_index("y") + jnp.arange(3), mesh, (), out)()
    assert made.tolist() == [0, 1, 2, 1, 2, 2, 3]


@on_both_kinds
def test_a_loop_starts_from_what_will_differ(kind: str) -> None:
    mesh = mesh_of({"x": 2, "y": 2}, kind)

    def local(start: Any) -> Any:
        def turns(x: Any) -> Any:
            return jax.lax.scan(lambda c, _: (c + x, None), start(jnp.zeros(x.shape)), None, length=3)[0]

        return turns

    told = lamina.spmd(local(lambda zeros: lamina.here().varying(zeros)), mesh, [["x"]], ["x"])
    assert_value(told(A), 3 * A)
    assert_value(lamina.spmd(local(lambda zeros: zeros), mesh, [["x"]], ["x"], checked=False)(A), 3 * A)
    with pytest.raises(TransformError, match=r"fix: lamina.here\(\).varying\(initial\)"):
        lamina.spmd(local(lambda zeros: zeros), mesh, [["x"]], ["x"])(A)


@on_both_kinds
def test_a_result_that_differs_must_say_so(kind: str) -> None:
    mesh = mesh_of({"x": 2, "y": 2}, kind)
    with pytest.raises(TransformError) as failure:
        lamina.spmd(lambda x: 2 * x, mesh, [["x"]], [])(A)
    assert str(failure.value) == (
        "spmd: a result whose out mapping doesn't name {x} may differ there between devices\n"
        "  fix: name the axes in the mapping, or reduce over them (jax.lax.psum, pmean), or pass checked=False if you "
        "know better"
    )


def test_what_cannot_be_is_said() -> None:
    mesh, other = mesh_of({"x": 2}, "simulated"), mesh_of({"x": 3}, "simulated")
    with pytest.raises(
        LayoutError, match="^spmd: 2 arguments for 1 in_mappings\n  fix: give one mapping per argument$"
    ):
        lamina.spmd(lambda x: x, mesh, [["x"]], ["x"])(A, A)
    with pytest.raises(LayoutError, match="^spmd\\(argument 0\\): .* is on .*3.*, not on spmd's .*2.*"):
        lamina.spmd(lambda x: x, mesh, [lamina.NamedMapping(other, ["x"])], ["x"])(A)
    with pytest.raises(LayoutError, match=r"^spmd\(mesh\): DeviceMesh\(\[x=2\], abstract\) has no devices"):
        lamina.spmd(lambda x: x, lamina.DeviceMesh.abstract((2,), ("x",)), [["x"]], ["x"])
    with pytest.raises(LayoutError, match=r"fn made a block of shape \(3,\) for \[7\] lying as \[x=2\] x, whose"):
        lamina.spmd(lambda: jnp.zeros(3), mesh, (), TensorLayout("f32", (7,), lamina.NamedMapping(mesh, ["x"])))()
    with pytest.raises(TransformError, match=r"^lamina.here\(\) is asked outside of local code"):
        lamina.here()
    with pytest.raises(TransformError, match=r"knows only the blocks that fn was given"):
        lamina.spmd(lambda x: x * lamina.here().length(x + 1, 0), mesh, [["x"]], ["x"])(A)
