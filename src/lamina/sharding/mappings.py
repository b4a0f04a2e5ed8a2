"""The two dialects that describe a layout: by mesh axis (DTensor's placements) and by tensor dim (JAX's named specs).

Both say the same with other words, and each conversion between them either keeps everything or raises
`ConversionError`.  Two mappings are equal when they mean the same on the same mesh, whichever dialect they are
written in: trailing whole dims and axes of size 1 don't matter.

What each can't say:

* placements can't say an axis order other than the mesh's, open dims, priorities, or a memory kind;
* named specs can't say a custom placement, or a negative dim before the rank is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from lamina.errors import ConversionError, LayoutError, Problems, explained, with_fix
from lamina.sharding.frozen import Frozen
from lamina.sharding.layout import Layout, check_axis_use
from lamina.sharding.mesh import DeviceMesh, as_mesh
from lamina.sharding.placements import Partial, Placement, ReduceOp, Replicated, Sharded
from lamina.sharding.specs import (
    DimSpec,
    SpecEntry,
    as_dim_specs,
    as_unreduced,
    axis_users,
    spec_as_written,
    with_priorities,
)
from lamina.sharding.text import read_mapping, spec_text


class DeviceMapping(Frozen, ABC):
    """A mesh and a description of how a tensor lies on it."""

    __slots__ = ()

    memory_kind: str | None  # the devices' memory that it lies in, such as "pinned_host"; None: their default one

    @property
    @abstractmethod
    def mesh(self) -> DeviceMesh:
        """The mesh that the tensor lies on."""

    @property
    @abstractmethod
    def is_fully_replicated(self) -> bool:
        """Does every device hold the whole value?"""

    @property
    @abstractmethod
    def is_fully_resolved(self) -> bool:
        """Is nothing left to propagation: no open dim, no priority?"""

    @abstractmethod
    def to_placements(self) -> tuple[Placement, ...]:
        """One placement per mesh axis; ConversionError where placements can't say it."""

    @abstractmethod
    def to_named_sharding(self, tensor_rank: int) -> NamedMapping:
        """One entry per tensor dim; ConversionError where a named spec can't say it."""

    @abstractmethod
    def to_mesh(self, mesh: DeviceMesh) -> DeviceMapping:
        """The same by axis names on another mesh: axes that it lacks are dropped, new ones are Replicated."""

    @abstractmethod
    def layout(self, rank: int) -> Layout:
        """The canonical layout of a tensor of this rank."""

    @abstractmethod
    def _meaning(self) -> tuple:
        """What equality and hash look at."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMapping) and self._meaning() == other._meaning())

    def __hash__(self) -> int:
        return hash(self._meaning())


class PlacementMapping(DeviceMapping):
    """One placement per mesh axis; several axes on one dim nest in mesh order.

    1. As many placements as mesh axes.
    2. Each is a Placement (custom ones are carried, but not converted).

    >>> mesh = DeviceMesh.abstract((2, 4), ("dp", "tp"))
    >>> PlacementMapping(mesh, [Sharded(0), Partial()])
    PlacementMapping([dp=2,tp=4], [Sharded(0), Partial(SUM)])
    >>> PlacementMapping(mesh, [Sharded(1), Sharded(1)]).to_named_sharding(2)
    NamedMapping('[dp=2,tp=4] -,(dp,tp)')
    >>> PlacementMapping(mesh, [Sharded(0), Replicated()]) == NamedMapping(mesh, ["dp"])
    True
    """

    __slots__ = ("_mesh", "placements")

    _mesh: DeviceMesh
    placements: tuple[Placement, ...]
    memory_kind = None  # which placements can't say

    def __init__(self, mesh: DeviceMesh | None, placements: Iterable[Placement]):
        mesh = as_mesh(mesh)
        if not isinstance(placements, Iterable):
            raise TypeError(f"placements must be one per mesh axis, as in [{placements!r}], not {placements!r}")
        placements = tuple(placements)
        if len(placements) != mesh.ndim:
            fact = f"{len(placements)} placements {list(placements)} for the {mesh.ndim} axes of the mesh {mesh}"
            raise LayoutError(with_fix(fact, "give one per mesh axis, Replicated() where it does nothing"))
        for placement in placements:
            if not isinstance(placement, Placement):
                raise TypeError(f"{placement!r} is not a placement: use Replicated(), Sharded(dim) or Partial(op)")
        object.__setattr__(self, "_mesh", mesh)
        object.__setattr__(self, "placements", placements)

    @property
    def mesh(self) -> DeviceMesh:
        return self._mesh

    @property
    def is_fully_replicated(self) -> bool:
        return all(
            isinstance(p, Replicated)
            for p, size in zip(self.placements, self._mesh.mesh_shape, strict=True)
            if size > 1
        )

    @property
    def is_fully_resolved(self) -> bool:
        return True

    def to_placements(self) -> tuple[Placement, ...]:
        return self.placements

    def to_named_sharding(self, tensor_rank: int) -> NamedMapping:
        dims: list[list[str]] = [[] for _ in range(tensor_rank)]
        unreduced, problems, lost = {}, Problems(), Problems()
        for name, placement in zip(self._mesh.axis_names, self.placements, strict=True):
            match placement:
                case Replicated():
                    pass
                case Sharded(axis):
                    if -tensor_rank <= axis < tensor_rank:
                        dims[axis].append(name)
                    else:
                        problems.add(
                            f"{placement} on mesh axis {name!r} is out of range for a tensor of rank {tensor_rank}",
                            f"name a dim from {-tensor_rank} to {tensor_rank - 1}" if tensor_rank else "",
                        )
                case Partial(op):
                    unreduced[name] = op
                case _:
                    fact = f"the custom placement {placement!r} on mesh axis {name!r} has no named spec"
                    lost.add(fact, "say it with Replicated(), Sharded(dim) or Partial(op)")
        problems.check()
        lost.check(ConversionError)
        return NamedMapping(self._mesh, [tuple(axes) for axes in dims], unreduced=unreduced)

    def to_mesh(self, mesh: DeviceMesh) -> PlacementMapping:
        mesh, by_name = as_mesh(mesh), dict(zip(self._mesh.axis_names, self.placements, strict=True))
        self._check_nesting(mesh)
        return PlacementMapping(mesh, [by_name.get(name, Replicated()) for name in mesh.axis_names])

    def _check_nesting(self, mesh: DeviceMesh) -> None:
        """Axes that (may) split one dim nest in mesh order, so they must stand in the same order on the other mesh."""
        problems, there = Problems(), [name for name, size in mesh.axes if size > 1]
        split = [
            (name, placement.axis)
            for name, placement in zip(self._mesh.axis_names, self.placements, strict=True)
            if isinstance(placement, Sharded) and name in there
        ]
        for (major, dim), (minor, other) in combinations(split, 2):
            may_meet = dim == other or (dim < 0) != (other < 0)  # of a tensor of some rank, -1 is dim 0
            if may_meet and there.index(major) > there.index(minor):
                problems.add(
                    f"{major!r} nests outside {minor!r} in {self}, but the mesh {mesh} has them in the other order, "
                    "in which placements would nest them there",
                    "convert it by to_named_sharding(rank) first: a named spec keeps the order",
                )
        problems.check(ConversionError)

    def layout(self, rank: int) -> Layout:
        return self.to_named_sharding(rank).layout(rank)

    def _meaning(self) -> tuple:
        seen = [p if size > 1 else Replicated() for p, size in zip(self.placements, self._mesh.mesh_shape, strict=True)]
        if any(
            not isinstance(p, (Replicated, Sharded, Partial)) or (isinstance(p, Sharded) and p.axis < 0) for p in seen
        ):
            return self._mesh, tuple(seen)
        rank = 1 + max((p.axis for p in seen if isinstance(p, Sharded)), default=-1)
        return PlacementMapping(self._mesh, seen).to_named_sharding(rank)._meaning()

    def __reduce__(self) -> tuple:
        return PlacementMapping, (self._mesh, self.placements)

    def __repr__(self) -> str:
        return f"PlacementMapping({self._mesh}, {list(self.placements)})"


class NamedMapping(DeviceMapping):
    """One entry per tensor dim names the mesh axes that split it, major to minor; the order is kept.

    `unreduced` names the Partial axes: names (SUM), or a mapping from axis to ReduceOp.  `priorities` gives one
    priority per dim, for propagation.  Without a mesh, the one of `with mesh:` is taken.

    1. Every axis is an axis of the mesh, and is used once.
    2. At most one priority per dim.

    >>> mesh = DeviceMesh.abstract((2, 4), ("dp", "tp"))
    >>> NamedMapping(mesh, [None, ("tp", "dp")])
    NamedMapping('[dp=2,tp=4] -,(tp,dp)')
    >>> NamedMapping(mesh, ["dp"], unreduced={"tp": "max"}).to_placements()
    (Sharded(0), Partial(MAX))
    >>> NamedMapping(mesh, [None, ("tp", "dp")]).to_placements()
    Traceback (most recent call last):
    lamina.errors.ConversionError: dim 1 is split over ('tp', 'dp'), but placements can only say ... order ('dp', 'tp')
      fix: keep the named spec, or use a mesh with the axes in the order ('tp', 'dp')
    >>> with mesh:
    ...     NamedMapping(spec=["tp"])
    NamedMapping('[dp=2,tp=4] tp')
    """

    __slots__ = ("_mesh", "_partial", "dim_specs", "memory_kind")

    _mesh: DeviceMesh
    _partial: tuple[tuple[str, ReduceOp], ...]
    dim_specs: tuple[DimSpec, ...]
    memory_kind: str | None

    def __init__(
        self,
        mesh: DeviceMesh | None = None,
        spec: Iterable[SpecEntry] = (),
        *,
        unreduced: Iterable[str] | Mapping[str, Any] = (),
        priorities: Sequence[int | None] = (),
        memory_kind: str | None = None,
    ):
        mesh = as_mesh(mesh)
        dims, pieces = _checked(mesh, spec, unreduced, priorities)
        if memory_kind is not None and not isinstance(memory_kind, str):
            raise TypeError(f"memory_kind must be a string such as 'pinned_host', not {memory_kind!r}")
        set_ = object.__setattr__
        set_(self, "_mesh", mesh)
        set_(self, "dim_specs", dims)
        set_(self, "_partial", tuple((axis, pieces[axis]) for axis in mesh.axis_names if axis in pieces))
        set_(self, "memory_kind", memory_kind)

    @property
    def mesh(self) -> DeviceMesh:
        return self._mesh

    @property
    def spec(self) -> tuple[SpecEntry, ...]:
        """One entry per dim in its shortest form: None, "x", ("x", "y"), or a DimSpec where one is needed."""
        return tuple(dim.entry for dim in self.dim_specs)

    @property
    def unreduced(self) -> dict[str, ReduceOp]:
        """The Partial axes and their ops."""
        return dict(self._partial)

    @property
    def priorities(self) -> tuple[int, ...]:
        return tuple(dim.priority for dim in self.dim_specs)

    @property
    def is_fully_replicated(self) -> bool:
        return self.layout(len(self.dim_specs)).is_replicated

    @property
    def is_fully_resolved(self) -> bool:
        return not any(dim.is_open or dim.priority for dim in self.dim_specs)

    def to_placements(self) -> tuple[Placement, ...]:
        sizes, problems = dict(self._mesh.axes), Problems()
        placements: dict[str, Placement] = {axis: Partial(op) for axis, op in self._partial}
        for d, dim in enumerate(self.dim_specs):
            written = tuple(axis for axis in dim.axes if sizes[axis] > 1)
            in_order = tuple(axis for axis in self._mesh.axis_names if axis in written)
            if written != in_order:
                problems.add(
                    f"dim {d} is split over {written}, but placements can only say the mesh's own order {in_order}",
                    f"keep the named spec, or use a mesh with the axes in the order {written}",
                )
            if dim.is_open:
                problems.add(f"dim {d} is open, which placements can't say", "close it: DimSpec(axes)")
            if dim.priority:
                fact = f"dim {d} has priority {dim.priority}, which placements can't say"
                problems.add(fact, "leave out the priorities: they matter to propagation only")
            placements.update((axis, Sharded(d)) for axis in dim.axes)
        if self.memory_kind is not None:
            fact = f"memory kind {self.memory_kind!r}, which placements can't say"
            problems.add(fact, "keep the named spec, which can")
        problems.check(ConversionError)
        return tuple(placements.get(axis, Replicated()) for axis in self._mesh.axis_names)

    def to_named_sharding(self, tensor_rank: int) -> NamedMapping:
        if len(self.dim_specs) > tensor_rank and any(
            self.dim_specs[d] != DimSpec() for d in range(tensor_rank, len(self.dim_specs))
        ):
            fact = f"the spec {self} has {len(self.dim_specs)} entries for a tensor of rank {tensor_rank}"
            raise LayoutError(with_fix(fact, "one entry per dim; dims that have none stay whole"))
        dims = (*self.dim_specs, *[DimSpec()] * tensor_rank)[:tensor_rank]
        return NamedMapping(self._mesh, dims, unreduced=self.unreduced, memory_kind=self.memory_kind)

    def to_mesh(self, mesh: DeviceMesh) -> NamedMapping:
        mesh = as_mesh(mesh)
        there = mesh.axis_names
        dims = [DimSpec(tuple(a for a in dim.axes if a in there), dim.is_open, dim.priority) for dim in self.dim_specs]
        unreduced = {axis: op for axis, op in self._partial if axis in there}
        return NamedMapping(mesh, dims, unreduced=unreduced, memory_kind=self.memory_kind)

    def layout(self, rank: int) -> Layout:
        named = self if len(self.dim_specs) == rank else self.to_named_sharding(rank)
        return Layout(self._mesh.axes, [dim.axes for dim in named.dim_specs], self._partial)

    def _meaning(self) -> tuple:
        sizes = dict(self._mesh.axes)
        dims = [
            DimSpec(tuple(a for a in dim.axes if sizes[a] > 1), dim.is_open, dim.priority) for dim in self.dim_specs
        ]
        while dims and dims[-1] == DimSpec():
            dims.pop()
        pieces = tuple((axis, op) for axis, op in self._partial if sizes[axis] > 1)
        return self._mesh, tuple(dims), pieces, self.memory_kind

    def __reduce__(self) -> tuple:
        return _rebuild_named, (self._mesh, self.dim_specs, self.unreduced, self.memory_kind)

    def __str__(self) -> str:
        kind = f" @{self.memory_kind}" if self.memory_kind else ""
        return f"{self._mesh} {spec_text(self.dim_specs, self._partial)}{kind}"

    def __repr__(self) -> str:
        return f"NamedMapping({str(self)!r})"


ShardingSpec = NamedMapping
"""The seeds' other name for NamedMapping."""


