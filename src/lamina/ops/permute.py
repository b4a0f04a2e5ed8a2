"""`ppermute`: shards go from device to device.  It changes the value."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from lamina.engine import primitive
from lamina.engine.programs import ShardPermutation
from lamina.engine.storage import Storage
from lamina.errors import Problems, explained
from lamina.ops.arguments import as_tensor, axes_of, decided_once, described
from lamina.sharding import Layout
from lamina.sharding.mesh import positions
from lamina.tensors import Tensor

Pairs = tuple[tuple[int, int], ...]


def ppermute(sharded_tensor: Any, permutation: Iterable[tuple[int, int]], *, axis: str | None = None) -> Tensor:
    """The shard of device src becomes that of device dst, for each (src, dst); who receives nothing holds zeros.

    Devices are counted row-major over the whole mesh, or along one mesh axis if `axis` names it.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> x = lamina.shard(np.arange(4.0), mesh, ["x"])
    >>> lamina.ppermute(x, [(0, 1), (1, 2), (2, 3)]).tolist()
    [0.0, 0.0, 1.0, 2.0]
    """
    t = as_tensor(sharded_tensor, "ppermute")
    if not isinstance(permutation, Iterable):
        raise TypeError(f"ppermute(permutation) must be pairs (src, dst), as in [(0, 1), (1, 0)], not {permutation!r}")
    action = _permutation(t._held, tuple(map(_as_written, permutation)), axis)
    return Tensor(primitive.apply(t._array, action), t._held)


def _as_written(pair: Any) -> Any:
    """A pair as plain integers; what isn't one stays, for `_check_pairs` to say so."""
    try:
        source, target = pair
        return index(source), index(target)
    except (TypeError, ValueError):
        return pair


@decided_once
def _permutation(held: Storage, pairs: Pairs, axis: str | None) -> ShardPermutation:
    """What a call decides, decided once."""
    with explained("ppermute(permutation)", tensor=described(held)):
        count = held.mesh.num_devices if axis is None else _size_of(held, axis)
        _check_pairs(pairs, count)
        if axis is not None:
            pairs = _along(held.layout, axis, pairs)
        _check_blocks(held, pairs)
        return ShardPermutation(held, tuple(sorted(pairs)))


def _size_of(held: Storage, axis: Any) -> int:
    if not isinstance(axis, str):
        raise TypeError(f"ppermute(axis) must be the name of one mesh axis, not {axis!r}")
    (name,) = axes_of(held, axis, "axis")
    return held.mesh.axis_size(name)


def _check_pairs(pairs: Pairs, count: int) -> None:
    problems = Problems()
    for pair in pairs:
        if not _is_pair(pair, count):
            problems.add(f"{pair} is not a pair (src, dst) of devices 0..{count - 1}", "write it as [(0, 1), (1, 0)]")
    problems.check()
    for end, name in enumerate(("src", "dst")):
        ends = [pair[end] for pair in pairs]
        for device in sorted({d for d in ends if ends.count(d) > 1}):
            fact = f"device {device} stands {ends.count(device)} times as {name}"
            problems.add(fact, "each device sends at most once and receives at most once")
    problems.check()


def _is_pair(pair: Any, count: int) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(end, int) and 0 <= end < count for end in pair)


def _along(layout: Layout, axis: str, pairs: Pairs) -> Pairs:
    """Pairs of positions along one axis as pairs of devices: the same for every position of the other axes."""
    names = list(layout.sizes)
    stride = layout.count(names[names.index(axis) + 1 :])
    bases = [device for device in range(layout.num_devices) if (device // stride) % layout.sizes[axis] == 0]
    return tuple((base + source * stride, base + target * stride) for base in bases for source, target in pairs)


def _check_blocks(held: Storage, pairs: Pairs) -> None:
    """Copies must stay copies, and a block must fit where it goes."""
    layout, problems = held.layout, Problems()
    where = list(positions(held.mesh))
    content = [(tuple(w[axis] for axis in held.lead), layout.block_index(w)) for w in where]
    origin = {target: source for source, target in pairs}
    groups: dict[tuple, list[int]] = {}
    for device, block in enumerate(content):
        groups.setdefault(block, []).append(device)
    for copies in groups.values():
        received = [content[origin[device]] if device in origin else None for device in copies]
        if len(set(received)) > 1:
            problems.add(
                f"devices {copies} hold copies of one shard (Replicated axes {layout.replicated_axes}), "
                f"but would receive different ones, from devices {[origin.get(device) for device in copies]}",
                "permute along one axis that holds no copies, with axis=",
            )
    for source, target in pairs:
        sent, fits = (tuple(b - a for a, b in layout.block(held.shape, where[d])) for d in (source, target))
        if sent != fits:
            problems.add(
                f"the shard of device {source} is {sent}, but that of device {target} is {fits} (uneven)",
                "permute among shards of one shape, or pad the dim to a multiple of its devices",
            )
    problems.check()
