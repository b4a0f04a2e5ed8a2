"""Indices as attributes: what `x[...]` says, frozen, and the shape that it leaves.

An entry is an int, `("slice", start, stop, step)` whose bounds are ints, dims or None, `"..."` or `"new"`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lamina.errors import LayoutError, with_fix
from lamina.sharding.dims import AlgebraicDim, SymbolicDim, is_static
from lamina.sharding.shape import Shape

_DIMS = (int, np.integer, SymbolicDim, AlgebraicDim)


def frozen_index(index: Any) -> tuple[Any, ...]:
    """
    >>> frozen_index((0, slice(None, 4), ..., None))
    (0, ('slice', None, 4, None), '...', 'new')
    """
    return tuple(_entry(entry) for entry in (index if isinstance(index, tuple) else (index,)))


def _entry(entry: Any) -> Any:
    if entry is Ellipsis:
        return "..."
    if entry is None:
        return "new"
    if isinstance(entry, slice):
        return ("slice", *(_bound(bound) for bound in (entry.start, entry.stop, entry.step)))
    if isinstance(entry, bool) or not isinstance(entry, _DIMS):
        raise TypeError(f"slice_tensor: an index is an int, a slice, ... or None, not {entry!r}; see ops.gather")
    return _bound(entry)


def _bound(bound: Any) -> Any:
    return int(bound) if isinstance(bound, (int, np.integer)) else bound


def thawed_index(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """The Python index again.

    >>> thawed_index((0, ("slice", None, 4, None), "...", "new"))
    (0, slice(None, 4, None), Ellipsis, None)
    """
    words = {"...": Ellipsis, "new": None}
    return tuple(
        slice(*entry[1:]) if isinstance(entry, tuple) else words.get(entry, entry) if isinstance(entry, str) else entry
        for entry in index
    )


def sliced_shape(shape: Shape, index: tuple[Any, ...]) -> Shape:
    """The shape of x[index].

    >>> print(sliced_shape(Shape(["n", 8, 3]), frozen_index((slice(1, None), ..., 0))))
    [n - 1, 8]
    """
    used = sum(entry not in ("...", "new") for entry in index)
    if used > len(shape) or index.count("...") > 1:
        fact = f"slice_tensor: the index {index} doesn't fit the shape {shape}"
        raise LayoutError(with_fix(fact, f"name at most {len(shape)} dims, and ... once"))
    if "..." not in index:
        index = (*index, "...")
    dims, found = list(shape), []
    for entry in index:
        if entry == "new":
            found.append(1)
        elif entry == "...":
            whole = len(dims) - sum(e not in ("...", "new") for e in index[index.index("...") :])
            found += dims[:whole]
            del dims[:whole]
        elif isinstance(entry, tuple):
            found.append(_length(dims.pop(0), entry, shape))
        else:
            _check_inside(dims.pop(0), entry, shape)
    return Shape(found)


def _check_inside(dim: Any, at: Any, shape: Shape) -> None:
    if is_static(dim) and isinstance(at, int) and not -dim <= at < dim:
        fact = f"slice_tensor: index {at} is out of bounds for a dim of {dim} in {shape}"
        raise LayoutError(with_fix(fact, f"use {-dim} to {dim - 1}" if dim else "the dim is empty"))


def _length(dim: Any, entry: tuple[Any, ...], shape: Shape) -> Any:
    _, start, stop, step = entry
    if is_static(dim) and all(bound is None or isinstance(bound, int) for bound in (start, stop)):
        return len(range(*slice(start, stop, step).indices(dim)))
    step = 1 if step is None else step
    if not isinstance(step, int) or step < 1:
        raise LayoutError(with_fix(f"slice_tensor: a step of {step} along the symbolic dim {dim}", "use steps >= 1"))
    low = 0 if start is None else start + dim if isinstance(start, int) and start < 0 else start
    high = dim if stop is None else stop + dim if isinstance(stop, int) and stop < 0 else stop
    if is_static(high - low) and high - low < 0:
        return 0
    return (high - low + step - 1) // step
