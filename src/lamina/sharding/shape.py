"""The shape of a value on one device: a tuple of dims, each an int or symbolic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lamina.sharding.dims import Dim, DimLike, free_symbols, is_static, substitute


class Shape(tuple):
    """A tuple of dims; it equals, and hashes as, the plain tuple of them.

    >>> shape = Shape(["n", 4])
    >>> str(shape), shape.rank, shape.is_static, shape.static_dims, shape == (Dim("n"), 4)
    ('[n, 4]', 2, False, [4], True)
    >>> shape.bound({"n": 3}), Shape([2, 3]).size
    ((3, 4), 6)
    """

    __slots__ = ()

    def __new__(cls, dims: Iterable[DimLike] = ()) -> Shape:
        return super().__new__(cls, (Dim(dim) for dim in dims))

    @property
    def rank(self) -> int:
        return len(self)

    @property
    def is_static(self) -> bool:
        return all(is_static(dim) for dim in self)

    @property
    def static_dims(self) -> list[int]:
        """The dims whose size is known."""
        return [dim for dim in self if is_static(dim)]

    @property
    def symbols(self) -> frozenset[str]:
        """The names that are still to be bound."""
        return frozenset[str]().union(*(free_symbols(dim) for dim in self))

    @property
    def size(self) -> Any:
        """How many elements there are: an int, or a dim."""
        total: Any = 1
        for dim in self:
            total = total * dim
        return total

    def bound(self, bindings: Mapping[str, DimLike]) -> Shape:
        """With symbols replaced."""
        return Shape(substitute(dim, bindings) for dim in self)

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self))}]"
