"""What can be wrong with making and reading a Tensor."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina import ConversionError, LayoutError, NamedMapping, PlacementMapping, Sharded, TransformError, from_shards
from tests.errors.catalogue import Mistake, check, table, the_world

PLAIN = "lamina.shard(x, mesh, ...) it to a layout that divides evenly and has nothing Partial, or read x.numpy()"


@table(
    Mistake(
        ".device of a tensor on several devices",
        lambda w: w.rows.device,
        says="this tensor lies on 8 devices of DeviceMesh([dp=2,tp=4], on CPU(0)..CPU(7)): see .mesh.devices",
        fix=None,
    ),
    Mistake(
        ".jax() of an uneven tensor",
        lambda w: w.uneven.jax(),
        error=ConversionError,
        says="JAX can't say the layout [x=4] x of shape (10,): it is uneven",
        fix=PLAIN,
    ),
    Mistake(
        ".jax() of a Partial tensor",
        lambda w: w.sums.jax(),
        error=ConversionError,
        says="JAX can't say the layout [dp=2,tp=4] dp,- +sum(tp) of shape (8, 8): it has Partial axes",
        fix=PLAIN,
    ),
    Mistake(
        ".placements of an axis order that placements can't say",
        lambda w: lamina.shard(w.host, w.mesh, [("tp", "dp")]).placements,
        error=ConversionError,
        says="dim 0 is split over ('tp', 'dp'), but placements can only say the mesh's own order ('dp', 'tp')",
        fix=None,
    ),
    Mistake(
        "iterating",
        lambda w: list(w.rows),
        error=TypeError,
        says="a Tensor can't be iterated over: each step would communicate; iterate over x.numpy()",
        fix=None,
    ),
    Mistake(
        "the length of a scalar",
        lambda w: len(w.scalar),
        error=TypeError,
        says="len() of a 0-d Tensor",
        fix=None,
    ),
    Mistake(
        "changing",
        lambda w: setattr(w.rows, "shape", (4,)),
        error=AttributeError,
        says="a Tensor is immutable: can't set 'shape'",
        fix=None,
    ),
    Mistake(
        "deleting",
        lambda w: delattr(lamina.shard(w.host, w.mesh, []), "_array"),
        error=AttributeError,
        says="a Tensor is immutable",
        fix=None,
    ),
    Mistake(
        ".item() of many",
        lambda w: w.rows.item(),
        error=ValueError,
        says="can only convert an array of size 1 to a Python scalar",
        fix=None,
    ),
    Mistake(
        "bool() of many",
        lambda w: bool(w.rows),
        error=ValueError,
        says="The truth value of an array with more than one element is ambiguous",
        fix=None,
    ),
    Mistake(
        "a function mapped over the leaves changed the shape",
        lambda w: jax.tree.map(lambda leaf: leaf[:3], w.rows).shape,
        says="this Tensor was rebuilt from an array of shape (3, 8), which no layout explains: "
        "a function that was mapped over its leaves changed the shape",
        fix=None,
    ),
)
def test_reading(mistake):
    check(mistake)


@table(
    Mistake(
        "the shards",
        lambda w: jax.jit(lambda t: t.shards)(w.rows),
        error=TransformError,
        says="a traced Tensor has no shards yet",
        fix=None,
    ),
    Mistake(
        "the value",
        lambda w: jax.jit(lambda t: t.numpy())(w.rows),
        error=TransformError,
        says=["traced Tensor", "outside of jax.jit"],
        fix=None,
    ),
    Mistake(
        "a number",
        lambda w: jax.jit(lambda t: float(t))(w.scalar),
        error=TransformError,
        says=["traced Tensor", "outside of jax.jit"],
        fix=None,
    ),
    Mistake(
        "a condition",
        lambda w: jax.jit(lambda t: t if t else -1)(w.scalar),
        error=TransformError,
        says=["traced Tensor", "outside of jax.jit"],
        fix=None,
    ),
)
def test_reading_inside_jit(mistake):
    message = check(mistake)
    assert "lamina.spmd" not in message or hasattr(lamina, "spmd"), "the way out isn't there yet"


def halves(w, *spec):
    return NamedMapping(w.simulated, spec)


@table(
    Mistake(
        "too few shards",
        lambda w: from_shards([np.zeros(2)] * 3, w.split(w.four, "x")),
        where="from_shards(",
        says="3 shards for the 4 devices of [x=4]",
        shows="[x=4] x",
        fix="one shard per mesh position",
    ),
    Mistake(
        "the larger shard comes first",
        lambda w: from_shards([np.zeros(1), np.zeros(2)], halves(w, "x")),
        where="from_shards(",
        says=["[(1,), (2,)]", "[(2,), (1,)]"],
        shows="[x=2] x",
        fix="local_shard_shape_from_global",
    ),
    Mistake(
        "shards of another shape than was said",
        lambda w: from_shards([np.zeros(2), np.zeros(1)], halves(w, "x"), shape=(4,)),
        where="from_shards(",
        says="shards of shapes [(2,), (1,)] don't make up (4,), whose shards are [(2,), (2,)]",
        shows="[x=2] x",
        fix="local_shard_shape_from_global",
    ),
    Mistake(
        "shards of different ranks",
        lambda w: from_shards([np.zeros(2), np.zeros((2, 1))], halves(w, "x")),
        where="from_shards(",
        says="[(2,), (2, 1)] differ in rank",
        shows="[x=2] x",
        fix="local_shard_shape_from_global",
    ),
    Mistake(
        "copies of different shapes",
        lambda w: from_shards([np.zeros(2), np.zeros(3)], halves(w)),
        where="from_shards(",
        says="[(2,), (3,)]",
        shows="[x=2] ()",
        fix="local_shard_shape_from_global",
    ),
    Mistake(
        "shards of different dtypes",
        lambda w: from_shards([np.zeros(2, "float32"), np.zeros(2, "int32")], halves(w, "x")),
        where="from_shards(",
        says="the shards have different dtypes: ['float32', 'int32']",
        shows="[x=2] x",
        fix="dtype",
    ),
    Mistake(
        "a mapping outside the rank",
        lambda w: from_shards([np.zeros(2)] * 2, PlacementMapping(w.simulated, [Sharded(3)])),
        where="from_shards(",
        says="Sharded(3) on mesh axis 'x' is out of range for a tensor of rank 1",
        shows="[x=2]",
    ),
    Mistake(
        "a spec for a mapping",
        lambda w: from_shards([np.zeros(2)] * 2, ["x"]),
        error=TypeError,
        says=["mapping", "['x']"],
        fix=None,
    ),
)
def test_from_shards(mistake):
    check(mistake)


@table(
    Mistake(
        "numpy to from_jax",
        lambda w: lamina.from_jax(w.host),
        error=TypeError,
        says="from_jax takes a jax.Array, not ndarray; see lamina.tensor",
        fix=None,
    ),
    Mistake("text", lambda w: lamina.tensor("hello"), error=TypeError, says="tensor", fix=None),
    Mistake("None", lambda w: lamina.tensor(None), error=TypeError, says="tensor", fix=None),
)
def test_making(mistake):
    check(mistake)


def test_a_layout_error_is_a_value_error_that_pickles():
    import pickle

    world, _ = the_world()
    with pytest.raises(ValueError) as caught:
        lamina.shard(world.rows, world.mesh, ["z"])
    twin = pickle.loads(pickle.dumps(caught.value))
    assert type(twin) is LayoutError and str(twin) == str(caught.value)


def test_the_global_value_is_read_everywhere():
    """The peers' mistake that Lamina doesn't make: `.item()` of a Partial is the value, not one shard's."""
    world, _ = the_world()
    partial = lamina.shard(jnp.float32(3), world.mesh, [], partial=["dp", "tp"])
    assert partial.item() == float(partial) == 3.0 and bool(partial)
