"""Ops that take entries of dims by numbers known beforehand: flip, roll, pad, repeat, tile, diff; slices, too.

Along a whole dim nothing moves.  Along a split dim the result is split over the same axes, in blocks of its own size,
and a device receives the entries that its block of the result has and its block of the operand hasn't: after a roll by
one, one row; after a flip, its block.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_integer
from typing import Any

import numpy as np

from lamina.engine import rows
from lamina.engine.routes import received
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops import elementwise
from lamina.ops.arguments import as_tensor
from lamina.ops.compute import Kernel, compute
from lamina.ops.dims import as_dim, as_dims
from lamina.ops.movement import broadcast_to, ravel, reshape
from lamina.rules import rows as rules
from lamina.rules.padding import MODES
from lamina.rules.rows import Run, Runs
from lamina.tensors import Tensor


def _rearranged(here: Any, x: Any, dims: tuple[Runs | None, ...], fill: Any) -> Any:
    held = here.operands[0]
    for d, runs in enumerate(dims):
        if runs is not None:
            x = rows.taken(here, [x], d, [held.shape[d]], held.layout.dims[d], runs, fill)
    return x


def _rearranging_receives(required: Any, results: Any, dims: tuple[Runs | None, ...], fill: Any) -> float:
    """Dim by dim: those before are of the result's size already."""
    (held,), (made,) = required, results
    block = list(held.layout.padded_block(held.shape))
    total = 0.0
    for d, runs in enumerate(dims):
        if runs is not None:
            block[d] = 1
            total += received([held.shape[d]], held.layout.grid[d], runs) * float(np.prod(block))
            block[d] = made.layout.padded_block(made.shape)[d]
    return total


_REARRANGING = {
    name: Kernel(name, rules.rearranged, _rearranged, receives=_rearranging_receives)
    for name in ("flip", "roll", "pad", "repeat", "tile", "diff", "getitem", "at")
}
KERNELS = dict(_REARRANGING)


def rearranged(name: str, x: Tensor, runs: dict[int, Runs], fill: Any = 0) -> Tensor:
    """x with the entries of some dims taken as the runs say; new ones are `fill`.  `name` is the op's."""
    told = {d: entry for d, entry in runs.items() if entry != (Run(0, 1, x.shape[d]),)}
    return compute(_REARRANGING[name], (x,), (tuple(told.get(d) for d in range(x.ndim)), fill)) if told else x


def flip(x: Any, axis: Any = None) -> Tensor:
    """The entries of the dims `axis` (None: all) in the opposite order.

    Along a split dim a device receives one block (none, if it stands in the middle).

    >>> import lamina
    >>> lamina.flip(lamina.tensor([1, 2, 3])).tolist()
    [3, 2, 1]
    """
    x = as_tensor(x, "flip")
    with explained(f"flip(axis={axis!r})", shape=x.shape):
        dims = as_dims(axis, x.ndim)
    return rearranged("flip", x, {d: (Run(x.shape[d] - 1, -1, x.shape[d]),) for d in dims if x.shape[d]})


