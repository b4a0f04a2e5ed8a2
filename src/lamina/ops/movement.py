"""Ops that only say where elements stand: the shape, the order of the dims, copies along new ones.

They move nothing between devices where the layout allows it: a transpose, new dims and copies always, a reshape where
the split dims stay or are cut and joined at their blocks' ends.  If a major dim is split otherwise (7 rows of 4 over 2
devices, as 28), a device receives what its block of the result has and its block hasn't.  If a minor one is, its axes
first move to another dim, which costs a device (k-1)/k of its block, or it is gathered where no other can take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, prod
from operator import index as as_integer
from typing import Any

import jax.numpy as jnp

from lamina.engine import rows
from lamina.engine.routes import received
from lamina.engine.storage import Storage
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops.arguments import as_data, as_tensor
from lamina.ops.compute import Kernel, compute, together
from lamina.ops.dims import as_dim, as_dims
from lamina.ops.elementwise import astype
from lamina.rules import movement
from lamina.rules.elementwise import elementwise
from lamina.rules.rows import Run
from lamina.tensors import Tensor


def _reshaped(here: Any, x: Any, shape: Any, across: movement.Groups) -> Any:
    held, made = here.operands[0], here.results[0]
    for dims, news in reversed(across):
        if axes := made.layout.dims[news[0]]:
            first, units, together = _flat(held, made, dims, news)
            before, behind = x.shape[: dims[0]], x.shape[dims[-1] + 1 :]
            x = x.reshape(*before, -(-held.shape[first] // held.layout.grid[first]) * units[0], together, *behind)
            count = held.shape[first] * units[0]
            x = rows.taken(here, [x], dims[0], [count], axes, (Run(0, 1, count),), 0, units)
    return jnp.reshape(x, made.layout.padded_block(made.shape))


def _flat(held: Any, made: Any, dims: tuple[int, ...], news: tuple[int, ...]) -> tuple[int, tuple[int, int], int]:
    """The major dim; how many rows an entry of it is, and one of the result's; how many elements a row has."""
    mine, yours = prod(held.shape[d] for d in dims[1:]), prod(made.shape[e] for e in news[1:])
    together = gcd(mine, yours)
    return dims[0], (mine // together, yours // together), together


def _reshaping_receives(required: Any, results: Any, shape: Any, across: movement.Groups) -> float:
    (held,), (made,) = required, results
    total = 0.0
    for dims, news in across:
        first, units, together = _flat(held, made, dims, news)
        count, blocks = held.shape[first] * units[0], held.layout.grid[first]
        beside = prod(size for d, size in enumerate(held.layout.padded_block(held.shape)) if d not in dims)
        total += received([count], blocks, (Run(0, 1, count),), units) * together * beside
    return total


def _stretched(here: Any, x: Any, shape: Any) -> Any:
    held = here.results[0]
    return jnp.broadcast_to(x, held.layout.padded_block(held.shape))


def _triangle(here: Any, x: Any, offset: int, lower: bool) -> Any:
    held = here.operands[0]
    rows, columns = here.positions(held, held.rank - 2), here.positions(held, held.rank - 1)
    below = rows[:, None] + offset
    keep = columns[None, :] <= below if lower else columns[None, :] >= below
    return jnp.where(keep, x, jnp.zeros((), x.dtype))


_RESHAPE = Kernel("reshape", movement.reshape_across, _reshaped, receives=_reshaping_receives)
_TRANSPOSE = Kernel("transpose", movement.transpose, lambda here, x, order: jnp.transpose(x, order))
_BROADCAST = Kernel("broadcast_to", movement.broadcast_to, _stretched)
_STACK = Kernel("stack", lambda shapes, dim: movement.stack(shapes, dim), lambda here, *x: jnp.stack(x[:-1], x[-1]))
_TRIANGLE = Kernel("tril", lambda shapes, offset, lower: elementwise(shapes, movement.MOVED), _triangle)
KERNELS = {kernel.name: kernel for kernel in (_RESHAPE, _TRANSPOSE, _BROADCAST, _STACK, _TRIANGLE)}


def reshape(x: Any, shape: Any) -> Tensor:
    """The same elements in row-major order; one size may be -1, for what is left.

    Split dims that stay, are cut at their major end or joined from it keep their axes, and nothing moves.

    >>> import numpy as np, lamina
    >>> x = lamina.shard(np.ones((4, 6)), lamina.DeviceMesh.simulated((2,), ("tp",)), [None, "tp"])
    >>> lamina.reshape(x, (4, 2, 3)).sharding, x.reshape(-1, 3).shape
    (NamedMapping('[tp=2] -,tp,-'), (8, 3))
    """
    x = as_tensor(x, "reshape")
    with explained(f"reshape(shape={shape!r})", shape=x.shape):
        target = _sizes(x.shape, shape)
    return x if target == x.shape else compute(_RESHAPE, (x,), (target, _crossing(x._held, target)))


@lru_cache(maxsize=4096)
def _crossing(held: Storage, target: tuple[int, ...]) -> movement.Groups:
    same = prod(held.shape) == prod(target)  # else the rule says what is wrong
    return movement.crossing(held.shape, target, held.layout) if same else ()


def _sizes(own: tuple[int, ...], shape: Any) -> tuple[int, ...]:
    sizes = [as_integer(size) for size in (shape if isinstance(shape, Sequence) else (shape,))]
    if any(size < -1 for size in sizes) or sizes.count(-1) > 1:
        raise LayoutError(with_fix(f"{tuple(sizes)} is no shape", "sizes are at least 0, and at most one is -1"))
    if -1 in sizes:
        rest = prod(size for size in sizes if size != -1)
        if not rest or prod(own) % rest:
            fact = f"{prod(own)} elements can't be cut into parts of {rest}"
            raise LayoutError(with_fix(fact, "the other sizes must divide the number of elements"))
        sizes[sizes.index(-1)] = prod(own) // rest
    return tuple(sizes)


def ravel(x: Any) -> Tensor:
    """All elements along one dim, in row-major order.

    >>> import lamina
    >>> lamina.ravel(lamina.tensor([[1, 2], [3, 4]])).tolist()
    [1, 2, 3, 4]
    """
    return reshape(x, (-1,))


def transpose(x: Any, axes: Any = None) -> Tensor:
    """The dims in the order `axes` (None: reversed); their axes go with them, and nothing moves.

    >>> import numpy as np, lamina
    >>> x = lamina.shard(np.ones((4, 6)), lamina.DeviceMesh.simulated((2,), ("tp",)), ["tp"])
    >>> lamina.transpose(x).sharding
    NamedMapping('[tp=2] -,tp')
    """
    x = as_tensor(x, "transpose")
    with explained(f"transpose(axes={axes!r})", shape=x.shape):
        order = tuple(reversed(range(x.ndim))) if axes is None else as_dims(tuple(axes), x.ndim, "axes")
        if len(order) != x.ndim:
            fact = f"{len(order)} dims are named for a tensor of rank {x.ndim}"
            raise LayoutError(with_fix(fact, "name each dim once"))
    return compute(_TRANSPOSE, (x,), (order,))


def matrix_transpose(x: Any) -> Tensor:
    """The last two dims swapped, as `x.mT`.

    >>> import lamina
    >>> lamina.matrix_transpose(lamina.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    x = as_tensor(x, "matrix_transpose")
    if x.ndim < 2:
        fact = f"matrix_transpose of shape {x.shape}: there are no two dims to swap"
        raise LayoutError(with_fix(fact, "give it a tensor of rank 2 or more"))
    return swapaxes(x, -1, -2)


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two dims swapped.

    >>> import numpy as np, lamina
    >>> lamina.swapaxes(lamina.tensor(np.ones((2, 3, 4))), 0, -1).shape
    (4, 3, 2)
    """
    x = as_tensor(x, "swapaxes")
    with explained(f"swapaxes(axis1={axis1!r}, axis2={axis2!r})", shape=x.shape):
        one, other = as_dim(axis1, x.ndim, "axis1"), as_dim(axis2, x.ndim, "axis2")
    order = list(range(x.ndim))
    order[one], order[other] = other, one
    return transpose(x, order)


def moveaxis(x: Any, source: Any, destination: Any) -> Tensor:
    """The dims `source` at the places `destination`, the others in their order.

    >>> import numpy as np, lamina
    >>> lamina.moveaxis(lamina.tensor(np.ones((2, 3, 4))), 0, -1).shape
    (3, 4, 2)
    """
    x = as_tensor(x, "moveaxis")
    with explained(f"moveaxis(source={source!r}, destination={destination!r})", shape=x.shape):
        given, wanted = as_dims(source, x.ndim, "source"), as_dims(destination, x.ndim, "destination")
        if len(given) != len(wanted):
            fact = f"{len(given)} dims can't go to {len(wanted)} places"
            raise LayoutError(with_fix(fact, "name as many places as dims"))
    order = [d for d in range(x.ndim) if d not in given]
    for place, d in sorted(zip(wanted, given, strict=True)):
        order.insert(place, d)
    return transpose(x, order)


def expand_dims(x: Any, axis: Any) -> Tensor:
    """With dims of 1 that stand at `axis` in the result.

    >>> import lamina
    >>> lamina.expand_dims(lamina.tensor([1.0, 2.0]), (0, -1)).shape
    (1, 2, 1)
    """
    x = as_tensor(x, "expand_dims")
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    with explained(f"expand_dims(axis={axis!r})", shape=x.shape):
        new = as_dims(axes, x.ndim + len(axes))
    rest = iter(x.shape)
    return reshape(x, tuple(1 if d in new else next(rest) for d in range(x.ndim + len(axes))))


def squeeze(x: Any, axis: Any = None) -> Tensor:
    """Without dims of 1: those at `axis`, or all.

    >>> import numpy as np, lamina
    >>> lamina.squeeze(lamina.tensor(np.ones((1, 2, 1)))).shape
    (2,)
    """
    x = as_tensor(x, "squeeze")
    with explained(f"squeeze(axis={axis!r})", shape=x.shape):
        gone = tuple(d for d, size in enumerate(x.shape) if size == 1) if axis is None else as_dims(axis, x.ndim)
        if larger := [d for d in gone if x.shape[d] != 1]:
            fact = f"dim {larger[0]} has {x.shape[larger[0]]} entries, and only dims of 1 can go"
            raise LayoutError(with_fix(fact, "index it, x[..., 0], or reduce it"))
    return reshape(x, tuple(size for d, size in enumerate(x.shape) if d not in gone))


def broadcast_to(x: Any, shape: Any) -> Tensor:
    """Copies along new dims in front, and along dims of 1, to this shape.

    >>> import lamina
    >>> lamina.broadcast_to(lamina.tensor([1.0, 2.0]), (3, 2)).shape
    (3, 2)
    """
    x = as_tensor(x, "broadcast_to")
    sizes = tuple(as_integer(size) for size in (shape if isinstance(shape, Sequence) else (shape,)))
    return x if sizes == x.shape else compute(_BROADCAST, (x,), (sizes,))


def stack(arrays: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new dim, which is whole.

    >>> import lamina
    >>> lamina.stack([lamina.tensor([1, 2]), lamina.tensor([3, 4])], -1).tolist()
    [[1, 3], [2, 4]]
    """
    parts = of_one_dtype("stack", arrays)
    with explained(f"stack(axis={axis!r})", shapes=[part.shape for part in parts]):
        dim = as_dim(axis, parts[0].ndim + 1)
    return compute(_STACK, parts, (dim,))


def of_one_dtype(name: str, arrays: Sequence[Any]) -> list[Any]:
    """Tensors and arrays to be joined, in the dtype that holds them all."""
    if isinstance(arrays, Tensor) or not len(arrays):
        shown = "a Tensor" if isinstance(arrays, Tensor) else "nothing"
        raise LayoutError(with_fix(f"{name}(arrays) takes several tensors, not {shown}", "give it a list of tensors"))
    parts = together(name, [as_data(part, name) for part in arrays])
    kind = jnp.result_type(*(part.dtype for part in parts))
    return [part if part.dtype == kind else astype(part, kind) for part in parts]


def tril(x: Any, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal of its last two dims.  Nothing moves.

    >>> import lamina
    >>> lamina.tril(lamina.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 0], [3, 4]]
    """
    return _triangular("tril", x, k, True)


def triu(x: Any, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal of its last two dims.  Nothing moves.

    >>> import lamina
    >>> lamina.triu(lamina.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 2], [0, 4]]
    """
    return _triangular("triu", x, k, False)


def _triangular(name: str, x: Any, k: int, lower: bool) -> Tensor:
    x = as_tensor(x, name)
    if x.ndim < 2:
        fact = f"{name} of shape {x.shape}: there are no two dims to take a triangle of"
        raise LayoutError(with_fix(fact, "give it a tensor of rank 2 or more"))
    return compute(_TRIANGLE, (x,), (as_integer(k), lower))


__all__ = [
    "broadcast_to",
    "expand_dims",
    "matrix_transpose",
    "moveaxis",
    "ravel",
    "reshape",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
    "tril",
    "triu",
]
