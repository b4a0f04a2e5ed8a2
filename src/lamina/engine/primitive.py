"""Layout changes as one JAX primitive, so that `jit`, `grad`, `jvp`, `vmap` and their compositions know what they mean.

**Derivatives.**  On stored arrays a transition A → B is E_B · D_A: decode the value (reduce the pieces), encode it
(make pieces).  With only SUM and AVG pieces it is linear:

======  ======================  ==============================
op      D reads the pieces as   E makes the pieces
======  ======================  ==============================
SUM     their sum               the value first, then zeros
AVG     their sum / n           n copies
======  ======================  ==============================

so its transpose is Dᵀ_A · Eᵀ_B: what E made is read back by its transpose (SUM: the first piece; AVG: the sum), what D
read is made by its transpose (SUM: n copies; AVG: n copies / n).  In words, the cotangent of a Partial(SUM) tensor is
the same on all pieces, Replicated and Partial(SUM) being each other's dual; pieces that stay pieces are left alone.
The transposed transition is again a transition, planned like any other, between two pieces of local arithmetic.

MAX, MIN and PROD aren't linear.  Their derivative is that of the plain reduction over a stacked dim: the pieces of the
axis are read as a dim of the tensor that is split over the axis (the same array, no data moves), that dim is made
whole, and `jnp.max` / `min` / `prod` reduce it with JAX's own derivatives: to the winners, ties shared; the product of
the others.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from lamina.engine import programs
from lamina.engine.blocks import combine
from lamina.engine.compat import Primitive, ad, batching, concrete, is_tracer, mlir, nothing_is_traced
from lamina.engine.crossing import way_stations
from lamina.engine.programs import (
    DEFAULT,
    Action,
    Options,
    ShardPermutation,
    Transfer,
    Transition,
    laid_out,
    source_of,
    target_of,
)
from lamina.engine.storage import Storage, storage
from lamina.errors import TransformError, with_fix
from lamina.planning.pieces import kept_pieces
from lamina.sharding import Layout
from lamina.sharding.placements import ReduceOp

layout_change = Primitive("lamina_layout_change")


def apply(x: Any, action: Action) -> Any:
    """The action on any array, concrete or traced."""
    if is_tracer(x) or not nothing_is_traced():
        # JAX learns from the constraint which devices the program needs; it can't look inside of the primitive.
        return laid_out(layout_change.bind(x, action=action), target_of(action))
    return programs.run(x, action)


def transition(x: Any, source: Storage, target: Storage, options: Options = DEFAULT) -> Any:
    """The array of `source` as the array of `target`, on the same mesh."""
    for step in route(source, target, options):
        x = apply(x, step)
    return x


def transfer(x: Any, source: Storage, target: Storage, options: Options = DEFAULT) -> Any:
    """The array of `source` as the array of `target`, on another mesh: reduced before it leaves, copied after."""
    _check_devices(x, source, target)
    leaving, arriving = way_stations(source, target, x.dtype.itemsize, options.memory_limit, options.topology)
    x = transition(x, source, leaving, options)
    x = apply(x, Transfer(leaving, arriving))
    return transition(x, arriving, target, options)


def _check_devices(x: Any, source: Storage, target: Storage) -> None:
    """Inside a program all devices are the program's; only JAX's own partitioner can move between two meshes there."""
    if not is_tracer(x) or concrete(x) is not None or source.is_local or target.is_local:
        return
    if source.mesh.devices != target.mesh.devices:
        raise TransformError(
            with_fix(
                "inside jax.jit a value can't move between meshes over different devices, "
                f"or in another order: {source.mesh!r} to {target.mesh!r}",
                "move it outside of jax.jit",
            )
        )


@lru_cache(maxsize=4096)
def route(source: Storage, target: Storage, options: Options = DEFAULT) -> tuple[Transition, ...]:
    """One transition; two where a Partial axis must be resolved before it is made anew (sum to max, say)."""
    if source is target:
        return ()
    kept = kept_pieces(source.layout, target.layout)
    anew = [axis for axis in target.lead if axis in source.lead and axis not in kept]
    if not anew:
        return (Transition(source, target, options),)
    middle = source.with_layout(source.layout.replace(partial=kept.items()))
    return Transition(source, middle, options), Transition(middle, target, options)


# -- evaluation -------------------------------------------------------------------------------------------------------


@layout_change.def_impl
def _run(x: Any, *, action: Action) -> Any:
    return programs.run(x, action)


@layout_change.def_abstract_eval
def _result(x: Any, *, action: Action) -> Any:
    return jax.core.ShapedArray(target_of(action).array_shape, x.dtype)


mlir.register_lowering(layout_change, mlir.lower_fun(programs.lower, multiple_results=False))


# -- batching ---------------------------------------------------------------------------------------------------------


def _batched(args: tuple, dims: tuple, *, action: Action) -> tuple[Any, int]:
    """The mapped dim is one more whole dim of the tensor, in front."""
    x, dim = args[0], dims[0]
    x = jnp.moveaxis(x, dim, len(source_of(action).lead))
    wider = with_dim(action, x.shape[len(source_of(action).lead)])
    return layout_change.bind(x, action=wider), len(target_of(action).lead)


def with_dim(action: Action, size: int) -> Action:
    match action:
        case Transition(source, target, options):
            return Transition(source.with_dim(0, size), target.with_dim(0, size), options)
        case ShardPermutation(held, pairs):
            return ShardPermutation(held.with_dim(0, size), pairs)
        case Transfer(source, target):
            return Transfer(source.with_dim(0, size), target.with_dim(0, size))


batching.primitive_batchers[layout_change] = _batched


# -- derivatives ------------------------------------------------------------------------------------------------------


def _jvp(primals: tuple, tangents: tuple, *, action: Action) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    if isinstance(action, Transition) and not action.is_linear:
        if type(t) is ad.Zero:
            result = layout_change.bind(x, action=action)
            return result, ad.Zero.from_primal_value(result)
        return jax.jvp(partial(by_plain_reductions, action=action), (x,), (t,))
    result = layout_change.bind(x, action=action)
    if type(t) is ad.Zero:
        return result, ad.Zero.from_primal_value(result)
    return result, layout_change.bind(t, action=tangent_of(action))


def tangent_of(action: Action) -> Action:
    """What a linear action does to tangents: identities become zeros, pieces that stay are just stacked."""
    if not isinstance(action, Transition):
        return action
    made = {axis for axis in action.target.lead if axis not in action.source.lead}
    resolved = dict(action.resolved)

    def linear(held: Storage, own: Any) -> Storage:
        pieces = [(axis, op if axis in own and op.is_linear else ReduceOp.SUM) for axis, op in held.layout.partial]
        return held.with_layout(held.layout.replace(partial=pieces))

    return Transition(linear(action.source, resolved), linear(action.target, made), action.options)


def _transpose(ct: Any, x: Any, *, action: Action) -> list[Any]:
    if type(ct) is ad.Zero:
        return [ad.Zero(x.aval)]
    if isinstance(action, ShardPermutation):
        backwards = tuple(sorted((target, source) for source, target in action.pairs))
        return [layout_change.bind(ct, action=ShardPermutation(action.held, backwards))]
    if isinstance(action, Transfer):
        return [layout_change.bind(ct, action=Transfer(action.target, action.source))]
    source, target = action.source, action.target
    resolved = dict(action.resolved)
    stays = {axis for axis in source.lead if axis not in resolved}
    for position, (axis, op) in enumerate(target.layout.partial):
        if axis not in stays and op is not ReduceOp.AVG:
            ct = _first_only(ct, position)
    summed = target.with_layout(target.layout.replace(partial=[(axis, ReduceOp.SUM) for axis in target.lead]))
    value = source.with_layout(source.layout.replace(partial=[(axis, ReduceOp.SUM) for axis in stays]))
    ct = transition(ct, summed, value, action.options)
    for position, (axis, op) in enumerate(source.layout.partial):
        if axis in resolved:
            count = source.layout.sizes[axis]
            ct = jnp.broadcast_to(jnp.expand_dims(ct, position), (*ct.shape[:position], count, *ct.shape[position:]))
            if op is ReduceOp.AVG:
                ct = ct / jnp.asarray(count, ct.dtype)
    return [laid_out(ct, source)]


def _first_only(x: Any, position: int) -> Any:
    """Zero but for the first piece."""
    first = jax.lax.broadcasted_iota(jnp.int32, x.shape, position) == 0
    return jnp.where(first, x, jnp.zeros((), x.dtype))


ad.primitive_jvps[layout_change] = _jvp
ad.primitive_transposes[layout_change] = _transpose


# -- reductions that aren't linear ------------------------------------------------------------------------------------


def by_plain_reductions(x: Any, action: Transition) -> Any:
    """The same result from linear transitions and plain reductions, for the derivative of MAX, MIN and PROD."""
    held = action.source
    for axis, op in reversed(action.resolved):  # from the last mesh axis to the first
        position = held.lead.index(axis)
        x, stacked = as_dim(x, held, position)
        whole = stacked.with_layout(_spread(stacked, axis))
        x = transition(x, stacked, whole)
        x = combine(x, op, len(whole.lead))
        rest = Layout(whole.layout.axes, whole.layout.dims[1:], whole.layout.partial)
        held = storage(held.mesh, rest, held.shape, held.memory_kind)
        x = laid_out(x, held)
    return transition(x, held, action.target, action.options)


def as_dim(x: Any, held: Storage, position: int) -> tuple[Any, Storage]:
    """The pieces at one lead position, read as the tensor's first dim, split over that axis.  No data moves."""
    axis = held.lead[position]
    pieces = [(a, op) for a, op in held.layout.partial if a != axis]
    layout = Layout(held.layout.axes, ((axis,), *held.layout.dims), pieces)
    shape = (held.layout.sizes[axis], *held.shape)
    return jnp.moveaxis(x, position, len(pieces)), storage(held.mesh, layout, shape, held.memory_kind)


def _spread(stacked: Storage, axis: str) -> Layout:
    """The stack whole on each device; another dim takes its axis where one divides, so that no piece is copied."""
    layout = stacked.layout
    dims = [(), *layout.dims[1:]]
    for dim in range(1, len(dims)):
        if stacked.shape[dim] and stacked.shape[dim] % layout.count((*dims[dim], axis)) == 0:
            dims[dim] = (*dims[dim], axis)
            break
    return layout.replace(dims=dims)
