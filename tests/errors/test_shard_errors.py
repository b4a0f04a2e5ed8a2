"""What can be wrong with a call of `shard` (and of `reshard`)."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lamina
from lamina import DimSpec, NamedMapping, PlanError, Replicated, Sharded, TransformError, reshard, shard
from tests.errors.catalogue import Mistake, check, table, the_world

ROWS = "[8, 8] lying as [dp=2,tp=4] dp,-"  # how a message shows the tensor `rows`


@table(
    Mistake(
        "an unknown axis",
        lambda w: shard(w.host, w.mesh, ["z"]),
        where="shard(dim_specs=['z']): ",
        says="'z' is not an axis of the mesh [dp=2,tp=4]",
        fix="one of ['dp', 'tp']",
    ),
    Mistake(
        "an unknown axis, of a tensor",
        lambda w: shard(w.rows, w.mesh, ["z"]),
        where="shard(dim_specs=['z']): ",
        says="'z' is not an axis of the mesh [dp=2,tp=4]",
        shows=ROWS,
        fix="one of ['dp', 'tp']",
    ),
    Mistake(
        "an axis used twice",
        lambda w: shard(w.rows, w.mesh, ["dp", "dp"]),
        where="shard(dim_specs=['dp', 'dp']): ",
        says="axis 'dp' is used twice: by dim 0 and by dim 1",
        shows=ROWS,
        fix="each axis once",
    ),
    Mistake(
        "an axis both split and partial",
        lambda w: shard(w.rows, w.mesh, ["dp"], partial=["dp"]),
        where="shard(dim_specs=['dp']",
        says="axis 'dp' is used twice: by dim 0 and as",
        shows=ROWS,
    ),
    Mistake(
        "more entries than dims",
        lambda w: shard(w.rows, w.mesh, ["dp", "tp", None]),
        where="shard(dim_specs=['dp', 'tp', None]): ",
        says="3 entries for a tensor of rank 2",
        shows=ROWS,
        fix="one entry per dim",
    ),
    Mistake(
        "a list of numbers is a pytree",
        lambda w: shard([1.0, 2.0], w.four, ["x"]),
        where="shard(dim_specs=['x']): ",
        says="1 entries for a tensor of rank 0 (a plain list is a pytree of numbers: use np.asarray)",
    ),
    Mistake(
        "a string as spec",
        lambda w: shard(w.host, w.mesh, "dp"),
        where="shard(dim_specs='dp'): ",
        says="'dp' is not a spec: use one entry per dim, as in ['dp', None]",
    ),
    Mistake(
        "no spec",
        lambda w: shard(w.host, w.mesh, None),
        where="shard(dim_specs=None): ",
        says="None is not a spec: use one entry per dim",
    ),
    Mistake(
        "a dict of specs for one tensor: its keys were taken for axes",
        lambda w: shard(w.rows, w.mesh, {"dp": None}),
        where="shard(dim_specs={'dp': None}): ",
        says="{'dp': None} is not a spec: use one entry per dim",
        shows=ROWS,
    ),
    Mistake(
        "a set, which has no order",
        lambda w: shard(w.rows, w.mesh, {"dp"}),
        where="shard(dim_specs={'dp'}): ",
        says="{'dp'} is not a spec: use one entry per dim",
        shows=ROWS,
    ),
    Mistake(
        "a number as entry",
        lambda w: shard(w.host, w.mesh, ["dp", 0]),
        where="shard(dim_specs=['dp', 0]): ",
        says="0 is not a spec entry: use None, an axis name, a tuple of axis names or a DimSpec",
    ),
    Mistake(
        "a number as axis",
        lambda w: shard(w.host, w.mesh, [("dp", 3)]),
        where="shard(dim_specs=[('dp', 3)]): ",
        says="3 in ('dp', 3) is not the name of a mesh axis",
    ),
    Mistake(
        "one leaf of a pytree has too few dims",
        lambda w: shard({"weight": w.host, "bias": np.ones(8)}, w.mesh, ["dp", "tp"]),
        where="shard(dim_specs=['dp', 'tp']): ",
        says="2 entries for a tensor of rank 1",
        shows="shape: (8,)",
    ),
    Mistake(
        "a dict of specs that lacks one",
        lambda w: shard({"weight": w.host, "bias": np.ones(8)}, w.mesh, {"weight": ["dp"]}),
        where="shard(dim_specs): ",
        says="the dict of specs has none for ['bias']",
        fix="give every key of x one; [] leaves a value whole",
    ),
    Mistake(
        "a dict of specs with a key too many",
        lambda w: shard({"weight": w.host}, w.mesh, {"weight": ["dp"], "wieght": ["tp"]}),
        where="shard(dim_specs): ",
        says="the dict of specs has ['wieght'], which x has not",
        fix="name keys of x: ['weight']",
    ),
    Mistake(
        "a mapping for a spec",
        lambda w: shard(w.rows, w.mesh, NamedMapping(w.mesh, ["dp"])),
        where="shard(dim_specs=NamedMapping('[dp=2,tp=4] dp')): ",
        says="is not a spec: use one entry per dim, as in ['x', None]",
        shows=ROWS,
        fix="lamina.to_device(x, sharding=mapping) takes a mapping",
    ),
    Mistake(
        "placements for a spec",
        lambda w: shard(w.rows, w.mesh, [Sharded(0), Replicated()]),
        where="shard(dim_specs=[Sharded(0), Replicated()]): ",
        says=["Sharded(0) is not a spec entry", "Replicated() is not a spec entry"],
        shows=ROWS,
        fix="lamina.to_device(x, sharding=PlacementMapping(mesh, placements)) takes placements",
    ),
    Mistake(
        "JAX's spec with unreduced axes, which its entries don't say",
        lambda w: shard(w.rows, w.mesh, jax.sharding.PartitionSpec("dp", unreduced={"tp"})),
        where="shard(dim_specs=P('dp', unreduced={'tp'}",
        says="has unreduced or reduced axes, which no list of entries can carry",
        shows=ROWS,
        fix="name the unreduced axes beside it: partial= of shard, unreduced= of NamedMapping",
    ),
    Mistake(
        "a bad spec in a dict of specs",
        lambda w: shard({"weight": w.host}, w.mesh, {"weight": ["z"]}),
        where="shard(dim_specs=['z']): ",
        says="'z' is not an axis of the mesh [dp=2,tp=4]",
    ),
)
def test_dim_specs(mistake):
    check(mistake)


@table(
    Mistake(
        "no such mesh axis in partial",
        lambda w: shard(w.rows, w.mesh, ["dp"], partial=["z"]),
        where="shard(",
        says="'z' is not an axis of the mesh [dp=2,tp=4]",
        shows=ROWS,
    ),
    Mistake(
        "no such reduce op",
        lambda w: shard(w.rows, w.mesh, ["dp"], partial={"tp": "bogus"}),
        where="shard(",
        says=["partial", "'tp'", "'bogus'", "the reduce op must be one of sum, avg, min, max, prod"],
        shows=ROWS,
    ),
    Mistake(
        "a replicated axis that the spec uses",
        lambda w: shard(w.rows, w.mesh, ["dp"], replicated_axes=["dp"]),
        where="shard(",
        says="replicated_axes: axis 'dp' is used by the spec [dp=2,tp=4] dp",
        shows=ROWS,
    ),
    Mistake(
        "a replicated axis that isn't there",
        lambda w: shard(w.rows, w.mesh, ["dp"], replicated_axes="z"),
        where="shard(",
        says="replicated_axes: 'z' is not an axis of the mesh [dp=2,tp=4]",
        shows=ROWS,
    ),
    Mistake(
        "unknown keywords, all of them, and the known ones",
        lambda w: shard(w.rows, w.mesh, ["dp"], bogus=1, memory=2),
        error=TypeError,
        where="shard() got unknown keywords ['bogus', 'memory']; it takes partial, memory_limit,",
        says="donate",
        fix=None,
    ),
    Mistake(
        "a memory limit below the shard",
        lambda w: shard(w.rows, w.mesh, [None, "tp"], memory_limit=10),
        error=PlanError,
        where="shard(memory_limit",
        says="a shard of [dp=2,tp=4] -,tp alone takes 64 bytes, more than 10",
        fix="raise the limit, or leave it out",
    ),
    Mistake(
        "the same for host data",
        lambda w: shard(w.host, w.mesh, [None, "tp"], memory_limit=10),
        error=PlanError,
        where="shard(memory_limit",
        says="a shard of [dp=2,tp=4] -,tp alone takes 64 bytes, more than 10",
        fix="raise the limit, or leave it out",
    ),
    Mistake(
        "a memory limit that no route keeps",
        lambda w: shard(w.rows, w.mesh, [None, "tp"], memory_limit=65),
        error=PlanError,
        where="shard(memory_limit",
        says=["no route from [dp=2,tp=4] dp,- to [dp=2,tp=4] -,tp keeps a device under 65 bytes", "needs"],
        fix="raise the limit, or leave it out",
    ),
    Mistake(
        "a memory limit that is no number",
        lambda w: shard(w.rows, w.mesh, ["dp"], memory_limit="1 GB"),
        error=TypeError,
        says="shard(memory_limit) must be a number of bytes, not '1 GB'",
        fix=None,
    ),
    Mistake(
        "no such topology",
        lambda w: shard(w.rows, w.mesh, ["dp"], topology="infiniband"),
        error=PlanError,
        where="shard(topology): ",
        says="topology 'infiniband' is unknown: use a Topology, or one of",
        fix="name a preset, or give a Topology such as lamina.calibrate(mesh)",
    ),
    Mistake(
        "replicated axes that are no names",
        lambda w: shard(w.rows, w.mesh, ["dp"], 3),
        error=TypeError,
        says="replicated_axes must be names of mesh axes, not 3",
        fix=None,
    ),
    Mistake(
        "a mesh that is none",
        lambda w: shard(w.rows, (2, 4), ["dp"]),
        error=TypeError,
        says="mesh must be a lamina.DeviceMesh, not tuple (2, 4)",
        fix=None,
    ),
    Mistake(
        "no mesh",
        lambda w: shard(w.rows, None, ["dp"]),
        where="shard(",
        says="no mesh was given, and there is no `with mesh:` around this call",
        fix="mesh",
    ),
    Mistake(
        "text",
        lambda w: shard("hello", w.four, []),
        error=TypeError,
        says="shard(",
        fix=None,
    ),
)
def test_other_arguments(mistake):
    check(mistake)


@table(
    Mistake(
        "a bad spec inside jax.jit",
        lambda w: jax.jit(lambda t: shard(t, w.mesh, ["z"]))(w.rows),
        where="shard(dim_specs=['z']): ",
        says="'z' is not an axis of the mesh [dp=2,tp=4]",
        shows=ROWS,
    ),
    Mistake(
        "to other devices inside jax.jit",
        lambda w: jax.jit(lambda t: shard(t, w.backwards, ["x"]))(w.rows),
        error=TransformError,
        says="inside jax.jit a value can't move between meshes over different devices, or in another order: "
        "DeviceMesh([dp=2,tp=4], on CPU(0)..CPU(7)) to DeviceMesh([x=4], on CPU(3)..CPU(0))",
        fix="move it outside of jax.jit",
    ),
    Mistake(
        "mapped over a split dim",
        lambda w: jax.vmap(lambda t: t)(w.rows),
        error=TransformError,
        where="jax.vmap(in_axes=0): ",
        says="dim 0 of this Tensor is split over ('dp',) in [dp=2,tp=4] dp,-, so its entries lie on different devices",
        fix="map over a whole dim, or lamina.all_gather(x, 0) first",
    ),
    Mistake(
        "mapped over a split, uneven dim",
        lambda w: jax.vmap(lambda t: t)(w.uneven),
        error=TransformError,
        where="jax.vmap(in_axes=0): ",
        says="dim 0 of this Tensor is split over ('x',) in [x=4] x",
        fix="lamina.all_gather(x, 0) first",
    ),
    Mistake(
        "out_axes out of range",
        lambda w: jax.vmap(lambda t: t, in_axes=1, out_axes=4)(w.rows),
        error=TransformError,
        says="jax.vmap(out_axes=4) is out of range for a Tensor of shape (8,)",
        fix=None,
    ),
)
def test_inside_transformations(mistake):
    check(mistake)


@pytest.mark.parametrize(
    "call, facts",
    [
        (
            lambda w: shard(w.rows, w.mesh, ["dp", ("dp", "z")], partial=["w"]),
            ["axis 'dp' is used twice", "'z' is not an axis", "'w' is not an axis"],
        ),
        (
            lambda w: shard(w.rows, w.mesh, ["z"], partial=["w"], replicated_axes=["v"]),
            ["'z' is not an axis", "'w' is not an axis", "'v' is not an axis"],
        ),
        (
            lambda w: shard(w.rows, w.mesh, ["z", None, "dp"]),
            ["'z' is not an axis", "3 entries for a tensor of rank 2"],
        ),
        (
            lambda w: shard(w.rows, w.mesh, [0, 1.5]),
            ["0 is not a spec entry", "1.5 is not a spec entry"],
        ),
    ],
)
def test_all_failures_of_a_call_are_reported(call, facts):
    world, _ = the_world()
    with pytest.raises(lamina.LayoutError) as caught:
        call(world)
    for fact in facts:
        assert fact in str(caught.value)


def test_reshard_is_deprecated_and_works():
    world, _ = the_world()
    with pytest.warns(DeprecationWarning, match="^lamina.reshard is deprecated: use lamina.shard$") as caught:
        moved = reshard(world.rows, world.mesh, [None, "tp"])
    assert moved.layout == shard(world.rows, world.mesh, [None, "tp"]).layout
    assert caught[0].filename == __file__  # it points at the caller


def test_a_bad_reshard_says_what_shard_would():
    world, _ = the_world()
    with pytest.warns(DeprecationWarning), pytest.raises(lamina.LayoutError, match="'z' is not an axis"):
        reshard(world.rows, world.mesh, ["z"])


def test_one_whole_message():
    """As it is printed, once."""
    world, _ = the_world()
    with pytest.raises(lamina.LayoutError) as caught:
        shard(world.rows, world.mesh, ["z", DimSpec("dp", is_open=True)])
    lines = str(caught.value).splitlines()
    assert lines[0] == "shard(dim_specs=['z', DimSpec('dp?')]): 'z' is not an axis of the mesh [dp=2,tp=4]"
    assert lines[-1] == "  fix: one entry per dim: None, one of ['dp', 'tp'], or a tuple of them; each axis once"
    assert "  x: [8, 8] lying as [dp=2,tp=4] dp,-" in lines and "  mesh: [dp=2,tp=4]" in lines
