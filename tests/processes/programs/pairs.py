"""Every `stride`-th pair of layouts of a (2,2,2) mesh, moved for real; every process checks all that its devices hold.

python pairs.py STRIDE
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import jax
import numpy as np

import lamina
from lamina.engine import watching
from lamina.sharding.layout import Layout
from lamina.sharding.mesh import positions
from tests.strategies import OPS, all_layouts, values

AXES = {"x": 2, "y": 2, "z": 2}
SHAPES = ((8, 16), (8, 16), (12, 10), (5, 7))  # even, even again, uneven, with empty blocks


def main() -> None:
    stride = int(sys.argv[1])
    mesh = lamina.DeviceMesh.create(tuple(AXES.values()), tuple(AXES))
    done = 0
    for source, target, shape in list(cases(stride)):
        value = values(shape)
        x = lamina.shard(value, mesh, source.dims, partial=dict(source.partial))
        check(x, source, value)
        y = lamina.shard(x, mesh, target.dims, partial=dict(target.partial))
        check(y, target, value)
        if done % 8 == 0:
            np.testing.assert_array_equal(y.numpy(), value)
        done += 1
    print(f"checked {done} pairs")


def cases(stride: int) -> Iterator[tuple[Layout, Layout, tuple[int, ...]]]:
    """All pairs without Partial axes, and as many with them, in turn over the shapes."""
    plain, pieces = all_layouts(AXES, 2), all_layouts(AXES, 2, OPS)
    pairs = [(a, b) for a in plain for b in plain]
    for number in range(0, len(pairs), stride):
        shape = SHAPES[number // stride % len(SHAPES)]
        yield (*pairs[number], shape)
        if number % 4 == 0:
            yield pieces[number * 7 % len(pieces)], pieces[number * 13 % len(pieces)], shape


def check(x: lamina.Tensor, layout: Layout, value: np.ndarray) -> None:
    """Each device of this process holds its block of the value: the oracle is `np.array_split` along each dim."""
    if layout.partial:
        np.testing.assert_array_equal(x.numpy(), value)
        return
    held = {shard.device: np.asarray(shard.data) for shard in x._array.addressable_shards}
    for device, where, own in zip(x.mesh.devices, positions(x.mesh), watching.own_positions(x.mesh), strict=True):
        if own:
            block = value
            for dim, axes in enumerate(layout.dims):
                count, index = 1, 0
                for axis in axes:
                    count, index = count * AXES[axis], index * AXES[axis] + where[axis]
                block = np.array_split(block, count, axis=dim)[index]
            stored = held[jax.devices()[device.id]]
            np.testing.assert_array_equal(stored[tuple(map(slice, block.shape))], block, err_msg=f"{layout} {where}")


if __name__ == "__main__":
    main()
