"""`infer`, and `explain` of ops: what an op requires and makes, found out by rehearsing it."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

import jax

from lamina.engine.links import default_links
from lamina.errors import LayoutError, PlanError, explained, with_fix
from lamina.ops.rehearsal import Rehearsal, rehearse, stand_in
from lamina.ops.symbols import bound, unbound
from lamina.planning import Explanation, Topology
from lamina.planning.topology import topology as links_of
from lamina.sharding import DeviceMesh, DistributedType, Layout, NamedMapping, TensorLayout
from lamina.sharding.dims import free_symbols, substitute
from lamina.sharding.dtypes import dtype_name
from lamina.tensors import Tensor, from_jax


def infer(op: Any, *operands: Any, topology: Any = None, **named: Any) -> Inference:
    """How an op requires its operands, and how its results then lie: layouts in, layouts out, nothing runs.

    As `explain(op, *operands)`, but in TensorLayouts, whose shapes may be symbolic and whose meshes abstract.  An
    *open* DimSpec of an operand may be split further, and then the closed ones keep exactly their axes, if some way of
    the op allows it.  Where operands want different axes on dims that run together, the smaller priority keeps its own,
    whatever that costs; among equals, and without open dims, the cost decides.

    For costs, a symbol stands for a large number that every axis divides.

    >>> import lamina
    >>> mesh, n = lamina.DeviceMesh.abstract((8, 4), ("dp", "tp")), lamina.SymbolicDim("n")
    >>> x = lamina.TensorLayout("bf16", (n, 512), lamina.NamedMapping(mesh, ["dp", None]))
    >>> w = lamina.TensorLayout("bf16", (512, 2048), lamina.NamedMapping(mesh, [None, "tp"]))
    >>> lamina.infer("matmul", x, w).results
    (TensorLayout(bfloat16[n,2048], '[dp=8,tp=4] dp,tp'),)
    """
    name, fn, mesh, links, held, symbols = _asked(op, operands, topology)
    rehearsal, made = _rehearsed(name, fn, mesh, links, held, bound(symbols, mesh, 0), named)
    shapes = [t.shape for t in made]
    if symbols:
        _, again = _rehearsed(name, fn, mesh, links, held, bound(symbols, mesh, 1), named)
        pairs = zip(shapes, [t.shape for t in again], strict=True)
        shapes = [unbound(name, one, other, held, symbols, mesh) for one, other in pairs]
    required = tuple(
        TensorLayout(x.dtype, x.shape, _mapping(mesh, rehearsal.first.get(i, x.layout())))
        for i, x in enumerate(held)
        if isinstance(x, TensorLayout)
    )
    results = tuple(
        TensorLayout(dtype_name(t.dtype), shape, _mapping(mesh, t.layout))
        for t, shape in zip(made, shapes, strict=True)
    )
    return Inference(required, results)


@dataclass(frozen=True)
class Inference:
    """What an op requires of its operands, and how its results lie."""

    required: tuple[TensorLayout, ...]
    results: tuple[TensorLayout, ...]


def explained_op(op: Any, operands: tuple, topology: Any, named: dict[str, Any]) -> Explanation:
    name, fn, mesh, links, held, symbols = _asked(op, operands, topology)
    if symbols:
        fact = f"explain({name}): bytes need sizes, but {', '.join(symbols)} of the shapes are symbols"
        raise LayoutError(with_fix(fact, "bind them first, by lamina.sharding.dims.substitute(dim, {...})"))
    rehearsal, made = _rehearsed(name, fn, mesh, links, held, {}, named)
    return Explanation(name, tuple(rehearsal.stages), tuple((t.shape, t.layout) for t in made), links)


def _asked(op: Any, operands: tuple, topology: Any) -> tuple[str, Any, DeviceMesh, Topology, list[Any], list[str]]:
    """The op's name and function, the mesh and links, the operands as TensorLayouts, and their symbols."""
    name = op if isinstance(op, str) else getattr(op, "__name__", "function")
    fn = _function(op) if isinstance(op, str) else op
    held = [_as_layout(x) for x in operands]
    meshes = list(dict.fromkeys(x.mesh for x in held if isinstance(x, TensorLayout)))
    if not meshes:
        fact = f"explain({name}): no operand says how it lies"
        raise LayoutError(with_fix(fact, "give Tensors or TensorLayouts"))
    if len(meshes) > 1:
        fact = f"explain({name}): the operands lie on different meshes: {' and '.join(map(repr, meshes))}"
        raise LayoutError(with_fix(fact, "bring them to one mesh"))
    with explained("explain(topology)", only=PlanError):
        links = default_links(meshes[0]) if topology is None else links_of(topology)
    found = set().union(*(free_symbols(d) for x in held if isinstance(x, TensorLayout) for d in x.shape))
    return name, fn, meshes[0], links, held, sorted(found)


def _function(name: str) -> Any:
    from lamina import ops  # all verbs, this one among them

    if name not in ops.__all__ or not callable(getattr(ops, name)):
        fact = f"explain(op={name!r}): Lamina has no such op"
        near = get_close_matches(name, ops.__all__, 3)
        raise LayoutError(with_fix(fact, f"did you mean {' or '.join(near)}?" if near else "give a function"))
    return getattr(ops, name)


def _as_layout(x: Any) -> Any:
    """What is known of an operand; numbers and host arrays as they are."""
    if isinstance(x, jax.Array):
        x = from_jax(x)
    if isinstance(x, Tensor):
        return TensorLayout(dtype_name(x.dtype), x.shape, x.sharding)
    if isinstance(x, DistributedType):
        return TensorLayout(x.dtype, x.shape, _mapping(x.mesh, x.layout))
    return x


def _rehearsed(
    name: str,
    fn: Any,
    mesh: DeviceMesh,
    links: Topology,
    held: list[Any],
    sizes: dict[str, int],
    named: dict[str, Any],
) -> tuple[Rehearsal, list[Tensor]]:
    operands = [
        stand_in(x.dtype, tuple(int(substitute(d, sizes)) for d in x.shape), x.layout(), mesh)
        if isinstance(x, TensorLayout)
        else x
        for x in held
    ]
    specs = [x.to_named_sharding(x.rank).dim_specs if isinstance(x, TensorLayout) else None for x in held]
    with explained(f"explain({name})"):
        return rehearse(partial(fn, **named), operands, specs, links)


def _mapping(mesh: DeviceMesh, layout: Layout) -> NamedMapping:
    return NamedMapping(mesh, layout.dims, unreduced=dict(layout.partial))


__all__ = ["Inference", "infer"]
