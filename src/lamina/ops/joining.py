"""Tensors joined along a dim, and cut along it: `concatenate`, `split`, `array_split`.

Along a whole dim nothing moves.  Along a split dim the results are split over the same axes, in blocks of their own
size, and a device receives the entries that these place on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_integer
from typing import Any

import numpy as np

from lamina.engine import rows
from lamina.engine.routes import received
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops.arguments import as_tensor
from lamina.ops.compute import Kernel, compute
from lamina.ops.dims import as_dim
from lamina.ops.movement import of_one_dtype, ravel
from lamina.rules import rows as rules
from lamina.rules.rows import Run, Runs
from lamina.tensors import Tensor


def _concatenated(here: Any, *blocks: Any) -> Any:
    *given, dim = blocks
    sizes = [held.shape[dim] for held in here.operands]
    everything = (Run(0, 1, sum(sizes)),)
    return rows.taken(here, given, dim, sizes, here.results[0].layout.dims[dim], everything, 0)


def _concatenating_receives(required: Any, results: Any, dim: int) -> float:
    sizes, (made,) = [held.shape[dim] for held in required], results
    everything = (Run(0, 1, sum(sizes)),)
    return received(sizes, made.layout.grid[dim], everything) * _beside(made, dim)


def _split(here: Any, x: Any, dim: int, sizes: tuple[int, ...]) -> tuple:
    held = here.operands[0]
    axes, whole = held.layout.dims[dim], [held.shape[dim]]
    return tuple(rows.taken(here, [x], dim, whole, axes, runs, 0) for runs in _parts(sizes))


def _splitting_receives(required: Any, results: Any, dim: int, sizes: tuple[int, ...]) -> float:
    (held,) = required
    count = held.layout.grid[dim]
    return sum(received([held.shape[dim]], count, runs) for runs in _parts(sizes)) * _beside(held, dim)


def _parts(sizes: tuple[int, ...]) -> list[Runs]:
    starts = np.cumsum([0, *sizes])
    return [(Run(int(start), 1, size),) for start, size in zip(starts, sizes, strict=False)]


def _beside(held: Any, dim: int) -> float:
    """The elements of a block that stand at one entry of a dim."""
    return float(np.prod([size for d, size in enumerate(held.layout.padded_block(held.shape)) if d != dim]))


_CONCATENATE = Kernel("concatenate", rules.concatenate, _concatenated, receives=_concatenating_receives)
_SPLIT = Kernel("split", rules.split, _split, receives=_splitting_receives)
KERNELS = {kernel.name: kernel for kernel in (_CONCATENATE, _SPLIT)}


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


__all__ = ["array_split", "concatenate", "split"]
