"""Meshes and devices that can't be, or that aren't there."""

from __future__ import annotations

import pytest

from lamina import (
    CPU,
    Accelerator,
    ConversionError,
    DeviceError,
    DeviceMesh,
    DimSpec,
    NamedMapping,
    PlacementMapping,
    Replicated,
    Sharded,
    TensorLayout,
    from_shards,
    shard,
)
from lamina.errors import LaminaError, LayoutError
from tests.errors.catalogue import Mistake, World, check, table


@table(
    Mistake(
        "more positions than devices",
        lambda w: DeviceMesh.create((4, 4), ("x", "y")),
        error=DeviceError,
        says="a mesh [x=4,y=4] needs 16 devices, but there are 8: [CPU(0), CPU(1), CPU(2), CPU(3), CPU(4), CPU(5), "
        "CPU(6), CPU(7)]",
        fix="DeviceMesh.simulated((4, 4), ('x', 'y')) needs only one device; "
        'or, on a CPU, jax.config.update("jax_num_cpu_devices", 16) before anything uses JAX',
    ),
    Mistake(
        "sizes and names of different lengths",
        lambda w: DeviceMesh.create((2, 4), ("x",)),
        says="mesh_shape (2, 4) has 2 entries, but axis_names ('x',) has 1",
        fix="give every axis one size and one name",
    ),
    Mistake(
        "an axis of size 0",
        lambda w: DeviceMesh.create((0, 4), ("x", "y")),
        says="axis 'x' has size 0; sizes are integers >= 1",
        fix="an axis of size 1 does nothing",
    ),
    Mistake(
        "several bad axes",
        lambda w: DeviceMesh.simulated((2, -4, 1.5), ("x", "y", "1z")),
        says=["axis name '1z' is not an identifier", "axis 'y' has size -4", "axis '1z' has size 1.5"],
        fix="name axes as Python variables, such as 'dp'; an axis of size 1 does nothing",
    ),
    Mistake(
        "one name for two axes",
        lambda w: DeviceMesh.abstract((2, 2), ("x", "x")),
        says="axis name 'x' stands twice in ('x', 'x')",
        fix="give each axis a name of its own",
    ),
    Mistake(
        "fewer devices than positions",
        lambda w: DeviceMesh([CPU(0), CPU(1)], (3,), ("x",)),
        says="mesh [x=3] has 3 positions, but 2 devices were given",
        fix="give one device per position, row-major",
    ),
    Mistake(
        "a device at two positions",
        lambda w: DeviceMesh([CPU(0), CPU(0), CPU(1)], (3,), ("x",)),
        says="mesh [x=3]: CPU(0) stands at 2 positions; "
        "devices must be all distinct, or all the same (a simulated mesh)",
        fix="DeviceMesh.simulated((3,), ('x',)) has one device play all positions",
    ),
    Mistake(
        "numbers for devices",
        lambda w: DeviceMesh([0, 1], (2,), ("x",)),
        error=TypeError,
        says="mesh [x=2]: devices must be lamina.CPU(i) or lamina.Accelerator(i), not 0",
        fix=None,
    ),
    Mistake(
        "a sub-mesh of an unknown axis",
        lambda w: w.mesh["z"],
        says="'z' is not an axis of the mesh [dp=2,tp=4]",
        fix="name one of dp, tp",
    ),
    Mistake(
        "a device id below 0",
        lambda w: CPU(-1),
        says="CPU(id=-1): the id must be an integer >= 0",
        fix=None,
    ),
    Mistake(
        "no mesh anywhere",
        lambda w: NamedMapping(spec=["x"]),
        says="no mesh was given, and there is no `with mesh:` around this call",
        fix="give a lamina.DeviceMesh, or call this inside of `with mesh:`",
    ),
    Mistake(
        "a position that isn't there",
        lambda w: w.mesh.device_coord(8, "dp"),
        says="device 8 is out of range for [dp=2,tp=4] with 8 devices",
        fix="count from 0 to 7, row-major",
    ),
    Mistake(
        "an axis number that isn't there",
        lambda w: w.mesh.axis_size(2),
        says="mesh axis 2 is out of range for [dp=2,tp=4] with 2 axes",
        fix="count from -2 to 1, or name one of dp, tp",
    ),
)
def test_meshes_that_cannot_be(mistake):
    check(mistake)


