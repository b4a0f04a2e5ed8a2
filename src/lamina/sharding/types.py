"""Symbolic types: what a distributed tensor or buffer is, per device, before any of it exists.

1. The dtype is one that Lamina knows; dims are ints >= 0, names, or dim expressions.
2. The placements fit the mesh and the rank.
3. Equal meaning, equal type, equal hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lamina.sharding.devices import Device
from lamina.sharding.dims import Dim
from lamina.sharding.dtypes import dtype_name
from lamina.sharding.frozen import Frozen
from lamina.sharding.layout import Layout
from lamina.sharding.mappings import DeviceMapping, NamedMapping, PlacementMapping, check_on
from lamina.sharding.mesh import DeviceMesh
from lamina.sharding.placements import Placement
from lamina.sharding.shape import Shape
from lamina.sharding.shapes import local_shapes


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a value on one device; `device` is None on an abstract mesh."""

    dtype: str
    shape: Shape
    device: Device | None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return written(self)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "shape", Shape(self.shape))


@dataclass(frozen=True, slots=True)
class BufferType:
    """The type of a mutable buffer on one device."""

    dtype: str
    shape: Shape
    device: Device | None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return written(self)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "shape", Shape(self.shape))


def written(kind: TensorType | BufferType) -> str:
    """A type on one device as the text of a graph has it.

    >>> from lamina.sharding import CPU
    >>> print(TensorType("f32", ("n", 4), CPU(1)))
    float32[n, 4] @ CPU(1)
    """
    return f"{kind.dtype}{kind.shape} @ {kind.device!r}"


class DistributedType(Frozen):
    """Shared by the two distributed types: dtype, global shape, mesh and placements.

    `placements` is one placement per mesh axis, or a DeviceMapping on the same mesh where placements can't say it.
    """

    __slots__ = ("_mapping", "dtype", "mesh", "shape")

    dtype: str
    shape: tuple[Any, ...]
    mesh: DeviceMesh
    _mapping: NamedMapping
    _local: type = TensorType

    def __init__(
        self, dtype: Any, shape: Sequence[Any], mesh: DeviceMesh, placements: Sequence[Placement] | DeviceMapping
    ):
        if type(self) is DistributedType:
            raise TypeError("DistributedType is abstract: use DistributedTensorType or DistributedBufferType")
        dims = tuple(Dim(d) for d in shape)
        mapping = placements if isinstance(placements, DeviceMapping) else PlacementMapping(mesh, placements)
        check_on(mesh, mapping)
        set_ = object.__setattr__
        set_(self, "dtype", dtype_name(dtype))
        set_(self, "shape", dims)
        set_(self, "mesh", mesh)
        set_(self, "_mapping", mapping.to_named_sharding(len(dims)))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def mapping(self) -> NamedMapping:
        return self._mapping

    @property
    def layout(self) -> Layout:
        return self._mapping.layout(self.rank)

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self._mapping.to_placements()

    @property
    def local_types(self) -> list[Any]:
        """One type per device, row-major, uneven and symbolic dims included."""
        devices = self.mesh.devices or (None,) * self.mesh.num_devices
        shapes = local_shapes(self.shape, self.layout)
        return [self._local(self.dtype, shape, device) for shape, device in zip(shapes, devices, strict=True)]

    def __reduce__(self) -> tuple:
        return type(self), (self.dtype, self.shape, self.mesh, self._mapping)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return type(self).__name__, self.dtype, self.shape, self._mapping

    def __repr__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{type(self).__name__}({self.dtype}[{dims}], {str(self._mapping)!r})"


class DistributedTensorType(DistributedType):
    """The symbolic type of a tensor that lies on a mesh.

    >>> from lamina.sharding import CPU, DeviceMesh, Sharded
    >>> t = DistributedTensorType("float32", ("n", 6), DeviceMesh((CPU(0), CPU(1)), (2,), ("tp",)), [Sharded(0)])
    >>> [str(local.shape[0]) for local in t.local_types], t.local_types[1].device
    (['(n + 1) // 2', 'n // 2'], CPU(1))
    """

    __slots__ = ()


class DistributedBufferType(DistributedType):
    """The symbolic type of a mutable buffer that lies on a mesh.

    >>> from lamina.sharding import DeviceMesh, Replicated
    >>> t = DistributedBufferType("bf16", (4,), DeviceMesh.abstract((2,), ("x",)), [Replicated()])
    >>> t, len(t.local_types)
    (DistributedBufferType(bfloat16[4], '[x=2] -'), 2)
    """

    __slots__ = ()
    _local = BufferType
