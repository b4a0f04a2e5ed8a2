"""Ops from devices to devices.  `sends` and `arrive` say what each means; `across` does the same in lock-step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp

from lamina.engine import lockstep
from lamina.engine.blocks import combine
from lamina.errors import LayoutError, Problems, with_fix
from lamina.graph.arguments import as_tensor, axis_of
from lamina.graph.devices import as_device
from lamina.graph.nodes import Attributes, Box, Collective, Op
from lamina.graph.ops.groups import (
    check_alike,
    check_axis,
    check_group,
    check_receivers,
    graph_of,
    host,
    participants,
    receivers,
)
from lamina.graph.ops.inferring import typed
from lamina.graph.ops.movement import joined
from lamina.graph.values import TensorValue
from lamina.sharding import TensorType
from lamina.sharding.dims import is_static, split_sizes
from lamina.sharding.placements import ReduceOp
from lamina.sharding.shape import Shape

Kinds = Sequence[TensorType]


# -- the four of the seed ---------------------------------------------------------------------------------------------


def distributed_broadcast(input: Any, signal_buffers: Any, *, devices: Any = None) -> list[TensorValue]:
    """`input` on every device: one value per signal buffer, in their order; its own device is the root.

    Without buffers (`signal_buffers=None`), `devices` names the participants.
    """
    homes, buffers = receivers("distributed_broadcast", signal_buffers, devices)
    root = homes[0] if homes else host()
    value = as_tensor(input, "distributed_broadcast", device=root, graph=graph_of([input, *buffers]))
    return value.graph.add("distributed_broadcast", [value], {"devices": tuple(homes)}, buffers)


def transfer_to(x: Any, device: Any) -> TensorValue:
    """x on another device; on the device where it is, x itself."""
    home = as_device(device, "transfer_to(device)")
    value = as_tensor(x, "transfer_to", device=home)
    return value if value.device == home else value.graph.add("transfer_to", [value], {"device": home})[0]


def allgather(inputs: Iterable[Any], signal_buffers: Any = None, axis: int = 0) -> list[TensorValue]:
    """All inputs one behind the other along `axis`, on every input's device; their sizes along it may differ."""
    values, buffers = participants("allgather", inputs, signal_buffers)
    at = axis_of(axis, values[0].rank, "allgather")
    return values[0].graph.add("allgather", values, {"axis": at}, buffers)


def shard_and_stack(inputs: Sequence[Any], devices: Sequence[Any], axis: int = 0) -> list[TensorValue]:
    """Per device its chunk of every input along `axis`, stacked: [number of inputs, …, d // n, …].

    Where the inputs are host memory, each device is sent just its own chunks, and no copy of a whole input is made.
    """
    given, homes = list(inputs), [as_device(device, "shard_and_stack(devices)") for device in devices]
    problems = Problems()
    if not given:
        problems.add("shard_and_stack: the list of inputs is empty", "give at least one input")
    if not homes:
        problems.add("shard_and_stack: the list of devices is empty", "name at least one device")
    problems.check()
    graph = graph_of(given)
    values = [as_tensor(x, "shard_and_stack", graph=graph) for x in given]
    at = axis_of(axis, values[0].rank, "shard_and_stack")
    return graph.add("shard_and_stack", values, {"axis": at, "devices": tuple(homes)})


# -- beside them ------------------------------------------------------------------------------------------------------


def distributed_scatter(input_chunks: Iterable[Any], signal_buffers: Any, *, devices: Any = None) -> list[TensorValue]:
    """Chunk j to the j-th group of devices: with n buffers and k chunks, device i gets chunk i // (n // k)."""
    chunks = list(input_chunks)
    homes, buffers = receivers("distributed_scatter", signal_buffers, devices)
    if not chunks:
        raise LayoutError(with_fix("distributed_scatter: the list of chunks is empty", "give at least one chunk"))
    root = next((x.device for x in chunks if isinstance(x, TensorValue)), homes[0] if homes else host())
    graph = graph_of([*chunks, *buffers])
    values = [as_tensor(x, "distributed_scatter", device=root, graph=graph) for x in chunks]
    return graph.add("distributed_scatter", values, {"devices": tuple(homes)}, buffers)


def allreduce(op: str, inputs: Iterable[Any], signal_buffers: Any) -> list[TensorValue]:
    """The reduction of all inputs, element by element, on every input's device."""
    values, buffers = participants(f"allreduce.{op}", inputs, signal_buffers)
    return values[0].graph.add(f"allreduce.{op}", values, {}, buffers)


def reduce_scatter(op: str, inputs: Iterable[Any], signal_buffers: Any, axis: int) -> list[TensorValue]:
    """Each device's part along `axis` of the reduction; sizes that don't divide differ by at most 1, larger first."""
    values, buffers = participants(f"reducescatter.{op}", inputs, signal_buffers)
    at = axis_of(axis, values[0].rank, f"reducescatter.{op}")
    return values[0].graph.add(f"reducescatter.{op}", values, {"axis": at}, buffers)


# -- their rules ------------------------------------------------------------------------------------------------------


def _broadcast(types: Kinds, attributes: Attributes) -> list[TensorType]:
    check_receivers("distributed_broadcast", types, attributes["devices"])
    return [TensorType(types[0].dtype, types[0].shape, device) for device in attributes["devices"]]


def _transferred(types: Kinds, attributes: Attributes) -> list[TensorType]:
    return [TensorType(types[0].dtype, types[0].shape, attributes["device"])]


