"""Tensors made of what each process has, or reads, of its own: no process ever needs the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lamina.engine import watching
from lamina.engine.storage import Storage
from lamina.engine.transfer import Read, placed
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops.arguments import storage_for
from lamina.sharding import DeviceMapping
from lamina.sharding.layout import Block
from lamina.sharding.mesh import positions
from lamina.tensors import Tensor, host_array

Slices = tuple[slice, ...]


def from_callback(
    shape: Sequence[int], mapping: DeviceMapping, callback: Callable[[Slices], Any], dtype: Any = None
) -> Tensor:
    """The tensor whose blocks a function reads: `callback(slices)` returns that part of the global value.

    It is called for the blocks of this process's devices only, once for each that differs, so each process reads just
    its own part of a file.  `dtype` is needed where a process may have no device of the mesh.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> table = np.arange(12.0).reshape(6, 2)
    >>> lamina.from_callback((6, 2), lamina.NamedMapping(mesh, ["x"]), lambda part: table[part]).shards[3].tolist()
    [[10.0, 11.0]]
    """
    with explained("from_callback(shape, mapping)", shape=tuple(shape), mapping=mapping):
        held = storage_for(_checked(mapping, "from_callback"), tuple(shape))

    @lru_cache(maxsize=1)  # the first block says the dtype, and is then asked for again
    def read(box: Block) -> np.ndarray:
        part = tuple(slice(start, stop) for start, stop in box)
        block = np.asarray(host_array(callback(part), "from_callback"), dtype)
        wanted = tuple(stop - start for start, stop in box)
        if block.shape != wanted:
            fact = f"from_callback(callback): callback({part}) returned shape {block.shape}, not {wanted}"
            raise LayoutError(with_fix(fact, "return just the part that the slices say"))
        return block

    return _of(read, held, dtype)


def from_local(part: Any, mapping: DeviceMapping, shape: Sequence[int]) -> Tensor:
    """The tensor of global `shape` of which each process gives its own part.

    A process's part is the smallest box around the blocks of its devices: its rows, where rows are split over
    processes; all of it, where its devices hold blocks from everywhere.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> lamina.from_local(np.arange(6.0), lamina.NamedMapping(mesh, ["x"]), (6,)).shards[0].tolist()  # one process
    [0.0, 1.0]
    """
    part = host_array(part, "from_local")
    with explained("from_local(part, mapping, shape)", mapping=mapping):
        held = storage_for(_checked(mapping, "from_local"), tuple(shape))
        box = own_box(held)
        wanted = tuple(stop - start for start, stop in box)
        if watching.is_here(held.mesh) and part.shape != wanted:
            fact = f"part has shape {part.shape}; this process's is {_text(box)} of {shape}, which has shape {wanted}"
            raise LayoutError(with_fix(fact, "give just what the devices of this process hold"))

    def read(block: Block) -> np.ndarray:
        return part[tuple(slice(a - at, b - at) for (a, b), (at, _) in zip(block, box, strict=True))]

    return _of(read, held, part.dtype)


def own_box(held: Storage) -> Block:
    """The smallest box around the blocks of this process's devices."""
    own = watching.own_positions(held.mesh)
    blocks = [
        held.layout.block(held.shape, where)
        for where, is_own in zip(positions(held.mesh), own, strict=True)
        if is_own or held.is_local
    ]
    blocks = [block for block in blocks if all(stop > start for start, stop in block)] or blocks[:1]
    if not blocks:
        return tuple((0, 0) for _ in held.shape)
    return tuple((min(a for a, _ in ends), max(b for _, b in ends)) for ends in zip(*blocks, strict=True))


def _of(read: Callable[[Block], np.ndarray], held: Storage, dtype: Any) -> Tensor:
    if dtype is None:
        dtype = _dtype_of_first(read, held)
    return Tensor(placed(Read(read, np.dtype(dtype), lambda _: False), held), held)


def _dtype_of_first(read: Callable[[Block], np.ndarray], held: Storage) -> Any:
    for where, is_own in zip(positions(held.mesh), watching.own_positions(held.mesh), strict=True):
        if is_own:
            box = tuple((0, size) for size in held.shape) if held.is_local else held.layout.block(held.shape, where)
            return read(box).dtype
    fact = f"from_callback(dtype): this process has no device of {held.mesh!r}, so it can't know the dtype"
    raise LayoutError(with_fix(fact, "say dtype="))


def _checked(mapping: Any, op: str) -> DeviceMapping:
    if not isinstance(mapping, DeviceMapping):
        raise TypeError(f"{op}(mapping) must be a lamina DeviceMapping such as NamedMapping, not {mapping!r}")
    return mapping


def _text(box: Block) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"
