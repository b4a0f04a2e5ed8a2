"""From a call such as `add(x, y)` to its Tensor: which way the op takes, decided once, then one look-up to the program.

An op is a `Kernel`: the rule that says how its dims depend on each other, and the body that computes one device's
blocks.  What a call decides depends on the kernel, its parameters, and how the operands lie; the decision, with the
compiled program, is kept by just these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import reading
from lamina.engine.computing import Computation, computed
from lamina.engine.links import default_links
from lamina.engine.local import Body, Fill
from lamina.engine.storage import Storage, storage, whole
from lamina.errors import LaminaError, LayoutError, explained, with_fix
from lamina.ops import implicit
from lamina.ops import rehearsal as rehearsals
from lamina.ops.arguments import described, host_array, relayout, relocate
from lamina.ops.asking import asked_layout
from lamina.planning.choice import Choice, choose
from lamina.rules import Factors
from lamina.sharding import DeviceMapping, DeviceMesh, Layout
from lamina.tensors import Tensor, from_jax, tensor

Params = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Kernel:
    """One op.

    `rule(shapes, *params)` gives its factors (the operands that are Python numbers have shape ()).  `body(here,
    *blocks, *params)` computes one device's blocks.  `fill(dtype)` is what padding is filled with before the body sees
    it; without one the body doesn't read it.  `receives(required, results, *params)`: the elements that the body's own
    collectives make a device receive, on the mean.
    """

    name: str
    rule: Callable[..., Factors]
    body: Body
    fill: Fill | None = None
    receives: Callable[..., float] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a call on operands that lie so does."""

    kernel: Kernel
    computation: Computation
    itemsizes: tuple[float, ...]
    run: Callable[..., tuple]
    wanted: Storage | None = None  # where the caller asked for the result

    @property
    def moves(self) -> bool:
        return not self.computation.is_silent


def compute(kernel: Kernel, operands: Sequence[Any], params: Params = (), out_sharding: Any = None) -> Any:
    """The kernel on Tensors, arrays and numbers: one Tensor, or a tuple of them.

    `out_sharding`, a mapping or dim specs, says how the (one) result lies: the way that gets there at least cost is
    taken, and nothing that was computed split is gathered for it if there is another way.
    """
    asked = tuple(out_sharding) if isinstance(out_sharding, list) else out_sharding
    decision, arrays = _decided(kernel, operands, params, asked)
    if decision.moves and decision.wanted is None and implicit.watched():  # an out_sharding asks for it
        implicit.report(decision.computation, decision.itemsizes)
    made = decision.run(*arrays)
    results = decision.computation.results
    if len(results) == 1:
        result = Tensor(made[0], results[0])
        return result if decision.wanted is None else relocate(result, decision.wanted)
    return tuple(Tensor(x, held) for x, held in zip(made, results, strict=True))


def settled(kernel: Kernel, x: Any, params: Params = ()) -> Tensor:
    """x brought to where the kernel of one operand takes it: an op of several steps moves its operand just once."""
    decision, (array,) = _decided(kernel, (x,), params, None)
    (source,), (required,) = decision.computation.sources, decision.computation.required
    assert source is not None and required is not None
    if decision.moves and implicit.watched():
        implicit.report(decision.computation, decision.itemsizes)
    return relayout(Tensor(array, source), required)


def _decided(kernel: Kernel, operands: Sequence[Any], params: Params, asked: Any) -> tuple[Decision, list[Any]]:
    arrays: list[Any] = []
    known: list[tuple[Storage | None, Any]] = []
    numbers = pieces = False
    for x in operands:
        if type(x) is Tensor and x._storage is not None and x._storage.memory_kind is None:
            arrays.append(x._array)
            known.append((x._storage, x._array.dtype))
            pieces |= bool(x._storage.lead)
        elif type(x) in _NUMBERS and len(operands) > 1:
            arrays.append(x)
            known.append((None, type(x)))
            numbers = True
        else:
            return _decided(kernel, together(kernel.name, operands), params, asked)
    if (numbers and pieces) or len(known) == sum(held is None for held, _ in known):
        return _decided(kernel, as_tensors(kernel.name, operands), params, asked)
    if (rehearsal := rehearsals.current()) is not None:
        weigh = rehearsal.weigh(kernel.name, arrays, [held for held, _ in known])
        decision = _decide.__wrapped__(kernel, tuple(known), params, asked, weigh)
        rehearsal.inside(decision.computation.received * max(decision.itemsizes))
        return decision, arrays
    try:
        return _decide(kernel, tuple(known), params, asked), arrays
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
    return _decide.__wrapped__(kernel, tuple(known), params, asked), arrays


_NUMBERS = (int, float, bool, complex)


@lru_cache(maxsize=8192, typed=True)
def _decide(
    kernel: Kernel, known: tuple[tuple[Storage | None, Any], ...], params: Params, asked: Any, weigh: Any = None
) -> Decision:
    """What the call does; `weigh` chooses in place of the planner, for a rehearsal."""
    sources = tuple(held for held, _ in known)
    tensors = [held for held in sources if held is not None]
    check_one_mesh(kernel.name, tensors)
    with explained(kernel.name, fix="", only=LaminaError, **_shown(sources)):
        factors = kernel.rule([() if held is None else held.shape for held in sources], *params)
        if not all(held is None or jnp.issubdtype(dtype, jnp.inexact) for held, dtype in known):
            factors = factors.without_averages()
        itemsizes = tuple(0.0 if held is None else np.dtype(dtype).itemsize for held, dtype in known)
        mesh = tensors[0].mesh
        wanted = None if asked is None else _asked(kernel.name, asked, mesh, tuple(factors.result_shapes[0]))
        way = chosen(factors, sources, itemsizes, None if wanted is None else wanted.layout, weigh).way
        required = tuple(
            held if held is None else held.with_layout(layout)
            for held, layout in zip(sources, way.required, strict=True)
        )
        results = tuple(
            storage(mesh, layout, tuple(shape))
            for layout, shape in zip(way.results, factors.result_shapes, strict=True)
        )
    body = _with_params(kernel.body, params)
    received = kernel.receives(required, results, *params) if kernel.receives else 0.0
    computation = Computation(kernel.name, body, sources, required, results, kernel.fill, received)
    return Decision(kernel, computation, itemsizes, computed(computation), wanted)