def _scattered(types: Kinds, attributes: Attributes) -> list[TensorType]:
    devices = attributes["devices"]
    problems = Problems()
    if len(devices) % len(types):
        fact = f"distributed_scatter: {len(types)} chunks for {len(devices)} devices"
        problems.add(fact, "the number of devices is a multiple of the number of chunks")
    with problems.caught():
        check_receivers("distributed_scatter", types, devices)
    if len({kind.device for kind in types}) > 1:
        fact = f"distributed_scatter: the chunks are on different devices: {', '.join(map(str, types))}"
        problems.add(fact, "put all chunks on one device, the root")
    problems.check()
    chunks = [types[i // (len(devices) // len(types))] for i in range(len(devices))]
    return [TensorType(kind.dtype, kind.shape, device) for kind, device in zip(chunks, devices, strict=True)]


def _stacked(types: Kinds, attributes: Attributes) -> list[TensorType]:
    (x, *_), axis, devices = types, attributes["axis"], attributes["devices"]
    problems = Problems()
    if len({kind.device for kind in types}) > 1:
        fact = f"shard_and_stack: the inputs are on different devices: {', '.join(map(str, types))}"
        problems.add(fact, "ops.transfer_to the others")
    check_alike("shard_and_stack", types, problems)
    problems.check()
    check_axis("shard_and_stack", types, axis)
    dim, count = x.shape[axis], len(devices)
    if is_static(dim) and dim % count:
        fact = f"shard_and_stack(axis={axis}): {dim} of {x.shape} is not evenly divisible by {count} devices"
        raise LayoutError(with_fix(fact, "pad the inputs, or take a number of devices that divides it"))
    shape = Shape([len(types), *x.shape[:axis], dim // count, *x.shape[axis + 1 :]])
    return [TensorType(x.dtype, shape, device) for device in devices]


def _gathered(types: Kinds, attributes: Attributes) -> list[TensorType]:
    check_group("allgather", types, attributes["axis"])
    check_axis("allgather", types, attributes["axis"])
    whole = joined("allgather", types, attributes["axis"])
    return [typed(whole.dtype, whole.shape, kind) for kind in types]


def _parts(types: Kinds, attributes: Attributes) -> list[TensorType]:
    check_group("reducescatter.sum", types)
    check_axis("reducescatter.sum", types, attributes["axis"])
    axis, shape = attributes["axis"], types[0].shape
    sizes = split_sizes(shape[axis], len(types))
    return [
        typed(kind.dtype, [*shape[:axis], size, *shape[axis + 1 :]], kind)
        for size, kind in zip(sizes, types, strict=True)
    ]


def _box(shape: Shape, axis: int, count: int, i: int) -> Box:
    sizes = [int(size) for size in split_sizes(shape[axis], count)]
    start = sum(sizes[:i])
    return (*[slice(None)] * axis, slice(start, start + sizes[i]))


def _all(types: Kinds, attributes: Attributes, i: int) -> list[tuple[int, Box | None]]:
    return [(j, None) for j in range(len(types))]


def _cut_of_all(types: Kinds, attributes: Attributes, i: int) -> list[tuple[int, Box | None]]:
    count = len(attributes.get("devices", types))
    box = _box(types[0].shape, attributes["axis"], count, i)
    return [(j, box) for j in range(len(types))]


def _first(attributes: Attributes, parts: list[Any], i: int) -> Any:
    return parts[0]


def _equal_shapes(types: Kinds, attributes: Attributes) -> bool:
    return len(types) > 1 and len({kind.shape for kind in types}) == 1 and 0 not in types[0].shape


def _divides(types: Kinds, attributes: Attributes) -> bool:
    return _equal_shapes(types, attributes) and types[0].shape[attributes["axis"]] % len(types) == 0


def _reduction(op: ReduceOp) -> Op:
    name = f"allreduce.{op}"

    def infer(types: Kinds, attributes: Attributes) -> list[TensorType]:
        check_group(name, types)
        if op is not ReduceOp.SUM and types[0].dtype.startswith("complex"):
            raise LayoutError(with_fix(f"{name}: complex numbers have no order", "reduce their absolute values"))
        return [typed(kind.dtype, kind.shape, kind) for kind in types]

    return Collective(
        infer,
        _all,
        lambda attributes, parts, i: combine(jnp.stack(parts), op),
        _equal_shapes,
        lambda attributes, x, axes, sizes: lockstep.all_reduce(x, op, axes, sizes),
    )


RULES: dict[str, Op] = {
    "distributed_broadcast": Collective(_broadcast, lambda types, attributes, i: [(0, None)], _first),
    "distributed_scatter": Collective(
        _scattered,
        lambda types, attributes, i: [(i // (len(attributes["devices"]) // len(types)), None)],
        _first,
    ),
    "transfer_to": Collective(_transferred, lambda types, attributes, i: [(0, None)], _first),
    "allgather": Collective(
        _gathered,
        _all,
        lambda attributes, parts, i: jnp.concatenate(parts, attributes["axis"]),
        _equal_shapes,
        lambda attributes, x, axes, sizes: lockstep.all_gather(x, attributes["axis"], axes),
    ),
    "shard_and_stack": Collective(_stacked, _cut_of_all, lambda attributes, parts, i: jnp.stack(parts)),
    **{f"allreduce.{op}": _reduction(op) for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN)},
    "reducescatter.sum": Collective(
        _parts,
        _cut_of_all,
        lambda attributes, parts, i: combine(jnp.stack(parts), ReduceOp.SUM),
        _divides,
        lambda attributes, x, axes, sizes: lockstep.reduce_scatter(x, attributes["axis"], axes, sizes),
    ),
}
FUNCTIONS = (
    distributed_broadcast, transfer_to, allgather, shard_and_stack, distributed_scatter,
)  # fmt: skip