def roll(x: Any, shift: Any, axis: Any = None) -> Tensor:
    """The entries of a dim, or of several, shifted; those that leave at the end come back at the start.

    Without an `axis` the flat tensor is rolled.  Along a split dim a device receives `shift` entries, or its block if
    that is less.

    >>> import lamina
    >>> lamina.roll(lamina.tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    x = as_tensor(x, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    with explained(f"roll(shift={shift!r}, axis={axis!r})", shape=x.shape):
        axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        shifts = tuple(shift) if isinstance(shift, Sequence) else (shift,)
        if 1 not in (len(axes), len(shifts)) and len(axes) != len(shifts):
            fact = f"{len(shifts)} shifts for {len(axes)} dims"
            raise LayoutError(with_fix(fact, "give one shift for all dims, or one for each"))
        count = max(len(axes), len(shifts))
        total: dict[int, int] = {}
        for d, by in zip(axes * (count // len(axes)), shifts * (count // len(shifts)), strict=True):
            dim = as_dim(d, x.ndim)
            total[dim] = total.get(dim, 0) + as_integer(by)
    found: dict[int, Runs] = {}
    for d, by in total.items():
        size = x.shape[d]
        if size and by % size:
            found[d] = (Run(size - by % size, 1, by % size), Run(0, 1, size - by % size))
    return rearranged("roll", x, found)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """More entries before and after those of each dim: a constant, or by "edge", "wrap", "reflect" or "symmetric".

    `pad_width` is as numpy has it: one number, a pair for all dims, or a pair for each.  Along a split dim a device
    receives the entries that the new blocks, which are larger, place on it.

    >>> import lamina
    >>> lamina.pad(lamina.tensor([1, 2]), (1, 2), constant_values=9).tolist()
    [9, 1, 2, 9, 9]
    """
    x = as_tensor(x, "pad")
    with explained(f"pad(pad_width={pad_width!r})", shape=x.shape):
        widths = _widths(pad_width, x.ndim)
        if mode not in MODES:
            fact = f"mode={mode!r} isn't there"
            raise LayoutError(with_fix(fact, f"use one of {', '.join(map(repr, MODES))}"))
        if np.ndim(constant_values):
            fact = f"constant_values={constant_values!r} must be one number"
            raise LayoutError(with_fix(fact, "pad side by side with different ones in several calls"))
        if mode != "constant" and (empty := [d for d, size in enumerate(x.shape) if not size and any(widths[d])]):
            raise LayoutError(with_fix(f"dim {empty[0]} has no entries to pad with", "use mode='constant'"))
    found = {}
    for d, (before, after) in enumerate(widths):
        if before or after:
            found[d] = MODES[mode](x.shape[d], before, after)
    return rearranged("pad", x, found, np.asarray(constant_values, x.dtype).item() if mode == "constant" else 0)


def _widths(given: Any, rank: int) -> tuple[tuple[int, int], ...]:
    try:
        pairs = np.broadcast_to(np.asarray(given), (rank, 2))
    except ValueError:
        fact = f"widths of shape {np.shape(given)} for a tensor of rank {rank}"
        raise LayoutError(with_fix(fact, "give a number, a pair, or a pair for each dim")) from None
    if pairs.dtype.kind not in "iu" or (pairs < 0).any():
        raise LayoutError(with_fix("widths must be integers, none below 0", "cut with a slice instead"))
    return tuple((int(before), int(after)) for before, after in pairs)


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """Every entry of a dim (None: of the flat tensor) so many times; `repeats` is a number, or one for each entry.

    Along a split dim that is even nothing moves, if all are repeated alike; else what the new blocks place elsewhere.

    >>> import lamina
    >>> lamina.repeat(lamina.tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    x = as_tensor(x, "repeat")
    if axis is None:
        return repeat(ravel(x), repeats, 0)
    with explained(f"repeat(repeats={repeats!r}, axis={axis!r})", shape=x.shape):
        d = as_dim(axis, x.ndim)
        counts = np.asarray(repeats)
        if counts.dtype.kind not in "iu" or (counts < 0).any() or counts.shape not in ((), (1,), (x.shape[d],)):
            fact = f"repeats must be an integer, or {x.shape[d]} of them, none below 0"
            raise LayoutError(with_fix(fact, "give one number for every entry"))
    if counts.size == 1:
        times = int(counts.reshape(()))
        return rearranged("repeat", x, {d: (Run(0, 1, x.shape[d] * times, each=times),) if times else ()})
    return rearranged("repeat", x, {d: tuple(Run(i, 0, int(times)) for i, times in enumerate(counts) if times)})


def tile(x: Any, reps: Any) -> Tensor:
    """The tensor so many times along each dim, counted from the last; more numbers than dims make new dims in front.

    Along a split dim a device receives the entries of its block of the result, each once.

    >>> import lamina
    >>> lamina.tile(lamina.tensor([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    x = as_tensor(x, "tile")
    times = [as_integer(count) for count in (reps if isinstance(reps, Sequence) else (reps,))]
    if any(count < 0 for count in times):
        raise LayoutError(with_fix(f"tile(reps={reps!r}): no count may be below 0", "repeat 0 times or more"))
    times = [1] * (x.ndim - len(times)) + times
    front = len(times) - x.ndim
    found = {d: (Run(0, 1, x.shape[d]),) * times[front + d] for d in range(x.ndim) if times[front + d] != 1}
    x = rearranged("tile", x, found)
    if not front:
        return x
    return broadcast_to(x, (*times[:front], *x.shape))


def diff(x: Any, n: int = 1, axis: int = -1) -> Tensor:
    """The differences of neighbours along a dim, n times.  Along a split dim a device receives an entry or two.

    >>> import lamina
    >>> lamina.diff(lamina.tensor([1, 4, 9])).tolist()
    [3, 5]
    """
    x = as_tensor(x, "diff")
    with explained(f"diff(axis={axis!r})", shape=x.shape):
        d = as_dim(axis, x.ndim)
    subtract = elementwise.not_equal if x.dtype == bool else elementwise.subtract
    for _ in range(as_integer(n)):
        rest = max(x.shape[d] - 1, 0)
        x = subtract(rearranged("diff", x, {d: (Run(1, 1, rest),)}), rearranged("diff", x, {d: (Run(0, 1, rest),)}))
    return x


__all__ = ["diff", "flip", "pad", "repeat", "roll", "tile"]
