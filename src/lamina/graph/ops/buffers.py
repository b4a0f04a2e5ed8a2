"""Mutable buffers: read, written whole or in part, in the order in which the graph says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import LayoutError, with_fix
from lamina.graph.arguments import as_buffers, as_tensor, same_device
from lamina.graph.nodes import Attributes, Mutation, Op
from lamina.graph.ops.inferring import typed
from lamina.graph.ops.slices import frozen_index, sliced_shape, thawed_index
from lamina.graph.values import TensorValue
from lamina.sharding import TensorType


def buffer_load(x: Any) -> TensorValue:
    """What the buffer holds now."""
    (buffer,) = as_buffers([x], "buffer_load")
    return buffer.graph.add("buffer_load", [buffer])[0]


def buffer_store(destination: Any, source: Any) -> None:
    """From now on the buffer holds `source`."""
    _store("buffer_store", destination, source, {})


def buffer_store_slice(destination: Any, source: Any, indices: Any) -> None:
    """From now on the buffer holds `source` where `indices` says, and elsewhere what it held."""
    _store("buffer_store_slice", destination, source, {"index": frozen_index(indices)})


def _store(op: str, destination: Any, source: Any, attributes: Attributes) -> None:
    (buffer,) = as_buffers([destination], op)
    value = as_tensor(source, op, buffer)
    same_device([buffer, value], op)
    buffer.graph.add(op, [buffer, value], attributes)


def _stored(op: str, shape: Any, types: Sequence[Any]) -> list[TensorType]:
    buffer, value = types
    if (value.shape, value.dtype) != (shape, buffer.dtype):
        fact = f"{op}: {value.dtype}{value.shape} doesn't fit {buffer.dtype}{shape} of the buffer"
        raise LayoutError(with_fix(fact, "ops.cast, ops.broadcast_to or ops.rebind the value first"))
    return []


RULES: dict[str, Op] = {
    "buffer_load": Mutation(lambda types, attributes: [typed(types[0].dtype, types[0].shape, types[0])]),
    "buffer_store": Mutation(
        lambda types, attributes: _stored("buffer_store", types[0].shape, types), lambda attributes, held, x: x
    ),
    "buffer_store_slice": Mutation(
        lambda types, attributes: _stored(
            "buffer_store_slice", sliced_shape(types[0].shape, attributes["index"]), types
        ),
        lambda attributes, held, x: held.at[thawed_index(attributes["index"])].set(x),
    ),
}
FUNCTIONS = (
    buffer_load, buffer_store, buffer_store_slice,
)  # fmt: skip
