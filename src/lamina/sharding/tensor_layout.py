"""The metadata of a tensor that rules and plans are evaluated on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import LayoutError, with_fix
from lamina.sharding.dims import Dim
from lamina.sharding.dtypes import dtype_name
from lamina.sharding.layout import Layout
from lamina.sharding.mappings import DeviceMapping, NamedMapping
from lamina.sharding.mesh import DeviceMesh
from lamina.sharding.placements import Placement
from lamina.sharding.shapes import local_shapes


class TensorLayout(DeviceMapping):
    """What a rule needs to know of a tensor: dtype, shape and mapping, without the data.

    1. The mapping fits the rank.

    >>> mesh = DeviceMesh.abstract((2, 4), ("dp", "tp"))
    >>> t = TensorLayout("float32", (8, 6), NamedMapping(mesh, ["dp", "tp"]))
    >>> t, t.local_shapes[:5]
    (TensorLayout(float32[8,6], '[dp=2,tp=4] dp,tp'), [(4, 2), (4, 2), (4, 1), (4, 1), (4, 2)])
    """

    __slots__ = ("_layout", "dtype", "mapping", "memory_kind", "shape")

    dtype: str
    shape: tuple[Any, ...]
    mapping: DeviceMapping
    _layout: Layout

    def __init__(self, dtype: Any, shape: Sequence[Any], mapping: DeviceMapping):
        if not isinstance(mapping, DeviceMapping):
            raise TypeError(f"mapping must be a lamina DeviceMapping, not {mapping!r}")
        set_ = object.__setattr__
        set_(self, "dtype", dtype_name(dtype))
        set_(self, "shape", tuple(Dim(d) for d in shape))
        set_(self, "mapping", mapping)
        set_(self, "memory_kind", mapping.memory_kind)
        set_(self, "_layout", mapping.layout(len(self.shape)))

    @property
    def mesh(self) -> DeviceMesh:
        return self.mapping.mesh

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_fully_replicated(self) -> bool:
        return self._layout.is_replicated

    @property
    def is_fully_resolved(self) -> bool:
        return self.mapping.is_fully_resolved

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self.to_placements()

    @property
    def local_shapes(self) -> list[tuple]:
        """The shape of each device's shard, row-major."""
        return local_shapes(self.shape, self._layout)

    def to_placements(self) -> tuple[Placement, ...]:
        return self.mapping.to_named_sharding(self.rank).to_placements()

    def to_named_sharding(self, tensor_rank: int | None = None) -> NamedMapping:
        return self.mapping.to_named_sharding(self.rank if tensor_rank is None else tensor_rank)

    def to_mesh(self, mesh: DeviceMesh) -> TensorLayout:
        return TensorLayout(self.dtype, self.shape, self.mapping.to_mesh(mesh))

    def layout(self, rank: int | None = None) -> Layout:
        if rank is not None and rank != self.rank:
            raise LayoutError(with_fix(f"{self!r} is of rank {self.rank}, not {rank}", "its .mapping fits other ranks"))
        return self._layout

    def _meaning(self) -> tuple:
        return self.dtype, self.shape, self.mapping.to_named_sharding(self.rank)._meaning()

    def __reduce__(self) -> tuple:
        return TensorLayout, (self.dtype, self.shape, self.mapping)

    def __repr__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"TensorLayout({self.dtype}[{dims}], {str(self.mapping.to_named_sharding(self.rank))!r})"
