"""What can be wrong with a call of a collective."""

from __future__ import annotations

import numpy as np
import pytest

import lamina
from lamina import all_gather, all_reduce, all_to_all, distributed_broadcast, ppermute, reduce_scatter
from tests.errors.catalogue import Mistake, check, table, the_world

ROWS = "[8, 8] lying as [dp=2,tp=4] dp,-"
SUMS = "[8, 8] lying as [dp=2,tp=4] dp,- +sum(tp)"
MAXIMA = "[8, 8] lying as [dp=2,tp=4] dp,- +max(tp)"
EVEN = "[8] lying as [x=4] x"
UNEVEN = "[10] lying as [x=4] x"


@table(
    Mistake(
        "a replicated axis",
        lambda w: all_reduce(w.rows, reduce_axes=["tp"]),
        where="all_reduce",
        says=["reduce_axes: axis 'tp' is Replicated", "copies"],
        shows=ROWS,
    ),
    Mistake(
        "an unknown axis",
        lambda w: all_reduce(w.rows, reduce_axes="z"),
        where="all_reduce",
        says="reduce_axes: 'z' is not an axis of the mesh [dp=2,tp=4]",
        shows=ROWS,
    ),
    Mistake(
        "several bad axes",
        lambda w: all_reduce(w.rows, reduce_axes=["z", "dp", "dp", "w"]),
        where="all_reduce",
        says=["'z' is not an axis", "axis 'dp' stands twice", "'w' is not an axis"],
        shows=ROWS,
    ),
    Mistake(
        "a number for an axis",
        lambda w: all_reduce(w.rows, reduce_axes=3),
        where="all_reduce",
        says="reduce_axes: 3 is not an axis of the mesh [dp=2,tp=4]",
        shows=ROWS,
    ),
    Mistake(
        "no such op",
        lambda w: all_reduce(w.rows, reduce_op="bogus"),
        where="all_reduce",
        says="reduce_op='bogus': the reduce op must be one of sum, avg, min, max, prod",
        shows=ROWS,
    ),
    Mistake(
        "another op than the pieces'",
        lambda w: all_reduce(w.sums, reduce_op="max"),
        where="all_reduce",
        says="reduce_op='max', but axis 'tp' holds pieces of 'sum'",
        shows=SUMS,
    ),
    Mistake(
        "uneven shards",
        lambda w: all_reduce(w.uneven),
        where="all_reduce",
        says="dim 0 of 10 is uneven over ('x',), so its shards can't be reduced elementwise",
        shows=UNEVEN,
    ),
    Mistake(
        "shards before the pieces that they hold",
        lambda w: all_reduce(w.maxima, reduce_axes="dp"),
        where="all_reduce",
        says=["axis 'tp' holds pieces of 'max'", "must be reduced before"],
        shows=MAXIMA,
    ),
)
def test_all_reduce(mistake):
    check(mistake)


@table(
    Mistake(
        "a dim that isn't there",
        lambda w: reduce_scatter(w.sums, 5),
        where="reduce_scatter(",
        says="axis=5 is out of range for a tensor of shape (8, 8)",
        shows=SUMS,
    ),
    Mistake(
        "a dim by name",
        lambda w: reduce_scatter(w.sums, "dp"),
        error=TypeError,
        says="axis must be an integer, not 'dp'",
        fix=None,
    ),
    Mistake(
        "another op than the pieces'",
        lambda w: reduce_scatter(w.sums, 0, reduce_op="max"),
        where="reduce_scatter(",
        says="reduce_op='max', but axis 'tp' holds pieces of 'sum'",
        shows=SUMS,
    ),
    Mistake(
        "a replicated axis",
        lambda w: reduce_scatter(w.rows, 0, reduce_axes="tp"),
        where="reduce_scatter(",
        says="reduce_axes: axis 'tp' is Replicated",
        shows=ROWS,
    ),
    Mistake(
        "uneven shards",
        lambda w: reduce_scatter(w.uneven, 0),
        where="reduce_scatter(",
        says="dim 0 of 10 is uneven over ('x',), so its shards can't be reduced elementwise",
        shows=UNEVEN,
    ),
)
def test_reduce_scatter(mistake):
    check(mistake)


