"""The one way from host memory into device memory.

A `Load` says what one device is to hold: a shape, and the parts of it, each a numpy view and where it goes.  Nothing is
put together on the host on the way to an accelerator: a load is cut into chunks of bounded size, many of them are on
their way at once, and each is written to its place on the device when it arrives.  So the staging memory is at most
`in_flight` chunks, and the device holds the load and as many chunks, never two loads.

Why chunks: the driver copies pageable memory to pinned memory by one thread per transfer, so one `jax.device_put` uses
a fraction of the link.  Of chunks of 4 to 32 MiB with 16 to 64 at once, 16 of 8 MiB were the fastest on one H200
(`python -m benchmarks.host_transfer --sweep`; the bandwidths are in docs/benchmarks.md).

Where the devices' memory is the host's (CPU devices), a load is one copy to memory that XLA takes as it is, made by
several threads in chunks of the same size.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product, zip_longest
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import SingleDeviceSharding

from lamina.sharding.dims import split_sizes

Offset = tuple[int, ...]


@dataclass(frozen=True)
class Flow:
    """How loads are cut: bytes of a chunk, chunks on their way, what is too small to be cut, or copied by threads."""

    chunk_bytes: int = 8 << 20
    in_flight: int = 16
    smallest: int = 32 << 20
    smallest_shared: int = 4 << 20


_flow = Flow()


@contextmanager
def flowing(**changes: int) -> Iterator[Flow]:
    """Other settings for a while: for measuring them.

    >>> with flowing(in_flight=4) as flow:
    ...     flow.in_flight
    4
    """
    global _flow
    before, _flow = _flow, replace(_flow, **changes)
    try:
        yield _flow
    finally:
        _flow = before


@dataclass(frozen=True)
class Load:
    """What one device is to hold, as which dtype: the parts cover `shape`, and don't overlap.

    `device` is JAX's; `memory_kind` None is its default memory.  `own` says that nobody will write to the parts again,
    so that a device in the same memory may use them as they are.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    parts: tuple[tuple[Offset, np.ndarray], ...]
    device: Any
    memory_kind: str | None = None
    own: bool = False

    @staticmethod
    def of(value: np.ndarray, dtype: Any, device: Any, memory_kind: str | None = None, own: bool = False) -> Load:
        """All of one array."""
        return Load(value.shape, np.dtype(dtype), (((0,) * value.ndim, value),), device, memory_kind, own)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def home(self) -> Any:
        if self.memory_kind is None:
            return self.device
        return SingleDeviceSharding(self.device, memory_kind=self.memory_kind)

    def is_cut(self, flow: Flow) -> bool:
        """Does it go in chunks?  Not into the host's own memory, and not where the offsets wouldn't fit an int32."""
        far = self.device.platform != "cpu" and self.memory_kind is None
        return far and self.nbytes >= flow.smallest and max(self.shape, default=0) < 2**31


def send(loads: Sequence[Load], flow: Flow | None = None) -> list[Any]:
    """The loads in their devices' memory, one `jax.Array` each; they may still be on their way.

    The numpy views may be read until then.
    """
    flow = flow or _flow
    cut = [i for i, load in enumerate(loads) if load.is_cut(flow)]
    arrays: dict[int, Any] = dict(zip(cut, _in_chunks([loads[i] for i in cut], flow), strict=True)) if cut else {}
    if rest := [i for i in range(len(loads)) if i not in arrays]:
        whole = jax.device_put(_joined([loads[i] for i in rest], flow), [loads[i].home for i in rest])
        arrays |= zip(rest, whole, strict=True)
    return [arrays[i] for i in range(len(loads))]


# -- in chunks --------------------------------------------------------------------------------------------------------


