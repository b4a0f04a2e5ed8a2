"""`explain` and `infer`: what a move or an op would do, before anything runs."""

from __future__ import annotations

from typing import Any

import jax

from lamina.engine.links import default_links
from lamina.errors import LayoutError, PlanError, explained, with_fix
from lamina.ops.asking import asked_layout
from lamina.ops.inferring import explained_op
from lamina.planning import Explanation, Plan, homes_between, plan, plan_across
from lamina.planning.topology import topology as links_of
from lamina.sharding import DeviceMapping, DeviceMesh, DistributedType, Layout, TensorLayout
from lamina.sharding.dims import free_symbols
from lamina.sharding.dtypes import dtype_name, itemsize
from lamina.sharding.mesh import as_mesh
from lamina.tensors import Tensor, from_jax

Source = tuple[str, tuple[int, ...], DeviceMesh, Layout]


def explain(x: Any, *operands: Any, topology: Any = None, **named: Any) -> Plan | Explanation:
    """What a move or an op would do, before anything runs.  No devices are needed: a laptop plans for a pod.

    `explain(x, mesh, dim_specs)` is the plan of `shard(x, mesh, dim_specs)`: its steps, bytes, lower bound, memory and
    time.  `x` is a Tensor, a jax.Array, or only what is known of one: a DistributedTensorType or a TensorLayout.  In
    place of mesh and dim_specs a DeviceMapping may stand; the other arguments are those of `shard`.

    `explain(op, *operands)` tells how an op of Lamina (or its name, or any function made of them) would run on such
    operands: for each stage how the operands must lie and what brings them there, how the results then lie, and what
    the other ways would have cost.  Keywords are passed to the op.

    `topology` are the links that both plan for; without it, those of the mesh's devices.

    >>> import lamina
    >>> pod = lamina.DeviceMesh.abstract((64, 64), ("dp", "tp"))
    >>> weights = lamina.TensorLayout("bf16", (65536, 65536), lamina.NamedMapping(pod, ["dp", "tp"]))
    >>> print(lamina.explain(weights, pod, [None, ("tp", "dp")], topology="tpu_v5p"))
    [dp=64,tp=64] dp,tp  →  [dp=64,tp=64] -,(tp,dp)   (65536, 65536), itemsize 2
      1. all-to-all over dp from dim 0 to dim 1: 2064384 B
    receives 2064384 B (bound 2064384 B, ratio 1.00), holds at most 4194304 B
    >>> mesh = lamina.DeviceMesh.abstract((2,), ("tp",))
    >>> x = lamina.TensorLayout("f32", (4, 8), lamina.NamedMapping(mesh, [None, "tp"]))
    >>> w = lamina.TensorLayout("f32", (8, 6), lamina.NamedMapping(mesh, []))
    >>> print(lamina.explain("matmul", x, w))
    matmul: receives 0 B per device
    1. matmul
       operand 0, [4, 8] lying as [tp=2] -,tp: stays
       operand 1, [8, 6] lying as [tp=2] -,-: slice dim 0 over tp, 0 B
       makes [4, 6] lying as [tp=2] -,- +sum(tp)
       instead: [tp=2] -,- × [tp=2] -,- → [tp=2] -,-: 64 B
    """
    if isinstance(x, str) or (callable(x) and not isinstance(x, (Tensor, jax.Array))):
        return explained_op(x, operands, topology, named)
    return _of_move(x, *operands, topology=topology, **named)


def _of_move(
    x: Any,
    mesh: DeviceMesh | DeviceMapping | None = None,
    dim_specs: Any = None,
    replicated_axes: Any = None,
    *,
    partial: Any = (),
    memory_limit: float | None = None,
    topology: Any = None,
) -> Plan:
    dtype, shape, here, source = _known(x)
    there, target = _wanted(shape, (here, source), mesh, dim_specs, replicated_axes, partial)
    size = itemsize(dtype)
    with explained("explain(topology, memory_limit)", "raise the limit, or leave it out", only=PlanError, mesh=there):
        links = default_links(there) if topology is None else links_of(topology)
        if here == there:
            return plan(source, target, shape, size, memory_limit, links)
        return plan_across(source, target, shape, homes_between(here, there), size, memory_limit, links)


def _known(x: Any) -> Source:
    """dtype, shape, mesh and layout of whatever has them."""
    if isinstance(x, jax.Array):
        x = from_jax(x)
    if isinstance(x, Tensor):
        return dtype_name(x.dtype), x.shape, x.mesh, x.layout
    if isinstance(x, TensorLayout):
        found: tuple = x.dtype, x.shape, x.mesh, x.layout()
    elif isinstance(x, DistributedType):
        found = x.dtype, x.shape, x.mesh, x.layout
    else:
        fact = f"explain(x): {type(x).__name__} has no layout yet: from the host, each device gets just its own block"
        raise TypeError(with_fix(fact, "give a Tensor, a jax.Array, a TensorLayout or a DistributedTensorType"))
    if names := sorted(set().union(*map(free_symbols, found[1]))):
        fact = f"explain(x={x!r}): bytes need sizes, but {', '.join(names)} of its shape are symbols"
        raise LayoutError(with_fix(fact, "bind them first, by lamina.sharding.dims.substitute(dim, {...})"))
    return found


def _wanted(
    shape: tuple[int, ...],
    lies: tuple[DeviceMesh, Layout],
    mesh: Any,
    dim_specs: Any,
    replicated_axes: Any,
    partial: Any,
) -> tuple[DeviceMesh, Layout]:
    if isinstance(mesh, DeviceMapping):
        if dim_specs is not None or replicated_axes is not None or partial:
            raise LayoutError(f"explain(mesh={mesh!r}): a mapping says the whole layout: give no dim_specs beside it")
        with explained(f"explain(mapping={mesh!r})", shape=shape, x=lies[1]):
            return mesh.mesh, mesh.layout(len(shape))
    with explained("explain(mesh)"):
        there = as_mesh(mesh)
    specs = () if dim_specs is None else dim_specs
    return there, asked_layout("explain", shape, lies, there, specs, replicated_axes, partial)