@table(
    Mistake(
        "a dim that isn't there",
        lambda w: all_gather(w.rows, 3),
        where="all_gather(",
        says="axis=3 is out of range for a tensor of shape (8, 8)",
        shows=ROWS,
    ),
    Mistake(
        "a dim that isn't there, by its other name",
        lambda w: all_gather(w.rows, physical_axis=4),
        where="all_gather(",
        says="physical_axis=4 is out of range for a tensor of shape (8, 8)",
        shows=ROWS,
    ),
    Mistake(
        "both names, two dims",
        lambda w: all_gather(w.rows, 0, physical_axis=1),
        where="all_gather(",
        says="axis=0 and physical_axis=1 name different dims",
        shows=ROWS,
    ),
    Mistake(
        "a dim of a scalar",
        lambda w: all_gather(w.scalar, 0),
        where="all_gather(",
        says="axis=0 is out of range for a tensor of shape ()",
        shows="[x=4] ()",
    ),
    Mistake(
        "a pytree, which only shard and to_device take",
        lambda w: all_gather({"a": w.rows, "b": "hello"}),
        error=TypeError,
        says="all_gather(x) takes a Tensor, an array or numbers, not dict of them",
        fix="jax.tree.map(lamina.all_gather, x) takes a pytree",
    ),
    Mistake(
        "a list of dims",
        lambda w: all_gather(w.rows, [0]),
        error=TypeError,
        says="axis must be an integer, not [0]",
        fix=None,
    ),
)
def test_all_gather(mistake):
    check(mistake)


@table(
    Mistake(
        "one dim twice",
        lambda w: all_to_all(w.rows, 0, 0),
        where="all_to_all(",
        says="split_axis and concat_axis are both dim 0",
        shows=ROWS,
    ),
    Mistake(
        "one dim twice, counted from both ends",
        lambda w: all_to_all(w.rows, 1, -1),
        where="all_to_all(",
        says="split_axis and concat_axis are both dim 1",
        shows=ROWS,
    ),
    Mistake(
        "two dims that aren't there",
        lambda w: all_to_all(w.rows, 5, -7),
        where="all_to_all(",
        says=[
            "split_axis=5 is out of range for a tensor of shape (8, 8)",
            "concat_axis=-7 is out of range for a tensor of shape (8, 8)",
        ],
        shows=ROWS,
    ),
    Mistake(
        "untiled, of another length than the group",
        lambda w: all_to_all(w.rows, 1, 0, tiled=False),
        where="all_to_all(",
        says="not tiled, dim 1 must be whole and as long as the group of 2 devices, not 8",
        shows=ROWS,
    ),
    Mistake(
        "untiled, both dims wrong",
        lambda w: all_to_all(lamina.shard(np.ones((10, 3)), w.four, ["x"]), 1, 0, tiled=False),
        where="all_to_all(",
        says=[
            "not tiled, dim 1 must be whole and as long as the group of 4 devices, not 3",
            "dim 0 of 10 is uneven over 4 devices, so its shards can't be stacked",
        ],
        shows="[10, 3] lying as [x=4] x,-",
    ),
)
def test_all_to_all(mistake):
    check(mistake)


def test_untiled_over_a_split_dim_says_that_it_is_split():
    """`not 2` would be no reason for a dim that is 2 long."""
    world, _ = the_world()
    split = lamina.shard(np.ones((8, 2)), world.mesh, ["dp", "tp"])
    with pytest.raises(lamina.LayoutError) as caught:
        all_to_all(split, 1, 0, tiled=False)
    assert "must be whole" in str(caught.value) and "devices, not 2" not in str(caught.value)


