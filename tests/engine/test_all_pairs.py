"""Every layout to every other: the engine real and simulated meshes, the numpy interpreter, and plain numpy agree.

Each test takes one source to all its targets in one jitted program, since compiling is nearly all of the time: 49
targets together cost 0.6 s, and one alone 0.1 s.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from lamina.planning import plan
from lamina.planning.simulate import Blocks, collect, run, scatter
from lamina.sharding.layout import Layout
from tests.engine.oracles import KINDS, assert_same_blocks, compiled, held_by, holding, laid, mesh_of, moved
from tests.strategies import EXHAUSTIVE_MESHES, OPS, Mesh, all_layouts, any_blocks, values

ITEMSIZE = 4
PLAIN = [layout for axes in EXHAUSTIVE_MESHES for layout in all_layouts(axes, 2)]

# (12, 10) divides by 2 and 3 but not by 8, so its blocks nest in some grids and not in others; (5, 7) has empty ones.
EVEN, NESTING, PRIME = (24, 48), (12, 10), (5, 7)


def engine_blocks(kind: str, axes: Mesh, blocks: Blocks, source: Layout, targets: list[Layout], shape) -> list[Blocks]:
    """What every device holds in each of the targets, by one compiled program."""
    mesh = mesh_of(axes, kind)
    x = holding(blocks, mesh, source, shape)
    return [held_by(y) for y in compiled(lambda x: [laid(x, mesh, target) for target in targets])(x)]


def check_all(blocks: Blocks, source: Layout, targets: list[Layout], shape: tuple[int, ...]) -> None:
    axes = source.sizes
    dtype = next(iter(blocks.values())).dtype
    expected = [moved(blocks, source, target, shape) for target in targets]
    value = collect(blocks, source, shape, dtype)
    for target, wanted in zip(targets, expected, strict=True):
        np.testing.assert_array_equal(collect(wanted, target, shape, dtype), value)
        assert_same_blocks(run(plan(source, target, shape, ITEMSIZE), blocks), wanted)
    for kind in KINDS:
        found = engine_blocks(kind, axes, blocks, source, targets, shape)
        for target, blocks_there, wanted in zip(targets, found, expected, strict=True):
            try:
                assert_same_blocks(blocks_there, wanted)
            except AssertionError as error:
                raise AssertionError(f"{kind}: {source} -> {target}, shape {shape}\n{error}") from None


@pytest.mark.parametrize("source", PLAIN, ids=str)
def test_every_pair_of_layouts(source):
    check_all(scatter(values(EVEN), source), source, all_layouts(source.sizes, 2), EVEN)


@pytest.mark.exhaustive(keep=6)
@pytest.mark.parametrize("source", PLAIN, ids=str)
def test_every_pair_of_layouts_of_an_uneven_tensor(source):
    check_all(scatter(values(NESTING), source), source, all_layouts(source.sizes, 2), NESTING)


@pytest.mark.exhaustive(keep=16)
@pytest.mark.parametrize("source", PLAIN, ids=str)
def test_every_pair_of_layouts_of_a_tensor_that_leaves_devices_empty(source):
    check_all(scatter(values(PRIME), source), source, all_layouts(source.sizes, 2), PRIME)


SHAPES = {"even": EVEN, "nesting": NESTING, "prime": PRIME}


def sampled_with_pieces() -> list:
    """Some of the pairs with Partial axes of every op, the same in every run: 16 targets for each source."""
    chosen = []
    for axes in EXHAUSTIVE_MESHES:
        everything = all_layouts(axes, 2, OPS)
        rng = random.Random(len(everything))
        for source in rng.sample(everything, min(20, len(everything))):
            targets, name = rng.sample(everything, min(16, len(everything))), rng.choice(list(SHAPES))
            chosen.append(pytest.param(source, targets, SHAPES[name], id=f"{source} {name}"))
    return chosen


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize(("source", "targets", "shape"), sampled_with_pieces())
def test_pairs_with_partial_axes(source, targets, shape):
    check_all(any_blocks(source, shape, "float32"), source, targets, shape)
