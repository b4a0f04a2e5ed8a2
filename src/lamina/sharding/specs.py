"""One tensor dim's entry in a named spec: which mesh axes split it, and whether propagation may split it further."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from lamina.errors import ConversionError, LayoutError, Problems, with_fix
from lamina.sharding.integers import as_integer
from lamina.sharding.placements import ReduceOp, as_reduce_op


@dataclass(frozen=True, slots=True, repr=False)
class DimSpec:
    """The axes that split a dim, major to minor, as in Shardy.

    An *open* dim may be sharded further by propagation; in `shard`, it keeps the compatible sharding that it has.
    `priority` says in which round propagation looks at the dim; 0 is first.

    >>> DimSpec("x"), DimSpec(("tp", "dp")), DimSpec(is_open=True), DimSpec()
    (DimSpec('x'), DimSpec('(tp,dp)'), DimSpec('-?'), DimSpec('-'))
    >>> DimSpec(["x", 3])
    Traceback (most recent call last):
    lamina.errors.LayoutError: 3 in ('x', 3) is not the name of a mesh axis
    """

    axes: tuple[str, ...] = ()
    is_open: bool = False
    priority: int = 0

    def __post_init__(self) -> None:
        many = isinstance(self.axes, Iterable) and not isinstance(self.axes, str)
        axes = tuple(self.axes) if many else (self.axes,)
        for axis in axes:
            if not isinstance(axis, str):
                raise LayoutError(f"{axis!r} in {axes} is not the name of a mesh axis")
        priority = as_integer(self.priority)
        if priority is None or priority < 0:
            raise LayoutError(f"priority {self.priority!r} of {axes} is not an integer >= 0")
        object.__setattr__(self, "priority", priority)
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "is_open", bool(self.is_open))

    @property
    def entry(self) -> SpecEntry:
        """The shortest entry that means the same.

        >>> DimSpec(("x",)).entry, DimSpec(("x", "y")).entry, DimSpec().entry
        ('x', ('x', 'y'), None)
        """
        if self.is_open or self.priority:
            return self
        return self.axes[0] if len(self.axes) == 1 else (self.axes or None)

    def __repr__(self) -> str:
        return f"DimSpec({entry_text(self)!r})"


SpecEntry = str | tuple[str, ...] | DimSpec | None


def as_dim_spec(entry: Any) -> DimSpec:
    """None, "dp", ("tp", "dp"), [..] and DimSpec all name a dim's sharding.

    >>> as_dim_spec(None), as_dim_spec("dp"), as_dim_spec(("tp", "dp"))
    (DimSpec('-'), DimSpec('dp'), DimSpec('(tp,dp)'))
    >>> as_dim_spec(0)
    Traceback (most recent call last):
    lamina.errors.LayoutError: 0 is not a spec entry: use None, an axis name, a tuple of axis names or a DimSpec
    """
    if isinstance(entry, DimSpec):
        return entry
    if entry is None:
        return DimSpec()
    if isinstance(entry, (str, tuple, list)):
        return DimSpec(entry)  # type: ignore[arg-type]  # the constructor takes one name for a tuple of one
    raise LayoutError(f"{entry!r} is not a spec entry: use None, an axis name, a tuple of axis names or a DimSpec")


def spec_as_written(entries: Any) -> str:
    """A spec as the user wrote it, more or less: what an error shows of it.

    >>> spec_as_written(P("x", None)), spec_as_written("x")
    ("['x', None]", "'x'")
    """
    if isinstance(entries, (list, tuple)):
        return str([entry.entry if isinstance(entry, DimSpec) else entry for entry in entries])
    return repr(entries)


def as_dim_specs(entries: Any) -> tuple[DimSpec, ...]:
    """A whole spec: any iterable of entries (`P(...)`, a list, JAX's PartitionSpec)."""
    if isinstance(entries, (str, Mapping, Set)) or not isinstance(entries, Iterable):
        example = repr(entries) if isinstance(entries, str) else "'x'"
        raise LayoutError(f"{entries!r} is not a spec: use one entry per dim, as in [{example}, None]")
    if getattr(entries, "unreduced", None) or getattr(entries, "reduced", None):  # of JAX's PartitionSpec
        fact = f"{entries!r} has unreduced or reduced axes, which no list of entries can carry"
        raise ConversionError(
            with_fix(fact, "name the unreduced axes beside it: partial= of shard, unreduced= of NamedMapping")
        )
    problems, specs = Problems(), []
    for entry in entries:
        with problems.caught():
            specs.append(as_dim_spec(entry))
    problems.check()
    return tuple(specs)


def with_priorities(dims: tuple[DimSpec, ...], priorities: tuple[int | None, ...]) -> tuple[DimSpec, ...]:
    """The dims with these priorities, one per dim from the first; None keeps the dim's own."""
    if len(priorities) > len(dims):
        raise LayoutError(f"{len(priorities)} priorities {priorities} for {len(dims)} dims")
    given = (*priorities, *[None] * len(dims))
    return tuple(dim if p is None else DimSpec(dim.axes, dim.is_open, p) for dim, p in zip(dims, given, strict=False))


def as_unreduced(unreduced: Any, argument: str = "unreduced") -> dict[str, ReduceOp]:
    """Names (SUM), or a mapping from axis to op, as a dict.

    >>> as_unreduced(["x"]), as_unreduced({"x": "max"})
    ({'x': <ReduceOp.SUM: 'sum'>}, {'x': <ReduceOp.MAX: 'max'>})
    """
    if isinstance(unreduced, Mapping):
        return {axis: as_reduce_op(op, f"{argument}[{axis!r}]={op!r}") for axis, op in unreduced.items()}
    if not isinstance(unreduced, Iterable):
        raise TypeError(f"{argument} must be axis names, or a mapping from axis to ReduceOp, not {unreduced!r}")
    names = [unreduced] if isinstance(unreduced, str) else list(unreduced)
    for axis in names:
        if names.count(axis) > 1:
            raise LayoutError(f"axis {axis!r} is used twice: as {argument} and as {argument}")
    return {axis: ReduceOp.SUM for axis in names}


def axis_users(dims: Iterable[DimSpec], unreduced: Iterable[str], argument: str = "unreduced") -> dict[str, list[str]]:
    """Who uses each axis, in words: what `check_axis_use` looks at.

    >>> axis_users(P("x", ("y", "x")), ["z"])
    {'x': ['by dim 0', 'by dim 1'], 'y': ['by dim 1'], 'z': ['as unreduced']}
    """
    users: dict[str, list[str]] = {}
    for d, dim in enumerate(dims):
        for axis in dim.axes:
            users.setdefault(axis, []).append(f"by dim {d}")
    for axis in unreduced:
        users.setdefault(axis, []).append(f"as {argument}")
    return users


def P(*entries: SpecEntry) -> tuple[DimSpec, ...]:
    """A spec, one entry per dim, as JAX writes it.

    >>> P("dp", None, ("tp", "sp"))
    (DimSpec('dp'), DimSpec('-'), DimSpec('(tp,sp)'))
    """
    return as_dim_specs(entries)


def entry_text(dim: DimSpec) -> str:
    name = dim.axes[0] if len(dim.axes) == 1 else f"({','.join(dim.axes)})" if dim.axes else "-"
    return name + "?" * dim.is_open + (f"!{dim.priority}" if dim.priority else "")