@table(
    Mistake(
        "a number for pairs",
        lambda w: ppermute(w.even, 3),
        error=TypeError,
        says="ppermute(permutation) must be pairs (src, dst), as in [(0, 1), (1, 0)], not 3",
        fix=None,
    ),
    Mistake(
        "a source twice",
        lambda w: ppermute(w.even, [(0, 1), (0, 2)]),
        where="ppermute(",
        says="device 0 stands 2 times as src",
        shows=EVEN,
    ),
    Mistake(
        "a destination twice, a source twice",
        lambda w: ppermute(w.even, [(0, 1), (2, 1), (2, 3)]),
        where="ppermute(",
        says=["device 2 stands 2 times as src", "device 1 stands 2 times as dst"],
        shows=EVEN,
    ),
    Mistake(
        "out of range",
        lambda w: ppermute(w.even, [(0, 4), (-1, 2)]),
        where="ppermute(",
        says=[
            "(0, 4) is not a pair (src, dst) of devices 0..3",
            "(-1, 2) is not a pair (src, dst) of devices 0..3",
        ],
        shows=EVEN,
    ),
    Mistake(
        "out of range along an axis",
        lambda w: ppermute(w.rows, [(0, 3)], axis="dp"),
        where="ppermute(",
        says="(0, 3) is not a pair (src, dst) of devices 0..1",
        shows=ROWS,
    ),
    Mistake(
        "no pairs but triples",
        lambda w: ppermute(w.even, [(0, 1, 2)]),
        where="ppermute(",
        says="(0, 1, 2) is not a pair (src, dst) of devices 0..3",
        shows=EVEN,
    ),
    Mistake(
        "a list of devices",
        lambda w: ppermute(w.even, [1, 2, 3, 0]),
        where="ppermute(",
        says="1 is not a pair (src, dst) of devices 0..3",
        shows=EVEN,
    ),
    Mistake(
        "copies would receive different shards",
        lambda w: ppermute(w.rows, [(0, 4)]),
        where="ppermute(",
        says=["devices [4, 5, 6, 7] hold copies of one shard", "('tp',)", "would receive different ones"],
        shows=ROWS,
    ),
    Mistake(
        "between uneven shards",
        lambda w: ppermute(w.uneven, [(0, 2), (3, 1)]),
        where="ppermute(",
        says=[
            "the shard of device 0 is (3,), but that of device 2 is (2,)",
            "the shard of device 3 is (2,), but that of device 1 is (3,)",
        ],
        shows=UNEVEN,
    ),
    Mistake(
        "an unknown axis",
        lambda w: ppermute(w.even, [(0, 1)], axis="z"),
        where="ppermute(",
        says="'z' is not an axis of the mesh [x=4]",
        shows=EVEN,
    ),
)
def test_ppermute(mistake):
    check(mistake)


def test_ppermute_takes_an_axis_by_index_or_says_that_it_does_not():
    world, _ = the_world()
    try:
        moved = ppermute(world.even, [(0, 1)], axis=0)
    except (lamina.LayoutError, TypeError) as error:
        assert "axis" in str(error)
    else:
        np.testing.assert_array_equal(moved.numpy(), ppermute(world.even, [(0, 1)], axis="x").numpy())


@pytest.mark.parametrize("bad", [True, 1.0])
def test_an_error_does_not_depend_on_what_was_called_before(bad):
    """`1 == 1.0 == True`, so a cache of decisions must look at the types too."""
    world, _ = the_world()
    for op in (all_gather, lambda x, dim: all_to_all(x, dim, 0), lambda x, dim: reduce_scatter(x, dim)):
        op(world.both, 1)
        with pytest.raises(TypeError, match="must be an integer"):
            op(world.both, bad)


def test_ppermute_takes_numpys_integers():
    world, _ = the_world()
    there = np.roll(np.arange(4), -1)
    moved = ppermute(world.even, list(zip(np.arange(4), there, strict=True)))
    np.testing.assert_array_equal(moved.numpy(), np.roll(world.even.numpy(), 2))


@table(
    Mistake(
        "a mesh without devices",
        lambda w: distributed_broadcast(w.rows, w.abstract),
        where="distributed_broadcast(",
        says="DeviceMesh([dp=2,tp=4], abstract) has no devices: it can be planned for, but can't hold a tensor",
        fix="DeviceMesh",
    ),
    Mistake(
        "a mesh that is none",
        lambda w: distributed_broadcast(w.rows, (2, 4)),
        error=TypeError,
        says="mesh must be a lamina.DeviceMesh, not tuple (2, 4)",
        fix=None,
    ),
)
def test_distributed_broadcast(mistake):
    check(mistake)


OPS = {
    "all_reduce": all_reduce,
    "reduce_scatter": lambda x: reduce_scatter(x, 0),
    "all_gather": all_gather,
    "all_to_all": lambda x: all_to_all(x, 0, 1),
    "ppermute": lambda x: ppermute(x, []),
    "distributed_broadcast": distributed_broadcast,
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("bad", ["hello", None, object()], ids=["text", "None", "object"])
def test_what_is_no_tensor(op, bad):
    with pytest.raises(TypeError) as caught:
        OPS[op](bad)
    assert op in str(caught.value) or "array" in str(caught.value)
