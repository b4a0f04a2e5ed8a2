"""Ops that take entries of dims by numbers known beforehand: flip, roll, pad, repeat, tile, concatenate, split, diff.

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
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops import elementwise
from lamina.ops.arguments import as_tensor
from lamina.ops.compute import Kernel, compute
from lamina.ops.dims import as_dim, as_dims
from lamina.ops.movement import broadcast_to, of_one_dtype, ravel, reshape
from lamina.rules import rows as rules
from lamina.rules.rows import Run, Runs, new
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
            total += rows.received([held.shape[d]], held.layout.grid[d], runs) * float(np.prod(block))
            block[d] = made.layout.padded_block(made.shape)[d]
    return total


def _concatenated(here: Any, *blocks: Any) -> Any:
    *given, dim = blocks
    sizes = [held.shape[dim] for held in here.operands]
    everything = (Run(0, 1, sum(sizes)),)
    return rows.taken(here, given, dim, sizes, here.results[0].layout.dims[dim], everything, 0)


def _concatenating_receives(required: Any, results: Any, dim: int) -> float:
    sizes, (made,) = [held.shape[dim] for held in required], results
    everything = (Run(0, 1, sum(sizes)),)
    return rows.received(sizes, made.layout.grid[dim], everything) * _beside(made, dim)


def _split(here: Any, x: Any, dim: int, sizes: tuple[int, ...]) -> tuple:
    held = here.operands[0]
    axes, whole = held.layout.dims[dim], [held.shape[dim]]
    return tuple(rows.taken(here, [x], dim, whole, axes, runs, 0) for runs in _parts(sizes))


def _splitting_receives(required: Any, results: Any, dim: int, sizes: tuple[int, ...]) -> float:
    (held,) = required
    count = held.layout.grid[dim]
    return sum(rows.received([held.shape[dim]], count, runs) for runs in _parts(sizes)) * _beside(held, dim)


def _parts(sizes: tuple[int, ...]) -> list[Runs]:
    starts = np.cumsum([0, *sizes])
    return [(Run(int(start), 1, size),) for start, size in zip(starts, sizes, strict=False)]


def _beside(held: Any, dim: int) -> float:
    """The elements of a block that stand at one entry of a dim."""
    return float(np.prod([size for d, size in enumerate(held.layout.padded_block(held.shape)) if d != dim]))


_REARRANGING = {
    name: Kernel(name, rules.rearranged, _rearranged, receives=_rearranging_receives)
    for name in ("flip", "roll", "pad", "repeat", "tile", "diff", "getitem", "at")
}
_CONCATENATE = Kernel("concatenate", rules.concatenate, _concatenated, receives=_concatenating_receives)
_SPLIT = Kernel("split", rules.split, _split, receives=_splitting_receives)
KERNELS = {**_REARRANGING, **{kernel.name: kernel for kernel in (_CONCATENATE, _SPLIT)}}


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
        if mode not in _PADDING:
            fact = f"mode={mode!r} isn't there"
            raise LayoutError(with_fix(fact, f"use one of {', '.join(map(repr, _PADDING))}"))
        if np.ndim(constant_values):
            fact = f"constant_values={constant_values!r} must be one number"
            raise LayoutError(with_fix(fact, "pad side by side with different ones in several calls"))
        if mode != "constant" and (empty := [d for d, size in enumerate(x.shape) if not size and any(widths[d])]):
            raise LayoutError(with_fix(f"dim {empty[0]} has no entries to pad with", "use mode='constant'"))
    found = {}
    for d, (before, after) in enumerate(widths):
        if before or after:
            found[d] = _PADDING[mode](x.shape[d], before, after)
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


def _constant(size: int, before: int, after: int) -> Runs:
    return new(before), Run(0, 1, size), new(after)


def _edge(size: int, before: int, after: int) -> Runs:
    return Run(0, 0, before), Run(0, 1, size), Run(size - 1, 0, after)


def _wrap(size: int, before: int, after: int) -> Runs:
    first = -before % size
    return _cut((Run(0, 1, size),) * ((first + before + size + after) // size + 1), first, before + size + after)


def _mirrored(own: int) -> Any:
    """Back and forth: "symmetric" repeats the ends, "reflect" doesn't."""

    def runs(size: int, before: int, after: int) -> Runs:
        if size == 1:
            return _edge(size, before, after)
        there, back = Run(0, 1, size), Run(size - 1 - own, -1, size - 2 * own)
        period = 2 * (size - own)
        first = -before % period
        return _cut((there, back) * ((first + before + size + after) // period + 1), first, before + size + after)

    return runs


_PADDING = {
    "constant": _constant,
    "edge": _edge,
    "wrap": _wrap,
    "symmetric": _mirrored(0),
    "reflect": _mirrored(1),
}


def _cut(runs: Runs, first: int, count: int) -> Runs:
    """So many entries of the runs, from one on."""
    found = []
    for run in runs:
        skipped = min(first, run.count)
        kept = min(run.count - skipped, count)
        if kept:
            found.append(Run(run.start + skipped * run.step, run.step, kept))
        first, count = first - skipped, count - kept
    return tuple(found)


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


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Tensors one after the other along a dim (None: their flat forms).

    Along a dim that is split, a device receives only the entries that the blocks of the result place on it.

    >>> import lamina
    >>> lamina.concatenate([lamina.tensor([1, 2]), lamina.tensor([3])]).tolist()
    [1, 2, 3]
    """
    parts = of_one_dtype("concatenate", arrays)
    if axis is None:
        return concatenate([ravel(part) for part in parts], 0)
    with explained(f"concatenate(axis={axis!r})", shapes=[part.shape for part in parts]):
        d = as_dim(axis, parts[0].ndim)
        rules.concatenate([part.shape for part in parts], d)
    full = [part for part in parts if part.shape[d]] or parts[:1]
    return full[0] if len(full) == 1 else compute(_CONCATENATE, full, (d,))


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Parts of a dim: so many equal ones, or those that end before each index.

    Along a split dim each part is split again, and a device receives the entries that this places on it.

    >>> import lamina
    >>> [part.tolist() for part in lamina.split(lamina.tensor([1, 2, 3, 4]), [1])]
    [[1], [2, 3, 4]]
    """
    x = as_tensor(x, "split")
    if not np.ndim(indices_or_sections):
        with explained(f"split(indices_or_sections={indices_or_sections!r}, axis={axis!r})", shape=x.shape):
            size, count = x.shape[as_dim(axis, x.ndim)], as_integer(indices_or_sections)
            if count < 1 or size % count:
                fact = f"{size} entries can't be cut into {count} equal parts"
                raise LayoutError(with_fix(fact, "use array_split, or name the indices"))
    return array_split(x, indices_or_sections, axis)


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """As `split`, but the parts need not be equal: the first are one larger.

    >>> import lamina
    >>> [part.tolist() for part in lamina.array_split(lamina.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    x = as_tensor(x, "array_split")
    with explained(f"array_split(indices_or_sections={indices_or_sections!r}, axis={axis!r})", shape=x.shape):
        d = as_dim(axis, x.ndim)
        size = x.shape[d]
        if np.ndim(indices_or_sections):
            ends = [min(max(i + size if i < 0 else i, 0), size) for i in map(as_integer, indices_or_sections)]
            if ends != sorted(ends):
                fact = f"the indices {list(indices_or_sections)} don't ascend"
                raise LayoutError(with_fix(fact, "name them in order"))
            sizes = tuple(b - a for a, b in zip([0, *ends], [*ends, size], strict=True))
        else:
            count = as_integer(indices_or_sections)
            if count < 1:
                raise LayoutError(with_fix(f"{count} parts can't be", "ask for 1 or more"))
            sizes = tuple(size // count + (part < size % count) for part in range(count))
    made = compute(_SPLIT, (x,), (d, sizes))
    return [made] if isinstance(made, Tensor) else list(made)


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


__all__ = ["array_split", "concatenate", "diff", "flip", "pad", "repeat", "roll", "split", "tile"]
