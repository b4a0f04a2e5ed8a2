"""Arguments that name dims of a tensor: checked, made non-negative."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamina.errors import LayoutError, Problems, with_fix


def as_dim(dim: Any, rank: int, argument: str = "axis") -> int:
    """One dim, counted from the front.

    >>> as_dim(-1, 3)
    2
    >>> as_dim(3, 3)
    Traceback (most recent call last):
    lamina.errors.LayoutError: axis=3 is out of range for a tensor of rank 3
      fix: name a dim from -3 to 2
    """
    if isinstance(dim, bool) or not isinstance(dim, int):
        if not type(dim).__name__.startswith(("int", "uint")):
            raise TypeError(f"{argument} must be an integer, not {dim!r}")
    if not -rank <= dim < rank:
        there = f"name a dim from {-rank} to {rank - 1}" if rank else "a tensor without dims has none"
        raise LayoutError(with_fix(f"{argument}={dim} is out of range for a tensor of rank {rank}", there))
    return int(dim) % rank


def as_dims(dims: Any, rank: int, argument: str = "axis") -> tuple[int, ...]:
    """Several dims, in the order given; None means all.

    >>> as_dims(None, 2), as_dims((-1, 0), 2)
    ((0, 1), (1, 0))
    """
    if dims is None:
        return tuple(range(rank))
    found: list[int] = []
    problems = Problems()
    for dim in dims if isinstance(dims, Iterable) else (dims,):
        with problems.caught():
            found.append(as_dim(dim, rank, argument))
    if len(set(found)) < len(found):
        problems.add(f"{argument}={dims!r} names a dim twice", "name each dim once")
    problems.check()
    return tuple(found)