def _checked(
    mesh: DeviceMesh, spec: Any, unreduced: Any, priorities: Sequence[int | None]
) -> tuple[tuple[DimSpec, ...], dict[str, ReduceOp]]:
    """Both invariants; all that is wrong is said at once."""
    if isinstance(spec, Iterator):  # to be read, and to be shown
        spec = tuple(spec)
    problems, dims, pieces = Problems(), tuple[DimSpec, ...](), dict[str, ReduceOp]()
    with problems.caught():
        dims = with_priorities(as_dim_specs(spec), tuple(priorities))
    with problems.caught():
        pieces = as_unreduced(unreduced)
    with problems.caught(
        f"one entry per dim: None, one of {list(mesh.axis_names)}, or a tuple of them; each axis once"
    ):
        check_axis_use(dict(mesh.axes), axis_users(dims, pieces))
    if problems.facts:
        beside = f", unreduced={unreduced!r}" if unreduced else ""
        with explained(f"NamedMapping(spec={spec_as_written(spec)}{beside})", mesh=mesh):
            problems.check()
    return dims, pieces


def _rebuild_named(mesh: DeviceMesh, dims: tuple, unreduced: dict, memory_kind: str | None) -> NamedMapping:
    return NamedMapping(mesh, dims, unreduced=unreduced, memory_kind=memory_kind)


