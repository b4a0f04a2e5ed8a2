"""Why the search moves axes whole: split into primes they would plan hardly better, and several times slower."""

from __future__ import annotations

from itertools import product

import pytest

from lamina.planning import plan
from lamina.planning.overlap import prime_factors
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp
from tests.strategies import all_layouts


def split(layout: Layout) -> Layout:
    """The same layout on a mesh whose axes are primes: y=4 is y0=2,y1=2, major to minor."""
    parts = {axis: [f"{axis}{i}" for i, _ in enumerate(prime_factors(size))] for axis, size in layout.axes}
    sizes = {f"{axis}{i}": prime for axis, size in layout.axes for i, prime in enumerate(prime_factors(size))}
    pieces = {name: op for axis, op in layout.partial for name in parts[axis]}
    return Layout(sizes, [[name for axis in dim for name in parts[axis]] for dim in layout.dims], pieces)


def saved(source: Layout, target: Layout, shape: tuple[int, ...]) -> float:
    """The share of the bytes that a plan with split axes would save."""
    whole, parted = (plan(*pair, shape) for pair in ((source, target), (split(source), split(target))))
    if not whole.bytes_received.mean:
        return 0.0
    return 1 - parted.bytes_received.mean / whole.bytes_received.mean


@pytest.mark.parametrize(("axes", "shape"), [({"x": 2, "y": 4}, (16, 16)), ({"x": 3, "y": 4}, (24, 24))], ids=str)
def test_splitting_axes_saves_nothing_without_pieces(axes, shape):
    for source, target in product(all_layouts(axes, 2), repeat=2):
        assert saved(source, target, shape) == pytest.approx(0), f"{source} -> {target}"


@pytest.mark.parametrize(("axes", "shape"), [({"x": 2, "y": 4}, (16, 16)), ({"x": 3, "y": 4}, (24, 24))], ids=str)
def test_with_pieces_it_saves_little_and_seldom(axes, shape):
    pairs = list(product(all_layouts(axes, 2, [ReduceOp.SUM]), repeat=2))
    gains = [gain for pair in pairs if (gain := saved(*pair, shape)) > 1e-9]
    assert len(gains) <= 0.02 * len(pairs)
    assert max(gains, default=0) < 0.06
