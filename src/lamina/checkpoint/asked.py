"""One leaf of what is asked for, beside the record of what was saved: the target, or why they don't fit."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from lamina.checkpoint.records import KEY, PYTHON, Record
from lamina.checkpoint.targets import AsArray, AsNumpy, AsPython, AsTensor, Target
from lamina.engine import compat, inventory
from lamina.engine.storage import Storage, whole
from lamina.errors import CheckpointError, with_fix
from lamina.ops.arguments import storage_for
from lamina.sharding import Device, DeviceMapping, DeviceMesh, TensorLayout
from lamina.sharding.dtypes import dtype_name
from lamina.tensors import Tensor

PLACES = (DeviceMapping, Device, Sharding)  # these say where; all but a TensorLayout leave the shape to the checkpoint

_FITS = "ask for the shape and the dtype that were saved, and change them afterwards"
_NUMBERS = {bool: "b", int: "iu", float: "f", complex: "c"}


def host_target(record: Record) -> Target:
    """On the host, for who doesn't say where; random keys are JAX's, on the default device."""
    if record.kind == KEY:
        return AsArray(_default(), record.keys)
    return AsPython() if record.kind == PYTHON else AsNumpy()


def target_of(leaf: Any, record: Record) -> Target:
    """What becomes of a saved leaf where `leaf` stands in the tree that is asked for."""
    if compat.is_tracer(leaf._array if isinstance(leaf, Tensor) else leaf):
        raise TypeError("a traced value can't be loaded into; load outside of jax.jit, jax.grad and jax.vmap")
    match leaf:
        case Tensor():
            _check(record, f"{leaf.dtype.name}{_dims(leaf.shape)} as {leaf.layout}", leaf.dtype, leaf.shape)
            return AsTensor(leaf._held)
        case TensorLayout():
            _check(record, f"{leaf.dtype}{_dims(leaf.shape)} as {leaf.layout()}", leaf.dtype, leaf.shape)
            return AsTensor(_lying(leaf.mapping, record))
        case DeviceMapping() | Device() | Sharding():
            return _at(leaf, record)
        case jax.Array() | jax.ShapeDtypeStruct():
            return _like_array(leaf, record)
        case np.ndarray() | np.generic():
            kind = (
                f"{leaf.dtype.name}{_dims(leaf.shape)}, a numpy {'array' if isinstance(leaf, np.ndarray) else 'scalar'}"
            )
            _check(record, kind, leaf.dtype, leaf.shape)
            return AsNumpy(scalar=isinstance(leaf, np.generic))
        case bool() | int() | float() | complex() | str():
            return _like_python(leaf, record)
    raise TypeError(
        f"can't be loaded into {leaf!r} of type {type(leaf).__name__}: ask for a Tensor, a mapping, a device, "
        "an array, a jax Sharding, a jax.ShapeDtypeStruct or a Python value"
    )


def _check(record: Record, asked: str, dtype: Any, shape: tuple[Any, ...]) -> None:
    is_array = record.kind not in (KEY, PYTHON)
    if not (is_array and record.dtype == dtype_name(dtype) and record.shape == tuple(shape)):
        raise CheckpointError(with_fix(f"asked for {asked}, but saved is {record}", _FITS))


def _dims(shape: tuple[Any, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _default() -> Sharding:
    return SingleDeviceSharding(inventory.resolve(inventory.default_device()))


def _lying(mapping: DeviceMapping, record: Record) -> Storage:
    if not mapping.is_fully_resolved:
        fact = f"{mapping!r} leaves dims open or to propagation"
        raise CheckpointError(with_fix(fact, "close its dims: name their axes, without `?` and priorities"))
    return storage_for(mapping, record.shape)


def _at(place: Any, record: Record) -> Target:
    """At a place that has no shape of its own.  Random keys are copied to all of its devices."""
    if record.kind == PYTHON:
        return AsPython()
    if isinstance(place, Sharding):
        return AsArray(place, record.keys)
    if record.kind == KEY:
        mesh = place.mesh if isinstance(place, DeviceMapping) else DeviceMesh.single(place)
        return AsArray(whole(mesh, record.shape).sharding, record.keys)
    if isinstance(place, Device):
        return AsTensor(whole(DeviceMesh.single(place), record.shape))
    return AsTensor(_lying(place, record))


def _like_array(leaf: Any, record: Record) -> Target:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        fact = f"asked for {leaf.dtype}{_dims(leaf.shape)}, but saved is {record}"
        if record.kind != KEY:
            raise CheckpointError(with_fix(fact, _FITS))
        saved = jax.eval_shape(
            partial(jax.random.wrap_key_data, impl=record.keys), jax.ShapeDtypeStruct(record.shape, record.element)
        )
        if (saved.dtype, saved.shape) != (leaf.dtype, leaf.shape):
            raise CheckpointError(with_fix(fact, _FITS))
        known = isinstance(leaf, jax.Array)
        return AsArray(jax.random.key_data(leaf).sharding if known else _default(), record.keys)
    _check(record, f"{leaf.dtype.name}{_dims(leaf.shape)}, a jax array", leaf.dtype, leaf.shape)
    return AsArray(leaf.sharding or _default())


def _like_python(leaf: Any, record: Record) -> Target:
    if record.kind == PYTHON:
        fits = type(record.value) is type(leaf)
    else:
        fits = record.kind != KEY and record.shape == () and record.element.kind in _NUMBERS.get(type(leaf), "")
    if not fits:
        fact = f"asked for a Python {type(leaf).__name__}, but saved is {record}"
        raise CheckpointError(with_fix(fact, "ask for what was saved, and change it afterwards"))
    return AsPython()
