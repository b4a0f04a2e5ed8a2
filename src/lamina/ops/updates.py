"""`x.at[index].set(value)` and its kin: x with a part changed, as JAX has it; x itself stays as it is.

The part is named by slices, numbers, dots and new dims, or by a mask of bools.  x keeps its layout; along a split dim a
device receives the entries of the value that belong in its block, and nothing of x moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.errors import LayoutError, explained, with_fix
from lamina.ops import elementwise
from lamina.ops.arguments import as_data, as_tensor
from lamina.ops.compute import Kernel, compute, together
from lamina.ops.getitem import Reading, getitem, read, shown
from lamina.ops.movement import broadcast_to, reshape
from lamina.ops.rearranging import rearranged
from lamina.rules import elementwise as rules
from lamina.rules.movement import moved_together
from lamina.rules.rows import Run, Runs, new
from lamina.tensors import Tensor


def _set(here: Any, x: Any, value: Any, dims: tuple[Run | None, ...]) -> Any:
    held, mask = here.operands[0], jnp.asarray(True)
    for d, run in enumerate(dims):
        if run is not None:
            place = here.positions(held, d) - run.start
            inside = (place >= 0) & (place < run.count * run.step) & (place % run.step == 0)
            mask = mask & jnp.expand_dims(inside, [e for e in range(x.ndim) if e != d])
    return jnp.where(mask, value, x)


_SET = Kernel("at.set", lambda shapes, dims: rules.elementwise(shapes, moved_together(2)), _set)


@dataclass(frozen=True, slots=True)
class At:
    """`x.at`: index it to name the part.

    >>> import lamina
    >>> lamina.tensor([1, 2, 3]).at[1:].set(0).tolist()
    [1, 0, 0]
    """

    x: Tensor

    def __getitem__(self, index: Any) -> Part:
        return Part(self.x, index)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of x, to be changed."""

    x: Tensor
    index: Any

    def get(self) -> Tensor:
        """`x[index]`."""
        return getitem(self.x, self.index)

    def set(self, value: Any) -> Tensor:
        """x with the part replaced by the value, which is broadcast to it."""
        if _is_mask(self.x, self.index):
            return elementwise.where(self.index, _cast(value, self.x), self.x)
        found = self._read("set")
        return compute(_SET, (self.x, _placed(self.x, found, value, 0)), (_inside(self.x, found),))

    def add(self, value: Any) -> Tensor:
        """x with the value added to the part."""
        if _is_mask(self.x, self.index):
            return elementwise.where(self.index, elementwise.add(self.x, _cast(value, self.x)), self.x)
        return elementwise.add(self.x, _placed(self.x, self._read("add"), value, 0))

    def multiply(self, value: Any) -> Tensor:
        """x with the part multiplied by the value."""
        if _is_mask(self.x, self.index):
            return elementwise.where(self.index, elementwise.multiply(self.x, _cast(value, self.x)), self.x)
        return elementwise.multiply(self.x, _placed(self.x, self._read("multiply"), value, 1))

    def _read(self, op: str) -> Reading:
        with explained(f"x.at[{shown(self.index)}].{op}(value)", shape=self.x.shape):
            found = read(self.x.shape, self.index)
            if any(isinstance(entry, (Tensor, jax.Array, np.ndarray)) for entry in found.picked.values()):
                fact = "index tensors name no part that can be changed"
                raise LayoutError(with_fix(fact, "use slices, numbers or a mask, or lamina.dynamic_update_slice"))
        return found


def _is_mask(x: Tensor, index: Any) -> bool:
    known = isinstance(index, (Tensor, jax.Array, np.ndarray))
    return known and index.dtype == np.bool_ and tuple(index.shape) == x.shape


def _cast(value: Any, x: Tensor) -> Any:
    """In x's dtype, if that holds it."""
    value = value if isinstance(value, (bool, int, float, complex)) else as_data(value, "at")
    kind = jnp.result_type(x.dtype, getattr(value, "dtype", value))
    if kind != x.dtype:
        fact = f"x.at: x is {x.dtype.name}, which doesn't hold a value of {kind.name}"
        raise LayoutError(with_fix(fact, "cast the value, or x, with astype"))
    return (
        elementwise.astype(value, x.dtype)
        if isinstance(value, Tensor)
        else value.astype(x.dtype)
        if isinstance(value, jax.Array)
        else np.asarray(value, x.dtype)
    )


def _runs(x: Tensor, found: Reading) -> dict[int, tuple[int, int, int]]:
    """For each dim that is cut: start, step, count."""
    cut = {}
    for d, runs in found.slices.items():
        (run,) = runs or (Run(0, 1, 0),)
        if run != Run(0, 1, x.shape[d]):
            cut[d] = (run.start, run.step, run.count)
    for d, number in found.picked.items():
        size = x.shape[d]
        if not -size <= number < size:
            fact = f"index {number} is out of range for dim {d}, which has {size} entries"
            raise LayoutError(with_fix(fact, f"use numbers from {-size} to {size - 1}" if size else "there is none"))
        cut[d] = (number % size, 1, 1)
    return cut


def _inside(x: Tensor, found: Reading) -> tuple[Run | None, ...]:
    """The part, forwards along each dim."""
    cut = {}
    for d, (start, step, count) in _runs(x, found).items():
        cut[d] = Run(start if step > 0 else start + (count - 1) * step, abs(step), count)
    return tuple(cut.get(d) for d in range(x.ndim))


def _placed(x: Tensor, found: Reading, value: Any, fill: int) -> Tensor:
    """The value at the part's place in a tensor of x's shape, which is `fill` elsewhere."""
    cut = _runs(x, found)
    sizes = [cut[d][2] if d in cut else size for d, size in enumerate(x.shape)]
    named = tuple(1 if entry is None else sizes[entry] for entry in found.result if not isinstance(entry, str))
    _, part = together("at", [x, _cast(value, x)])
    part = reshape(broadcast_to(as_tensor(part, "at"), named), tuple(sizes))
    return rearranged("at", part, {d: _back(x.shape[d], *run) for d, run in cut.items()}, fill)


def _back(size: int, start: int, step: int, count: int) -> Runs:
    """The runs that put entries where a slice took them from."""
    if not count:
        return (new(size),)
    last = start + (count - 1) * step
    low, high = min(start, last), max(start, last)
    if abs(step) == 1 or count == 1:
        there = [Run(0, 1, count) if step > 0 else Run(count - 1, -1, count)]
    else:
        order = range(count) if step > 0 else range(count - 1, -1, -1)
        there = [run for i in order for run in (Run(i, 1, 1), new(abs(step) - 1))][:-1]
    return tuple(run for run in (new(low), *there, new(size - 1 - high)) if run.count)
