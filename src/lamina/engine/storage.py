"""How a tensor of one layout is stored in one `jax.Array`.

* The array's leading axes are the Partial axes, in mesh order, one entry per piece; then come the tensor's dims.
* A dim of n over k blocks is stored as k·⌈n/k⌉: each block is padded at its end, with zeros.  Nothing reads the
  padding; it is zero so that what users do with the raw array (a norm over all leaves, say) isn't disturbed by it.
* On a mesh of several devices the array has the `NamedSharding` that says just this; an even layout without Partial
  is therefore the ordinary global array.  On one device (simulated meshes too) it is the same array, whole.

`Storage` values are interned: the ones that a program meets again are the same objects, so the front path's look-ups
compare by identity.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from lamina.engine import inventory
from lamina.sharding import DeviceMesh, Layout, NamedMapping
from lamina.sharding.layout import check_rank
from lamina.sharding.mesh import holding


class Storage:
    """Where a tensor of `shape` with `layout` lies on `mesh`, and as what array.  Make them with `storage(...)`."""

    __slots__ = ("_hash", "_mapping", "_sharding", "array_shape", "layout", "lead", "memory_kind", "mesh", "shape")

    def __init__(self, mesh: DeviceMesh, layout: Layout, shape: tuple[int, ...], memory_kind: str | None):
        check_rank(layout, shape)
        holding(mesh)
        self.mesh, self.layout, self.shape, self.memory_kind = mesh, layout, shape, memory_kind
        self.lead = layout.partial_axes
        padded = (blocks * size for blocks, size in zip(layout.grid, layout.padded_block(shape), strict=True))
        self.array_shape = (*(layout.sizes[axis] for axis in self.lead), *padded)
        self._hash = hash((mesh, layout, shape, memory_kind))
        self._sharding: Any = None
        self._mapping: NamedMapping | None = None

    @property
    def is_local(self) -> bool:
        """Does one device play every position of the mesh?"""
        return self.mesh.is_single or self.mesh.is_simulated

    @property
    def is_plain(self) -> bool:
        """Is the array the ordinary global one: no pieces, no padding?"""
        return self.array_shape == self.shape and not self.lead

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def spec(self) -> PartitionSpec:
        dims = (axes[0] if len(axes) == 1 else (axes or None) for axes in self.layout.dims)
        return PartitionSpec(*self.lead, *dims)

    @property
    def sharding(self) -> Any:
        """JAX's sharding of the array."""
        if self._sharding is None:
            if self.memory_kind is not None:
                inventory.check_memory(self.mesh.devices[0], self.memory_kind)
            if self.is_local:
                device = inventory.player(self.mesh)
                self._sharding = SingleDeviceSharding(device, memory_kind=self.memory_kind)
            else:
                mesh = inventory.jax_mesh(self.mesh)
                self._sharding = NamedSharding(mesh, self.spec, memory_kind=self.memory_kind)
        return self._sharding

    def home(self, array: Any) -> Any:
        """The array where it belongs: XLA may have left the result of a jit elsewhere, or a user may have moved it."""
        if isinstance(array, jax.Array) and array.sharding.is_equivalent_to(self.sharding, array.ndim):
            return array
        return jax.device_put(array, self.sharding)

    @property
    def mapping(self) -> NamedMapping:
        """The layout, in the dialect that can say every layout."""
        if self._mapping is None:
            layout = self.layout
            self._mapping = NamedMapping(
                self.mesh, layout.dims, unreduced=dict(layout.partial), memory_kind=self.memory_kind
            )
        return self._mapping

    @property
    def size(self) -> int:
        return prod(self.shape)

    def with_layout(self, layout: Layout) -> Storage:
        return storage(self.mesh, layout, self.shape, self.memory_kind)

    def without_pieces(self) -> Storage:
        """With nothing left to reduce."""
        return self.with_layout(self.layout.replace(partial=()))

    def with_dim(self, position: int, size: int) -> Storage:
        """With one more whole dim: what `jax.vmap` adds."""
        dims = (*self.layout.dims[:position], (), *self.layout.dims[position:])
        shape = (*self.shape[:position], size, *self.shape[position:])
        return storage(self.mesh, self.layout.replace(dims=dims), shape, self.memory_kind)

    def without_dim(self, position: int) -> Storage:
        """With one whole dim less: what `jax.vmap` takes away."""
        dims = (*self.layout.dims[:position], *self.layout.dims[position + 1 :])
        shape = (*self.shape[:position], *self.shape[position + 1 :])
        return storage(self.mesh, self.layout.replace(dims=dims), shape, self.memory_kind)

    def with_kind(self, memory_kind: str | None) -> Storage:
        return storage(self.mesh, self.layout, self.shape, memory_kind)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Storage) or self._hash != other._hash:
            return False
        mine = (self.shape, self.layout, self.mesh, self.memory_kind)
        return mine == (other.shape, other.layout, other.mesh, other.memory_kind)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Storage({'×'.join(map(str, self.shape)) or 'scalar'} as {self.layout} on {self.mesh!r})"


@lru_cache(maxsize=16384)
def storage(mesh: DeviceMesh, layout: Layout, shape: tuple[int, ...], memory_kind: str | None = None) -> Storage:
    """The one Storage for these."""
    return Storage(mesh, layout, shape, memory_kind)


def whole(mesh: DeviceMesh, shape: tuple[int, ...]) -> Storage:
    """Every device of the mesh holds all of it."""
    return storage(mesh, Layout(mesh.axes, ((),) * len(shape)), shape)
