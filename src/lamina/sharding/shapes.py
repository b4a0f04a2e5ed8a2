"""Shape arithmetic: global shape ↔ what each device holds.

All three functions go through the canonical layout, so they agree with each other on uneven, nested and symbolic dims.
Symbolic dims follow the very same rule: shard i of n over k holds (n + k - 1 - i) // k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lamina.errors import LayoutError
from lamina.sharding.dims import Dim, ceil_div, join_sizes, split_sizes
from lamina.sharding.layout import Layout
from lamina.sharding.mappings import DeviceMapping, PlacementMapping, check_on
from lamina.sharding.mesh import DeviceMesh, positions


def shard_shape(global_shape: Sequence[Any], placements: Any, mesh_shape: Any = None) -> list[Any]:
    """The shape of the first device's shard, which is the largest.

    `placements` is one placement per mesh axis, and `mesh_shape` the sizes (or a DeviceMesh); or `placements` is a
    DeviceMapping, which knows its mesh.

    >>> from lamina.sharding import Sharded, Replicated, SymbolicDim
    >>> shard_shape((10, 6), [Sharded(0), Sharded(-1)], (4, 2))
    [3, 3]
    >>> shard_shape((SymbolicDim("n"),), [Sharded(0)], (4,))
    [AlgebraicDim('(n + 3) // 4')]
    """
    shape = tuple(Dim(d) for d in global_shape)
    layout = _layout(placements, mesh_shape, len(shape))
    return [ceil_div(dim, blocks) for dim, blocks in zip(shape, layout.grid, strict=True)]


def local_shard_shape_from_global(global_shape: Sequence[Any], mesh: DeviceMesh, placements: Any) -> list[tuple]:
    """The shape of each device's shard, in row-major mesh order.

    >>> from lamina.sharding import DeviceMesh, Sharded
    >>> local_shard_shape_from_global((10,), DeviceMesh.abstract((2, 2), ("x", "y")), [Sharded(0), Sharded(0)])
    [(3,), (3,), (2,), (2,)]
    """
    shape = tuple(Dim(d) for d in global_shape)
    return local_shapes(shape, _layout(placements, mesh, len(shape)))


def global_shape_from_local(local_shape: Sequence[Any], mesh: DeviceMesh, placements: Any) -> tuple:
    """The global shape: from the shapes of all shards, row-major (exact), or from one shard's shape.

    One shard can't tell an uneven dim from an even one, so a single shape is taken as the even case.

    >>> from lamina.sharding import DeviceMesh, Sharded
    >>> mesh = DeviceMesh.abstract((4,), ("x",))
    >>> global_shape_from_local([(3,), (3,), (2,), (2,)], mesh, [Sharded(0)])
    (10,)
    >>> global_shape_from_local((3, 5), mesh, [Sharded(0)])
    (12, 5)
    >>> global_shape_from_local([(3,), (1,), (2,), (2,)], mesh, [Sharded(0)])
    Traceback (most recent call last):
    lamina.errors.LayoutError: the local shapes [(3,), (1,), (2,), (2,)] are not those of any tensor: a dim of 8 ...
    """
    local_shape = list(local_shape)
    if local_shape and all(isinstance(entry, (tuple, list)) for entry in local_shape):
        return _from_all([tuple(Dim(d) for d in shape) for shape in local_shape], mesh, placements)
    layout = _layout(placements, mesh, len(local_shape))
    return tuple(Dim(dim) * blocks for dim, blocks in zip(local_shape, layout.grid, strict=True))


def local_shapes(shape: tuple, layout: Layout) -> list[tuple]:
    """The shape of each shard, row-major, symbolic dims included."""
    sizes = [split_sizes(dim, blocks) for dim, blocks in zip(shape, layout.grid, strict=True)]
    mesh = DeviceMesh.abstract([size for _, size in layout.axes], [name for name, _ in layout.axes])
    return [tuple(sizes[d][i] for d, i in enumerate(layout.block_index(where))) for where in positions(mesh)]


def _from_all(shapes: list[tuple], mesh: DeviceMesh, placements: Any) -> tuple:
    if len(shapes) != mesh.num_devices:
        raise LayoutError(f"{len(shapes)} local shapes for the {mesh.num_devices} devices of {mesh}")
    rank = len(shapes[0])
    layout = _layout(placements, mesh, rank)
    total: list[dict[int, Any]] = [{} for _ in range(rank)]
    for where, shape in zip(positions(mesh), shapes, strict=True):
        if len(shape) != rank:
            raise LayoutError(f"the local shapes {shapes} differ in rank")
        for d, block in enumerate(layout.block_index(where)):
            total[d].setdefault(block, shape[d])
    found = tuple(join_sizes([blocks[i] for i in sorted(blocks)]) for blocks in total)
    if local_shapes(found, layout) != shapes:
        dim = found[0] if len(found) == 1 else found
        raise LayoutError(
            f"the local shapes {shapes} are not those of any tensor: "
            f"a dim of {dim} over {layout} would give {local_shapes(found, layout)}"
        )
    return found


def _layout(placements: Any, mesh: Any, rank: int) -> Layout:
    if isinstance(placements, DeviceMapping):
        if isinstance(mesh, DeviceMesh):
            check_on(mesh, placements)
        elif mesh is not None and _sizes(mesh) != placements.mesh.mesh_shape:
            raise LayoutError(f"{placements!r} is on the mesh {placements.mesh}, whose shape is not {mesh}")
        return placements.layout(rank)
    if mesh is None:
        raise TypeError(f"placements need a mesh: give mesh_shape, or a DeviceMapping instead of {placements!r}")
    if not isinstance(mesh, DeviceMesh):
        sizes = _sizes(mesh)
        mesh = DeviceMesh.abstract(sizes, [f"axis{i}" for i in range(len(sizes))])
    return PlacementMapping(mesh, placements).layout(rank)


def _sizes(mesh_shape: Any) -> tuple:
    return tuple(mesh_shape) if isinstance(mesh_shape, Iterable) else (mesh_shape,)
