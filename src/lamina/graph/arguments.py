"""From what users pass to values of a graph, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Number
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.errors import LayoutError, with_fix
from lamina.graph.graph import Graph
from lamina.graph.values import BufferValue, HasBufferValue, HasTensorValue, TensorValue, Value
from lamina.sharding import CPU, Device, DeviceMapping, DeviceMesh, DistributedTensorType, PlacementMapping, TensorType
from lamina.sharding.dims import AlgebraicDim, Dim, SymbolicDim
from lamina.sharding.shape import Shape
from lamina.sharding.shapes import global_shape_from_local
from lamina.tensors import host_array

INLINE = 64  # a constant of at most so many elements stands in the text itself


def as_tensor(
    x: Any, op: str, like: Value | None = None, device: Device | None = None, graph: Graph | None = None
) -> TensorValue:
    """x as a value of the graph.

    Numbers, arrays, dims and shapes become constants on `device`, or on that of `like`, or in host memory.  A Python
    number takes the dtype of `like` where that can hold it.
    """
    if isinstance(x, TensorValue):
        return x
    if isinstance(x, (BufferValue, HasBufferValue)):
        raise TypeError(f"{op}: {x!r} is a buffer; ops.buffer_load(buffer) is its value")
    if isinstance(x, HasTensorValue):
        return x.__tensorvalue__()
    graph = graph or (like.graph if like is not None else Graph.current())
    home = device or (like.device if like is not None else CPU(0))
    if isinstance(x, Shape):
        return graph.add("shape", (), {"dims": tuple(x), "device": home})[0]
    if isinstance(x, (SymbolicDim, AlgebraicDim)):
        return graph.add("dim", (), {"dim": x, "device": home})[0]
    dtype = None
    if isinstance(x, Number) and not isinstance(x, np.generic) and like is not None:
        dtype = jnp.result_type(jnp.dtype(like.dtype), x)
    return constant_of(x, op, home, dtype, graph)


def constant_of(x: Any, op: str, device: Device, dtype: Any, graph: Graph) -> TensorValue:
    """A constant node; small data stands in its attributes, larger data in `graph.constants`."""
    value = host_array(np.from_dlpack(x) if _is_exported(x) else x, op)
    chosen = value.dtype if dtype is None else jnp.dtype(dtype)
    kind = jax.dtypes.canonicalize_dtype(chosen)
    plain = kind.kind in "biufc"
    if value.size <= INLINE and plain:
        data = value.astype(kind).tolist()
        return graph.add("constant", (), {"dtype": kind.name, "value": _frozen(data), "device": device})[0]
    name = f"c{len(graph.constants)}"
    graph.constants[name] = value if value.dtype == kind else value.astype(kind)
    settings = {"dtype": kind.name, "name": name, "shape": tuple(value.shape), "device": device}
    return graph.add("constant", (), settings)[0]


def _is_exported(x: Any) -> bool:
    """Has it DLPack and nothing that numpy likes better?"""
    return not isinstance(x, (np.ndarray, np.generic, jax.Array, Number, list, tuple)) and "__dlpack__" in dir(type(x))


def _frozen(data: Any) -> Any:
    return tuple(map(_frozen, data)) if isinstance(data, list) else data


def as_value(x: Any, op: str, graph: Graph) -> Value:
    """x as a value or a buffer of the graph."""
    if isinstance(x, BufferValue):
        raise TypeError(f"{op}: {x!r} is a buffer, which the caller has already; return ops.buffer_load(buffer)")
    return as_tensor(x, op, graph=graph)


def as_buffers(buffers: Iterable[Any], op: str) -> list[BufferValue]:
    found = []
    for buffer in buffers:
        value = buffer.__buffervalue__() if isinstance(buffer, HasBufferValue) else buffer
        if not isinstance(value, BufferValue):
            raise TypeError(f"{op}: {value!r} is no buffer; Signals(devices).input_types() are the types of some")
        found.append(value)
    return found


def same_device(values: Sequence[Value], op: str) -> None:
    """LayoutError unless all values are on one device."""
    devices = list(dict.fromkeys(value.device for value in values))
    if len(devices) > 1:
        shown = ", ".join(repr(value) for value in values)
        fix = f"ops.transfer_to(x, {devices[0]!r}) the others first"
        raise LayoutError(with_fix(f"{op}: its operands are on different devices: {shown}", fix))


def axis_of(axis: Any, rank: int, op: str) -> int:
    """An axis argument, checked and made non-negative."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise TypeError(f"{op}(axis) must be an integer, not {axis!r}")
    if not -rank <= axis < rank:
        there = f"name an axis from {-rank} to {rank - 1}" if rank else "a value without dims has none"
        raise LayoutError(with_fix(f"{op}(axis={axis}) is out of bounds for a value of rank {rank}", there))
    return int(axis) % rank


def dims_of(shape: Iterable[Any]) -> tuple[Any, ...]:
    """Dims as users write them; -1, which `reshape` works out, stays."""
    return tuple(-1 if isinstance(dim, int) and dim == -1 else Dim(dim) for dim in shape)


def distributed_type(values: Sequence[Value], mesh: DeviceMesh, placements: Any, kind: Any = None) -> Any:
    """The type of the tensor whose local values these are."""
    mapping = placements if isinstance(placements, DeviceMapping) else PlacementMapping(mesh, placements)
    if [value.device for value in values] != list(mesh.devices):
        raise LayoutError(
            with_fix(
                f"distributed(values): they are on {[value.device for value in values]}, not as {mesh!r}",
                "give one value per position of the mesh, row-major",
            )
        )
    shape = global_shape_from_local([tuple(value.shape) for value in values], mesh, mapping)
    found = (kind or DistributedTensorType)(values[0].dtype, shape, mesh, mapping)
    local = [TensorType(value.dtype, value.shape, value.device) for value in values]
    expected = [TensorType(one.dtype, one.shape, one.device) for one in found.local_types]
    if local != expected:
        fact = f"distributed(values): {', '.join(map(str, local))} don't make up {found!r}"
        raise LayoutError(with_fix(fact, f"its local types are {', '.join(map(str, expected))}"))
    return found