@table(
    Mistake(
        "an unknown axis",
        lambda w: NamedMapping(w.mesh, ["z"]),
        where="NamedMapping(spec=['z']): ",
        says="'z' is not an axis of the mesh [dp=2,tp=4]",
        shows="mesh: [dp=2,tp=4]",
        fix="one entry per dim: None, one of ['dp', 'tp'], or a tuple of them; each axis once",
    ),
    Mistake(
        "everything at once",
        lambda w: NamedMapping(w.mesh, ["dp", "dp", 3], unreduced={"tp": "bogus"}, priorities=[1]),
        where="NamedMapping(spec=['dp', 'dp', 3], unreduced={'tp': 'bogus'}): ",
        says=["3 is not a spec entry: use None, an axis name", "unreduced['tp']='bogus': the reduce op must be one of"],
        fix=None,
    ),
    Mistake(
        "one axis split and unreduced",
        lambda w: NamedMapping(w.mesh, ["dp"], unreduced="dp"),
        where="NamedMapping(spec=['dp'], unreduced='dp'): ",
        says="axis 'dp' is used twice: by dim 0 and as unreduced",
        shows="mesh: [dp=2,tp=4]",
        fix="each axis once",
    ),
    Mistake(
        "too few placements",
        lambda w: PlacementMapping(w.mesh, [Sharded(0)]),
        says="1 placements [Sharded(0)] for the 2 axes of the mesh [dp=2,tp=4]",
        fix="give one per mesh axis, Replicated() where it does nothing",
    ),
    Mistake(
        "a dim that no tensor of the rank has",
        lambda w: PlacementMapping(w.mesh, [Sharded(2), Replicated()]).to_named_sharding(2),
        says="Sharded(2) on mesh axis 'dp' is out of range for a tensor of rank 2",
        fix="name a dim from -2 to 1",
    ),
    Mistake(
        "more entries than dims",
        lambda w: TensorLayout("float32", (8,), NamedMapping(w.mesh, ["dp", "tp"])),
        says="the spec [dp=2,tp=4] dp,tp has 2 entries for a tensor of rank 1",
        fix="one entry per dim",
    ),
    Mistake(
        "an order that placements can't say",
        lambda w: NamedMapping(w.mesh, [("tp", "dp")]).to_placements(),
        error=ConversionError,
        says="dim 0 is split over ('tp', 'dp'), but placements can only say the mesh's own order ('dp', 'tp')",
        fix="keep the named spec, or use a mesh with the axes in the order ('tp', 'dp')",
    ),
    Mistake(
        "all that placements can't say",
        lambda w: NamedMapping(w.mesh, [DimSpec("dp", True, 2)], memory_kind="pinned_host").to_placements(),
        error=ConversionError,
        says=["dim 0 is open", "dim 0 has priority 2", "memory kind 'pinned_host'"],
        fix="close it: DimSpec(axes); leave out the priorities: they matter to propagation only; keep the named spec",
    ),
    Mistake(
        "placements on a mesh that nests them the other way",
        lambda w: PlacementMapping(w.mesh, [Sharded(0), Sharded(0)]).to_mesh(w.mesh["tp", "dp"]),
        error=ConversionError,
        says="'dp' nests outside 'tp' in PlacementMapping([dp=2,tp=4], [Sharded(0), Sharded(0)])",
        shows="[tp=4,dp=2]",
        fix="convert it by to_named_sharding(rank) first: a named spec keeps the order",
    ),
)
def test_mappings_that_cannot_be(mistake):
    check(mistake)


def missing(*devices) -> DeviceMesh:
    return DeviceMesh(devices, (len(devices),), ("x",))


@table(
    Mistake(
        "an abstract mesh can't hold data",
        lambda w: shard(w.host, w.abstract, ["dp"]),
        where="shard(",
        says="DeviceMesh([dp=2,tp=4], abstract) has no devices: it can be planned for, but can't hold a tensor",
        fix="DeviceMesh",  # .create or .simulated
    ),
    Mistake(
        "shards for an abstract mesh",
        lambda w: from_shards([w.host] * 8, NamedMapping(w.abstract)),
        where="from_shards(",
        says="DeviceMesh([dp=2,tp=4], abstract) has no devices: it can be planned for, but can't hold a tensor",
        fix="DeviceMesh",
    ),
    Mistake(
        "a mesh over CPU devices that aren't there",
        lambda w: shard(w.host, missing(CPU(20), CPU(21)), ["x"]),
        error=DeviceError,
        where="shard(",
        says="CPU(20): there is no such device, only CPU(0)..CPU(7)",
        fix="jax_num_cpu_devices",
    ),
    Mistake(
        "a tensor to a mesh that isn't there",
        lambda w: shard(w.rows, missing(CPU(20), CPU(21)), ["x"]),
        error=DeviceError,
        where="shard(",
        says="CPU(20): there is no such device, only CPU(0)..CPU(7)",
        fix="jax_num_cpu_devices",
    ),
    Mistake(
        "a mesh over accelerators that aren't there",
        lambda w: shard(w.host, missing(Accelerator(0), Accelerator(1)), ["x"]),
        error=DeviceError,
        where="shard(",
        says="Accelerator(0): this process sees no accelerator, only CPU(0)..CPU(7)",
        fix="DeviceMesh",
    ),
)
def test_meshes_that_are_not_there(mistake):
    message = check(mistake)
    assert not message.startswith("shard(memory_limit)"), "the mistake is in the mesh, not in the memory limit"


def test_all_layout_errors_are_value_errors_and_lamina_errors():
    for error in (DeviceError, LayoutError):
        assert issubclass(error, LaminaError) and issubclass(error, ValueError)


def test_the_world_is_what_the_catalogue_says():
    world = World()
    assert str(world.rows.layout) == "[dp=2,tp=4] dp,-"
    assert str(world.sums.layout) == "[dp=2,tp=4] dp,- +sum(tp)"
    with pytest.raises(AssertionError):  # the check can fail
        check(Mistake("no mistake at all", lambda w: w.mesh["z"], says="something else", fix=None))
