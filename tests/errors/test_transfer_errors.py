"""What can be wrong with a call of `to_device`, `transfer_to`, `cpu`, `gpu` and `accelerator`."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import lamina
from lamina import (
    CPU,
    Accelerator,
    ConversionError,
    DeviceError,
    DimSpec,
    NamedMapping,
    PlacementMapping,
    Replicated,
    Sharded,
    TensorLayout,
    TransformError,
    to_device,
)
from tests.errors.catalogue import Mistake, check, table, the_world

no_accelerator = pytest.mark.skipif(lamina.accelerator_count() > 0, reason="there is an accelerator")


def jax_sharding(spec, kind=AxisType.Auto) -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices()).reshape(2, 4), ("dp", "tp"), axis_types=(kind,) * 2), spec)


@table(
    Mistake(
        "both a device and a sharding",
        lambda w: to_device(w.rows, CPU(1), sharding=w.split(w.mesh, "dp")),
        where="to_device(device=CPU(1), sharding=NamedMapping('[dp=2,tp=4] dp')): ",
        says="give one of them, not both",
        fix=None,
    ),
    Mistake(
        "a mapping that isn't resolved: an open dim",
        lambda w: to_device(w.rows, sharding=NamedMapping(w.mesh, [DimSpec("dp", is_open=True)])),
        where="to_device(sharding=NamedMapping('[dp=2,tp=4] dp?')): ",
        says="leaves dims open or to propagation",
        fix="close",
    ),
    Mistake(
        "a mapping that isn't resolved: a priority",
        lambda w: to_device(w.rows, NamedMapping(w.mesh, ["dp"], priorities=[1])),
        where="to_device(device=NamedMapping('[dp=2,tp=4] dp!1')): ",
        says="leaves dims open or to propagation",
        fix="close",
    ),
    Mistake(
        "a mapping of more dims",
        lambda w: to_device(np.ones(3), w.split(w.mesh, "dp", "tp")),
        where="to_device(device=",
        says="the spec [dp=2,tp=4] dp,tp has 2 entries for a tensor of rank 1",
        shows="shape: (3,)",
    ),
    Mistake(
        "placements outside the rank",
        lambda w: to_device(w.rows, sharding=PlacementMapping(w.mesh, [Sharded(2), Replicated()])),
        where="to_device(sharding=",
        says="Sharded(2) on mesh axis 'dp' is out of range for a tensor of rank 2",
        shows="[dp=2,tp=4]",
    ),
    Mistake(
        "the layout of another tensor",
        lambda w: to_device(w.rows, sharding=TensorLayout("float32", (4, 8), w.split(w.mesh, "dp"))),
        where="to_device(sharding=TensorLayout(float32[4,8], '[dp=2,tp=4] dp,-')): ",
        says="is the layout of another tensor: its shape is not (8, 8)",
        fix="give its .mapping, which fits every shape of that rank",
    ),
    Mistake(
        "JAX's sharding that leaves a dim to propagation",
        lambda w: to_device(w.rows, sharding=jax_sharding(P("dp", P.UNCONSTRAINED))),
        error=ConversionError,
        where="to_device(sharding=NamedSharding(",
        says="leaves a dim to JAX's propagation",
        fix="name its axes, or None for a whole dim",
    ),
    Mistake(
        "JAX's sharding with unreduced axes",
        lambda w: to_device(w.rows, sharding=jax_sharding(P("dp", unreduced={"tp"}), AxisType.Explicit)),
        error=ConversionError,
        where="to_device(sharding=NamedSharding(",
        says="has unreduced axes, whose pieces JAX keeps out of reach",
        fix="reduce it in JAX, or name a lamina.NamedMapping(mesh, spec, unreduced=...)",
    ),
    Mistake(
        "an abstract mesh",
        lambda w: to_device(w.rows, sharding=w.split(w.abstract, "dp")),
        where="to_device(sharding=",
        says="DeviceMesh([dp=2,tp=4], abstract) has no devices: it can be planned for, but can't hold a tensor",
        fix="DeviceMesh",
    ),
    Mistake(
        "no such CPU device",
        lambda w: to_device(w.rows, CPU(99)),
        error=DeviceError,
        where="to_device(device=CPU(99)): ",
        says="there is no such device, only CPU(0)..CPU(7)",
        fix='jax.config.update("jax_num_cpu_devices", 100) before anything uses JAX',
    ),
    Mistake(
        "a device by name",
        lambda w: to_device(w.rows, "cpu"),
        error=TypeError,
        says="to_device(device): 'cpu' is neither a device (lamina.CPU(i), lamina.Accelerator(i), a jax.Device) nor "
        "a mapping (a lamina DeviceMapping, a jax NamedSharding)",
        fix=None,
    ),
    Mistake(
        "a mesh for a mapping",
        lambda w: to_device(w.rows, sharding=w.mesh),
        error=TypeError,
        says="to_device(sharding): DeviceMesh([dp=2,tp=4], on CPU(0)..CPU(7)) is neither a device",
        fix=None,
    ),
    Mistake(
        "no such memory kind",
        lambda w: to_device(w.rows, sharding=NamedMapping(w.mesh, ["dp"], memory_kind="nowhere")),
        error=DeviceError,
        where="to_device(sharding=",
        says="nowhere",
    ),
    Mistake(
        "to other devices inside jax.jit",
        lambda w: jax.jit(lambda t: to_device(t, sharding=w.split(w.backwards, "x")))(w.rows),
        error=TransformError,
        says="inside jax.jit a value can't move between meshes over different devices, or in another order",
        fix="move it outside of jax.jit",
    ),
)
def test_to_device(mistake):
    check(mistake)


@no_accelerator
@table(
    Mistake(
        "gpu",
        lambda w: lamina.gpu(w.rows),
        error=DeviceError,
        says="this process sees no accelerator, only CPU(0)..CPU(7)",
    ),
    Mistake(
        "accelerator",
        lambda w: lamina.accelerator(w.rows, 3),
        error=DeviceError,
        says="Accelerator(3): this process sees no accelerator, only CPU(0)..CPU(7)",
    ),
    Mistake(
        "to_device",
        lambda w: to_device(w.host, Accelerator(0)),
        error=DeviceError,
        where="to_device(device=Accelerator(0)): ",
        says="this process sees no accelerator, only CPU(0)..CPU(7)",
    ),
)
def test_no_accelerator_lists_the_devices_there_are(mistake):
    message = check(mistake)
    assert message.count("Accelerator(0): Accelerator(0)") == 0, "the device is named twice in a row"


def test_a_bad_accelerator_id():
    with pytest.raises(lamina.LayoutError, match=r"^Accelerator\(id=-1\): the id must be an integer >= 0"):
        lamina.accelerator(1.0, -1)


def test_transfer_to_is_the_same():
    world, _ = the_world()
    with pytest.raises(lamina.LayoutError, match="give one of them, not both"):
        lamina.transfer_to(world.rows, CPU(0), sharding=world.split(world.mesh, "dp"))


def test_one_bad_leaf_of_a_pytree_leaves_the_others_usable():
    world, before = the_world()
    with pytest.raises(TypeError):
        to_device({"good": world.rows, "bad": "hello"}, CPU(1))
    np.testing.assert_array_equal(world.rows.numpy(), before["rows"])
