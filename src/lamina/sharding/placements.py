"""What one mesh axis does to a tensor: Replicated, Sharded or Partial.

>>> Sharded(0), Replicated(), Partial("max")
(Sharded(0), Replicated(), Partial(MAX))
>>> Partial("bogus")
Traceback (most recent call last):
lamina.errors.LayoutError: Partial('bogus'): the reduce op must be one of sum, avg, min, max, prod
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lamina.errors import LayoutError
from lamina.sharding.integers import as_integer


class ReduceOp(StrEnum):
    """How the values that the devices of a Partial axis hold make up the global value.

    AVG of integers and bools is the floor of the mean, axis by axis; SUM and PROD of bools are `or` and `and`, as in
    numpy.

    >>> Partial("max").reduce_op is ReduceOp.MAX, [op.value for op in ReduceOp]
    (True, ['sum', 'avg', 'min', 'max', 'prod'])
    """

    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    PROD = "prod"

    @property
    def is_linear(self) -> bool:
        """Linear reductions have a gradient that needs no values."""
        return self in (ReduceOp.SUM, ReduceOp.AVG)

    def commutes_with(self, other: ReduceOp) -> bool:
        """May reductions over two axes, one with each op, change places?

        AVG doesn't, not even with itself: of integers it is a floor, and floors in another order differ.

        >>> ReduceOp.MAX.commutes_with(ReduceOp.MAX), ReduceOp.SUM.commutes_with(ReduceOp.MAX)
        (True, False)
        >>> ReduceOp.AVG.commutes_with(ReduceOp.AVG), ReduceOp.AVG.commutes_with(ReduceOp.SUM)
        (False, False)
        """
        return self == other != ReduceOp.AVG


def as_reduce_op(op: object, where: str = "reduce_op") -> ReduceOp:
    """The ReduceOp that a string or ReduceOp names."""
    if isinstance(op, str) and op.lower() in ReduceOp._value2member_map_:
        return ReduceOp(op.lower())
    raise LayoutError(f"{where}: the reduce op must be one of {', '.join(ReduceOp)}")


class Placement:
    """Abstract base.  A subclass of your own is carried along, but no conversion or op takes it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Replicated(Placement):
    """Every device along the axis holds the same.

    >>> from lamina.sharding import DeviceMesh, PlacementMapping
    >>> PlacementMapping(DeviceMesh.abstract((2,), ("x",)), [Replicated()]).is_fully_replicated
    True
    """


@dataclass(frozen=True, slots=True, repr=False)
class Sharded(Placement):
    """The devices along the axis split dimension `axis`; negative counts from the end.

    >>> Sharded("a")
    Traceback (most recent call last):
    lamina.errors.LayoutError: Sharded('a'): the axis must be an integer
    """

    axis: int

    def __post_init__(self) -> None:
        axis = as_integer(self.axis)
        if axis is None:
            raise LayoutError(f"Sharded({self.axis!r}): the axis must be an integer")
        object.__setattr__(self, "axis", axis)

    def __repr__(self) -> str:
        return f"Sharded({self.axis})"


@dataclass(frozen=True, slots=True, repr=False)
class Partial(Placement):
    """The devices along the axis hold values whose reduction is the global value.

    >>> Partial(), Partial("max")
    (Partial(SUM), Partial(MAX))
    """

    reduce_op: ReduceOp = ReduceOp.SUM

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduce_op", as_reduce_op(self.reduce_op, f"Partial({self.reduce_op!r})"))

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op.name})"