def boxes(shape: tuple[int, ...], itemsize: int, most: int) -> Iterator[tuple[slice, ...]]:
    """Cuts a shape into runs of rows of at most `most` bytes (or single elements), in row-major order, evenly.

    >>> list(boxes((2, 5), 1, 3))[:2], len(list(boxes((4, 8), 1, 16))), list(boxes((), 4, 1))
    ([(slice(0, 1, None), slice(0, 3, None)), (slice(0, 1, None), slice(3, 5, None))], 2, [()])
    """
    if not shape or prod(shape) * itemsize <= most:
        yield tuple(slice(0, size) for size in shape)
        return
    dim = next(d for d in range(len(shape)) if prod(shape[d + 1 :]) * itemsize <= most or d == len(shape) - 1)
    rows = max(1, most // (prod(shape[dim + 1 :]) * itemsize))
    runs, start = [], 0
    for size in split_sizes(shape[dim], -(-shape[dim] // rows)):
        runs.append(slice(start, start + int(size)))
        start += int(size)
    ahead = product(*([slice(i, i + 1) for i in range(size)] for size in shape[:dim]))
    behind = tuple(slice(0, size) for size in shape[dim + 1 :])
    for before in ahead:
        for run in runs:
            yield (*before, run, *behind)


def _chunks(load: Load, most: int) -> list[tuple[Offset, np.ndarray]]:
    found = []
    for offset, view in load.parts:
        for box in boxes(view.shape, max(view.dtype.itemsize, load.dtype.itemsize), most):
            at = tuple(start + cut.start for start, cut in zip(offset, box, strict=True))
            found.append((at, view[box]))
    return found


class _Assembly:
    """A load that is being put together on its device: the block so far, and how many chunks were written.

    The offsets of all chunks go to the device at once, and the number of the next one is counted there: an offset sent
    with every chunk would be one more transfer each.
    """

    def __init__(self, load: Load, offsets: list[Offset]):
        self.block = jnp.zeros(load.shape, load.dtype, device=load.device)
        self.offsets = jax.device_put(np.asarray(offsets, np.int32).reshape(len(offsets), len(load.shape)), load.device)
        self.count = jax.device_put(np.int32(0), load.device)

    def write(self, chunk: Any) -> None:
        self.block, self.count = _write(self.block, self.count, self.offsets, chunk)


@partial(jax.jit, donate_argnums=(0, 1))
def _write(block: Any, count: Any, offsets: Any, chunk: Any) -> tuple[Any, Any]:
    at = lax.dynamic_index_in_dim(offsets, count, keepdims=False)
    return lax.dynamic_update_slice(block, chunk, tuple(at)), count + 1


def _in_chunks(loads: Sequence[Load], flow: Flow) -> list[Any]:
    """The devices take turns, so that all their links are at work."""
    chunks = [_chunks(load, flow.chunk_bytes) for load in loads]
    assemblies = [_Assembly(load, [at for at, _ in mine]) for load, mine in zip(loads, chunks, strict=True)]
    on_their_way: deque[tuple[_Assembly, Any]] = deque()
    for turn in zip_longest(*chunks):
        for load, assembly, chunk in zip(loads, assemblies, turn, strict=True):
            if chunk is None:
                continue
            if len(on_their_way) >= flow.in_flight:
                first, arriving = on_their_way.popleft()
                arriving.block_until_ready()  # its staging memory is free again: what is in flight stays bounded
                first.write(arriving)
            sent = jax.device_put(chunk[1].astype(load.dtype, copy=False), load.device)
            on_their_way.append((assembly, sent))
    for assembly, arriving in on_their_way:  # nothing more is sent: to wait for each would only delay the next write
        assembly.write(arriving)
    return [assembly.block for assembly in assemblies]


# -- in one piece -----------------------------------------------------------------------------------------------------


def _joined(loads: Sequence[Load], flow: Flow) -> list[np.ndarray]:
    """Each load as one array; the devices that get the same views share one copy of them."""
    copies: dict[tuple, np.ndarray] = {}
    found, copying = [], []
    for load in loads:
        first = load.parts[0][1]
        if len(load.parts) == 1 and first.dtype == load.dtype and (load.own or load.device.platform != "cpu"):
            found.append(first)
            continue
        key = load.shape, load.dtype, *((at, id(view)) for at, view in load.parts)
        if key not in copies:
            copies[key] = aligned_empty(load.shape, load.dtype)
            copying += [(copies[key], at, view) for at, view in _chunks(load, flow.chunk_bytes)]
        found.append(copies[key])
    workers = _workers() if sum(view.nbytes for _, _, view in copying) >= flow.smallest_shared else None
    for _ in map(_copy, copying) if workers is None else workers.map(_copy, copying):
        pass
    return found


def _copy(chunk: tuple[np.ndarray, Offset, np.ndarray]) -> None:
    block, at, view = chunk
    block[tuple(slice(start, start + size) for start, size in zip(at, view.shape, strict=True))] = view


@lru_cache(maxsize=1)
def _workers() -> ThreadPoolExecutor:
    """numpy copies without holding Python's lock; more than 8 threads don't copy faster."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), "lamina-copy")


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that XLA's CPU devices take as it is: what isn't aligned to 64 bytes they copy once more."""
    size = prod(shape) * dtype.itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)
