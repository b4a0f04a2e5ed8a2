"""`x[...]`: numpy's indexing, as slices, then numbers and index tensors, then new dims.

====================  ================================================================================================
slice, any step       a dim that is split stays split over the same axes; a device receives the rows that it lacks
number                the dim goes; along a split one the result is Partial: its owner's row, zeros from the others
index tensors         as numpy has it, in place of their dims or in front; along split dims Partial
None, ...             new dims; all dims that aren't named
mask of bools         only where its value is known, for how much it selects is the result's shape
====================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index as as_integer
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import compat
from lamina.errors import LayoutError, TransformError, explained, with_fix
from lamina.ops.arguments import as_tensor
from lamina.ops.indexing import gathered
from lamina.ops.movement import reshape
from lamina.ops.rearranging import rearranged
from lamina.rules.rows import Run, Runs
from lamina.tensors import Tensor


@dataclass
class Reading:
    """An index, entry by entry: what becomes of each dim of x, and where new dims stand among the result's."""

    shape: tuple[int, ...]
    slices: dict[int, Runs] = field(default_factory=dict)
    picked: dict[int, Any] = field(default_factory=dict)  # dim → number or index tensor
    result: list[int | str | None] = field(default_factory=list)  # dims of x that stay, None for new, "picked"
    dim: int = 0

    def whole(self, count: int) -> None:
        self.result += range(self.dim, self.dim + count)
        self.dim += count

    def sliced(self, entry: slice) -> None:
        start, stop, step = entry.indices(self.shape[self.dim])
        count = len(range(start, stop, step))
        self.slices[self.dim] = (Run(start, step, count),) if count else ()
        self.whole(1)

    def pick(self, index: Any, masked: int | None) -> None:
        if masked not in (None, self.shape[self.dim]):
            fact = f"a mask of {masked} entries for dim {self.dim}, which has {self.shape[self.dim]}"
            raise LayoutError(with_fix(fact, "give it an entry for each of the dim"))
        self.picked[self.dim] = index
        self.result.append("picked")
        self.dim += 1


def getitem(x: Any, index: Any) -> Tensor:
    """`x[index]`; see the module.

    >>> import numpy as np, lamina
    >>> x = lamina.shard(np.arange(8), lamina.DeviceMesh.simulated((2,), ("x",)), ["x"])
    >>> x[1:7:2].tolist(), x[-1].item(), x[np.array([3, 0])].tolist(), x[None, ::-1].sharding
    ([1, 3, 5], 7, [3, 0], NamedMapping('[x=2] -,x'))
    """
    x = as_tensor(x, "getitem")
    with explained(f"x[{shown(index)}]", shape=x.shape):
        found = read(x.shape, index)
        x = rearranged("getitem", x, found.slices)
        numbers = [d for d, entry in found.picked.items() if np.ndim(entry) == 0]
        if len(numbers) < len(found.picked):
            return _with_tensors(x, found)
        if numbers:
            x = gathered(x, numbers, list(found.picked.values()), 0)
    return _with_new_dims(x, [entry for entry in found.result if entry != "picked"])


def read(shape: tuple[int, ...], index: Any) -> Reading:
    """What an index says about a tensor of this shape."""
    given = index if isinstance(index, tuple) else (index,)
    entries = [each for entry in given for each in _without_masks(entry)]
    dots = [entry for entry, _ in entries if entry is Ellipsis]
    named = sum(entry is not None and entry is not Ellipsis for entry, _ in entries)
    if len(dots) > 1 or named > len(shape):
        fact = (
            f"there are {len(dots)} dots" if len(dots) > 1 else f"{named} dims are indexed, and there are {len(shape)}"
        )
        raise LayoutError(with_fix(fact, "index each dim at most once, with at most one '...'"))
    if not dots:
        entries.append((Ellipsis, None))
    found = Reading(shape)
    for entry, masked in entries:
        if entry is None:
            found.result.append(None)
        elif entry is Ellipsis:
            found.whole(len(shape) - named)
        elif isinstance(entry, slice):
            found.sliced(entry)
        else:
            found.pick(entry, masked)
    return found


def _without_masks(entry: Any) -> list[tuple[Any, int | None]]:
    """A mask as the numbers of what it selects, one index tensor for each of its dims, with the dim's size."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return [(entry, None)]
    if isinstance(entry, list):
        entry = np.asarray(entry, None if np.size(entry) else np.int32)
    if not isinstance(entry, (np.ndarray, Tensor, jax.Array)):
        if isinstance(entry, (bool, np.bool_)):
            raise TypeError(f"{entry!r} can't index a Tensor; None makes a new dim")
        return [(as_integer(entry), None)]
    if entry.dtype != np.bool_:
        return [(entry, None)]
    if compat.is_tracer(entry._array if isinstance(entry, Tensor) else entry):
        fact = "inside jax.jit a mask of bools can't index: how much it selects is the result's shape"
        raise TransformError(with_fix(fact, "use lamina.where(mask, x, 0), or index outside of jax.jit"))
    mask = np.asarray(entry)
    if not mask.ndim:
        raise TypeError(f"{mask.item()!r} can't index a Tensor; None makes a new dim")
    return list(zip(np.nonzero(mask), mask.shape, strict=True))


def _with_tensors(x: Tensor, found: Reading) -> Tensor:
    """Index tensors stand in place of their dims where these are neighbours, else in front; numbers count with them."""
    places = [i for i, entry in enumerate(found.result) if entry == "picked"]
    together = places == list(range(places[0], places[-1] + 1))
    before = [entry for entry in found.result[: places[0]] if entry is not None] if together else []
    made = gathered(x, list(found.picked), list(found.picked.values()), len(before))
    new = made.ndim - (x.ndim - len(found.picked))
    rest = [entry for entry in found.result if entry != "picked"]
    cut = places[0] if together else 0
    return _with_new_dims(made, [*rest[:cut], *range(new), *rest[cut:]])


def _with_new_dims(x: Tensor, result: Sequence[Any]) -> Tensor:
    if None not in result:
        return x
    sizes = iter(x.shape)
    return reshape(x, tuple(1 if entry is None else next(sizes) for entry in result))


def shown(index: Any) -> str:
    return ", ".join(map(_entry, index if isinstance(index, tuple) else (index,)))


def _entry(entry: Any) -> str:
    if isinstance(entry, slice):
        ends = ":".join("" if end is None else str(end) for end in (entry.start, entry.stop))
        return ends if entry.step is None else f"{ends}:{entry.step}"
    if entry is Ellipsis:
        return "..."
    shape = getattr(entry, "shape", None)
    return f"{type(entry).__name__} of shape {tuple(shape)}" if shape else repr(entry)


def nonzero(x: Any) -> tuple[Tensor, ...]:
    """Where x isn't zero, one index tensor for each dim; only where its value is known, for it is the result's shape.

    >>> import lamina
    >>> [found.tolist() for found in lamina.nonzero(lamina.tensor([0, 3, 4]))]
    [[1, 2]]
    """
    x = as_tensor(x, "nonzero")
    if compat.is_tracer(x._array):
        fact = "inside jax.jit there is no nonzero(x): how many there are is the result's shape"
        raise TransformError(with_fix(fact, "use lamina.where(x != 0, ...), or call it outside of jax.jit"))
    return tuple(as_tensor(jnp.asarray(found), "nonzero") for found in np.nonzero(x.numpy()))


__all__ = ["nonzero"]
