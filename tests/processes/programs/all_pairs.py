"""Every pair of layouts of a (2,2,2) mesh: one program per source takes it to many targets, all blocks checked.

python all_pairs.py FIRST STRIDE
"""

from __future__ import annotations

import sys

import jax

import lamina
from tests.processes.programs.pairs import AXES, check
from tests.strategies import all_layouts, values

SHAPES = ((8, 16), (12, 10))  # even, uneven
AT_ONCE = 7


def main() -> None:
    first, stride = int(sys.argv[1]), int(sys.argv[2])
    mesh, layouts, done = lamina.DeviceMesh.create(tuple(AXES.values()), tuple(AXES)), all_layouts(AXES, 2), 0
    for number in range(first, len(layouts), stride):
        source, value = layouts[number], values(SHAPES[number % 2])
        x = lamina.shard(value, mesh, source.dims)
        for start in range(0, len(layouts), AT_ONCE):
            targets = layouts[start : start + AT_ONCE]
            move = jax.jit(lambda x, targets=targets: [lamina.shard(x, mesh, target.dims) for target in targets])
            for y, target in zip(move(x), targets, strict=True):
                check(y.block_until_ready(), target, value)
                done += 1
    print(f"checked {done} pairs")


if __name__ == "__main__":
    main()
