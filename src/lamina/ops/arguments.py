"""From what the user passes to what the engine takes: Tensors, storages, mesh axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Any

import jax
import numpy as np

from lamina.engine import compat, primitive, programs, reading, transfer
from lamina.engine.programs import DEFAULT, Options, Transition
from lamina.engine.storage import Storage, storage
from lamina.errors import LayoutError, Problems, with_fix
from lamina.ops import rehearsal as rehearsals
from lamina.sharding import DeviceMapping
from lamina.sharding.integers import as_integer
from lamina.sharding.layout import Axes
from lamina.tensors import Tensor, from_jax, host_array, tensor


def as_tensor(x: Any, op: str) -> Tensor:
    """The argument of an op as a Tensor: arrays where they are (in device memory), host data on the default device."""
    t = x if type(x) is Tensor else tensor(as_data(x, op))
    return t if t._held.memory_kind is None else Tensor(*reading.in_device_memory(t._array, t._held))


def as_data(x: Any, op: str) -> Any:
    """Tensors and arrays as they are, anything else as numpy has it; TypeError where that isn't numbers."""
    return x if isinstance(x, (Tensor, jax.Array)) else host_array(x, op)


def decided_once(decide: Callable) -> Callable:
    """Keeps what a call decides, by the values *and types* of its arguments (1 == 1.0 == True, but only one is a dim).

    An argument that can't be hashed is decided anew each time: usually it gets the error that it deserves.
    """
    known = lru_cache(maxsize=4096, typed=True)(decide)

    @wraps(decide)
    def decision(*arguments: Any) -> Any:
        try:
            return known(*arguments)
        except TypeError:
            pass
        return decide(*arguments)

    return decision


def over_leaves(one: Callable[[Any], Tensor], x: Any) -> Any:
    """`one` on a tensor, or on every leaf of a pytree of them."""
    if isinstance(x, (Tensor, jax.Array, np.ndarray, np.generic)) or jax.tree_util.all_leaves([x]):
        return one(x)
    return jax.tree_util.tree_map(one, x, is_leaf=lambda leaf: isinstance(leaf, Tensor))


def shape_of(x: Any) -> tuple[int, ...]:
    return tuple(np.shape(x)) if not isinstance(x, Tensor) else x.shape


def relocate(x: Any, target: Storage, options: Options = DEFAULT, donate: bool = False) -> Tensor:
    """The value of x (a Tensor, array or host data) as `target` says, from wherever it is."""
    if not isinstance(x, (Tensor, jax.Array)):
        return Tensor(transfer.place(x, target), target)
    t = x if isinstance(x, Tensor) else from_jax(x)
    if t._held is target:
        return t
    _rehearsed(t, target)
    array, held = reading.in_device_memory(t._array, t._held)
    arriving = target.with_kind(None)
    if held.mesh != arriving.mesh:
        array = primitive.transfer(array, held, arriving, options)
    else:
        array = _along(primitive.route(held, arriving, options), array, donate)
    if target.memory_kind is not None:
        array = jax.device_put(array, target.sharding)
    return Tensor(array, target)


def _along(route: tuple[Transition, ...], array: Any, donate: bool) -> Any:
    for step in route:
        if step.options.memory_limit is not None:
            step.plan(array.dtype.itemsize)  # a limit that no route keeps is said before anything moves
    for step in route:
        known = donate and not compat.is_tracer(array)
        array = programs.run(array, step, donate=True) if known else primitive.apply(array, step)
    return array


def relayout(t: Tensor, target: Storage) -> Tensor:
    """The same value in another layout of the same mesh."""
    _rehearsed(t, target)
    return t if t._held is target else Tensor(primitive.transition(t._array, t._held, target), target)


def _rehearsed(t: Tensor, target: Storage) -> None:
    if (rehearsal := rehearsals.current()) is not None:
        rehearsal.moved(t._array, t._held, target, t.dtype.itemsize)


def storage_for(mapping: DeviceMapping, shape: tuple[int, ...]) -> Storage:
    """The storage of a tensor of this shape under a resolved mapping."""
    return storage(mapping.mesh, mapping.layout(len(shape)), shape, mapping.memory_kind)


def dim_of(held: Storage, dim: Any, argument: str) -> int:
    """A dim argument, checked and made non-negative."""
    if (number := as_integer(dim)) is None:
        raise TypeError(f"{argument} must be an integer, not {dim!r}")
    if not -held.rank <= number < held.rank:
        fact = f"{argument}={dim} is out of range for a tensor of shape {held.shape}"
        there = f"name a dim from {-held.rank} to {held.rank - 1}" if held.rank else "a tensor without dims has none"
        raise LayoutError(with_fix(fact, there))
    return number % held.rank


def axes_of(held: Storage, axes: Any, argument: str) -> Axes:
    """Mesh axis names, checked, in mesh order: one name or an iterable of them."""
    names = [axes] if isinstance(axes, str) else list(axes) if isinstance(axes, Iterable) else [axes]
    problems = Problems()
    for name in names:
        if name not in held.mesh.axis_names:
            known = f"name axes of {list(held.mesh.axis_names)}"
            problems.add(f"{argument}: {name!r} is not an axis of the mesh {held.mesh}", known)
        elif names.count(name) > 1:
            problems.add(f"{argument}: axis {name!r} stands twice", "name each axis once")
    problems.check()
    return tuple(name for name in held.mesh.axis_names if name in names)


def described(held: Storage) -> str:
    """What an error shows of a tensor."""
    return f"{list(held.shape)} lying as {held.layout}"