def parse_mapping(text: str, mesh: DeviceMesh | None = None) -> NamedMapping:
    """Reads what `str` or `repr` of a NamedMapping wrote, onto `mesh`, or onto an abstract mesh of the axes written.

    >>> parse_mapping("[dp=2,tp=4] (tp,dp),-?!1 @pinned_host")
    NamedMapping('[dp=2,tp=4] (tp,dp),-?!1 @pinned_host')
    >>> parse_mapping("[dp=2] dp", DeviceMesh.abstract((4,), ("dp",)))
    Traceback (most recent call last):
    lamina.errors.LayoutError: '[dp=2] dp' is written for another mesh than DeviceMesh([dp=4], abstract)
      fix: give a mesh with the axes that are written, or none
    """
    axes, dims, partial, memory_kind = read_mapping(text)
    if mesh is None:
        mesh = DeviceMesh.abstract([size for _, size in axes], [name for name, _ in axes])
    elif as_mesh(mesh).axes != axes:
        fact = f"{text!r} is written for another mesh than {mesh!r}"
        raise LayoutError(with_fix(fact, "give a mesh with the axes that are written, or none"))
    check_axis_use(dict(mesh.axes), axis_users(dims, [axis for axis, _ in partial]))
    return NamedMapping(mesh, dims, unreduced=dict(partial), memory_kind=memory_kind)


def check_on(mesh: DeviceMesh, mapping: DeviceMapping) -> None:
    """A mapping that is given next to a mesh must be on that one: taking it over by axis names could drop axes."""
    if mapping.mesh != mesh:
        raise LayoutError(
            with_fix(
                f"{mapping!r} is not on {mesh!r}, but on {mapping.mesh!r}", "mapping.to_mesh(mesh), if that is meant"
            )
        )