def _asked(name: str, asked: Any, mesh: DeviceMesh, shape: tuple[int, ...]) -> Storage:
    """The storage that an `out_sharding` asks for."""
    if isinstance(asked, DeviceMapping):
        if asked.mesh != mesh:
            fact = f"out_sharding={asked!r} is on another mesh than the operands, {mesh!r}"
            raise LayoutError(with_fix(fact, "give a mapping on their mesh, or dim specs"))
        return storage(mesh, asked.layout(len(shape)), shape)
    return storage(mesh, asked_layout(name, shape, None, mesh, asked, None, (), "out_sharding"), shape)


@lru_cache(maxsize=8192, typed=True)
def _with_params(body: Body, params: Params) -> Body:
    """The body with its parameters, one object for equal ones: it is a part of the program's key."""
    return _Bound(body, params) if params else body


@dataclass(frozen=True, slots=True)
class _Bound:
    body: Body
    params: Params

    def __call__(self, here: Any, *blocks: Any) -> Any:
        return self.body(here, *blocks, *self.params)


def chosen(
    factors: Factors,
    sources: Sequence[Storage | None],
    itemsizes: Sequence[float],
    wanted: Layout | None = None,
    weigh: Any = None,
) -> Choice:
    """The way that the op takes; `wanted` is how the result shall lie."""
    first = next(held for held in sources if held is not None)
    bare = first.layout.replace((), ())
    layouts = [bare if held is None else held.layout for held in sources]
    if weigh is not None:
        return weigh(factors, layouts, itemsizes, wanted)
    return choose(factors, layouts, itemsizes, default_links(first.mesh), wanted)


def _shown(sources: Sequence[Storage | None]) -> dict[str, str]:
    """The operands, for an error."""
    return {f"operand {i}": described(held) for i, held in enumerate(sources) if held is not None}


# -- operands ---------------------------------------------------------------------------------------------------------


def together(name: str, operands: Sequence[Any]) -> list[Any]:
    """The operands as Tensors of one mesh; Python numbers stay numbers beside a Tensor or an array.

    Plain arrays join the Tensors' mesh, copied to each device.  Tensors on different meshes are an error: which of
    them should move is the user's to say.
    """
    mesh = one_mesh(name, operands)
    found: list[Any] = []
    for x in operands:
        if type(x) in _NUMBERS and len(operands) > 1:
            found.append(x)
        elif isinstance(x, Tensor):
            found.append(x if x._held.memory_kind is None else Tensor(*reading.in_device_memory(x._array, x._held)))
        elif mesh is None:
            found.append(tensor(x))
        else:
            found.append(_joined(name, x, mesh))
    return _on_one_mesh(found) if mesh is None else found


def as_tensors(name: str, operands: Sequence[Any]) -> list[Tensor]:
    """The operands, numbers too, as Tensors of one mesh.  A number takes the dtype that the others give it."""
    arrays = [x for x in operands if type(x) not in _NUMBERS]
    made = []
    for x in operands:
        kind = jnp.result_type(*(a.dtype for a in arrays), x) if arrays and type(x) in _NUMBERS else None
        made.append(x if kind is None else np.asarray(x, kind))
    return together(name, made) if arrays else [tensor(x) for x in operands]


def one_mesh(name: str, operands: Sequence[Any]) -> DeviceMesh | None:
    held = [x._held for x in operands if isinstance(x, Tensor)]
    check_one_mesh(name, held)
    return held[0].mesh if held else None


def check_one_mesh(name: str, held: Sequence[Storage]) -> None:
    """LayoutError if these tensors lie on several meshes."""
    meshes = {one.mesh: one for one in held}
    if len(meshes) > 1:
        lies = "; ".join(f"{described(one)} on {mesh!r}" for mesh, one in meshes.items())
        fact = f"{name}: the operands lie on different meshes: {lies}"
        raise LayoutError(with_fix(fact, "bring them to one mesh with lamina.shard(x, mesh, ...)"))


def _joined(name: str, x: Any, mesh: DeviceMesh) -> Tensor:
    """A plain array beside Tensors: as it lies if it is on their mesh, else copied to each device."""
    if isinstance(x, jax.Array):
        there = from_jax(x)
        return there if there.mesh == mesh else relocate(there, whole(mesh, there.shape))
    value = host_array(x, name)
    return relocate(value, whole(mesh, value.shape))


def _on_one_mesh(found: list[Any]) -> list[Any]:
    """Plain arrays only: those on one device join those on several."""
    meshes = {x.mesh for x in found if isinstance(x, Tensor) and not x.mesh.is_single}
    if len(meshes) != 1:
        return found
    mesh = meshes.pop()
    return [relocate(x, whole(mesh, x.shape)) if isinstance(x, Tensor) and x.mesh != mesh else x for x in found]
