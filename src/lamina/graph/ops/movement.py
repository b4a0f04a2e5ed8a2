"""Ops that move elements on one device and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lamina.errors import LayoutError, with_fix
from lamina.graph.arguments import as_tensor, axis_of, dims_of, same_device
from lamina.graph.nodes import Attributes, Local, Op
from lamina.graph.ops.inferring import broadcast, dtype_of, typed
from lamina.graph.ops.slices import frozen_index, sliced_shape, thawed_index
from lamina.graph.values import TensorValue
from lamina.sharding import TensorType
from lamina.sharding.dims import is_static
from lamina.sharding.shape import Shape

Kinds = Sequence[TensorType]


def _one(name: str, x: Any, **attributes: Any) -> TensorValue:
    value = as_tensor(x, name)
    return value.graph.add(name, [value], attributes)[0]


def reshape(x: Any, shape: Sequence[Any]) -> TensorValue:
    """With other dims, row-major; one of them may be -1."""
    return _one("reshape", x, shape=dims_of(shape))


def _reshape(types: Kinds, attributes: Attributes) -> list[TensorType]:
    (x,), target = types, list(attributes["shape"])
    if target.count(-1) > 1:
        raise LayoutError(with_fix(f"reshape(shape={tuple(target)}): -1 stands twice", "leave one dim open at most"))
    if -1 in target:
        known = Shape(dim for dim in target if dim != -1).size
        rest = 0 if known == 0 else x.shape.size // known
        target[target.index(-1)] = rest
    if Shape(target).size != x.shape.size:
        fact = f"reshape: {x.shape} has {x.shape.size} elements, {Shape(target)} has {Shape(target).size}"
        raise LayoutError(with_fix(fact, "keep the number of elements; ops.rebind(x, shape) renames symbolic dims"))
    return [typed(x.dtype, target, x)]


def rebind(x: Any, shape: Sequence[Any]) -> TensorValue:
    """x, with the promise that its dims are these; checked when the symbols are bound."""
    return _one("rebind", x, shape=dims_of(shape))


def _rebind(types: Kinds, attributes: Attributes) -> list[TensorType]:
    (x,), target = types, Shape(attributes["shape"])
    fits = len(target) == len(x.shape) and all(
        a == b or not (is_static(a) and is_static(b)) for a, b in zip(target, x.shape, strict=True)
    )
    if not fits:
        raise LayoutError(with_fix(f"rebind: {x.shape} is not {target}", "give the dims that the value has"))
    return [typed(x.dtype, target, x)]


def broadcast_to(x: Any, shape: Sequence[Any]) -> TensorValue:
    """x repeated along dims of 1, and along new dims in front."""
    return _one("broadcast_to", x, shape=dims_of(shape))


def _broadcast_to(types: Kinds, attributes: Attributes) -> list[TensorType]:
    target = Shape(attributes["shape"])
    if broadcast("broadcast_to", [types[0].shape, target]) != target:
        fact = f"broadcast_to: {types[0].shape} doesn't broadcast to {target}"
        raise LayoutError(with_fix(fact, "a dim stays, or grows from 1"))
    return [typed(types[0].dtype, target, types[0])]


def permute(x: Any, dims: Sequence[int]) -> TensorValue:
    """The dims in another order: result dim i is dim `dims[i]` of x."""
    value = as_tensor(x, "permute")
    order = tuple(axis_of(dim, value.rank, "permute") for dim in dims)
    if sorted(order) != list(range(value.rank)):
        fact = f"permute(dims={tuple(dims)}) is no order of the {value.rank} dims of {value.shape}"
        raise LayoutError(with_fix(fact, "name each dim once"))
    return value.graph.add("permute", [value], {"dims": order})[0]


def transpose(x: Any, axis_1: int = -1, axis_2: int = -2) -> TensorValue:
    """With two dims swapped."""
    value = as_tensor(x, "transpose")
    first, second = axis_of(axis_1, value.rank, "transpose"), axis_of(axis_2, value.rank, "transpose")
    order = list(range(value.rank))
    order[first], order[second] = order[second], order[first]
    return value.graph.add("permute", [value], {"dims": tuple(order)})[0]


def squeeze(x: Any, axis: int) -> TensorValue:
    """Without a dim of 1."""
    value = as_tensor(x, "squeeze")
    return _one("squeeze", value, axis=axis_of(axis, value.rank, "squeeze"))


def _squeeze(types: Kinds, attributes: Attributes) -> list[TensorType]:
    shape, axis = list(types[0].shape), attributes["axis"]
    if shape[axis] != 1:
        fact = f"squeeze(axis={axis}): that dim of {types[0].shape} is {shape[axis]}, not 1"
        raise LayoutError(with_fix(fact, "only dims of 1 can go"))
    return [typed(types[0].dtype, shape[:axis] + shape[axis + 1 :], types[0])]


def unsqueeze(x: Any, axis: int) -> TensorValue:
    """With a new dim of 1 at this place of the result."""
    value = as_tensor(x, "unsqueeze")
    return _one("unsqueeze", value, axis=axis_of(axis, value.rank + 1, "unsqueeze"))


def _unsqueeze(types: Kinds, attributes: Attributes) -> list[TensorType]:
    shape, axis = list(types[0].shape), attributes["axis"]
    return [typed(types[0].dtype, [*shape[:axis], 1, *shape[axis:]], types[0])]


def _several(name: str, values: Sequence[Any], axis: int, new: int = 0) -> TensorValue:
    if not values:
        raise LayoutError(with_fix(f"{name}: the list of values is empty", "give at least one"))
    like = next((value for value in values if isinstance(value, TensorValue)), None)
    tensors = [as_tensor(value, name, like) for value in values]
    same_device(tensors, name)
    at = axis_of(axis, tensors[0].rank + new, name)
    return tensors[0].graph.add(name, tensors, {"axis": at})[0]


def concat(values: Sequence[Any], axis: int = 0) -> TensorValue:
    """The values one behind the other along an axis that they have."""
    return _several("concat", values, axis)


def joined(op: str, types: Kinds, axis: int) -> TensorType:
    """The type of a concatenation: other dims equal, those along the axis added up."""
    first = types[0]
    for kind in types:
        if len(kind.shape) != len(first.shape) or any(
            a != b for d, (a, b) in enumerate(zip(kind.shape, first.shape, strict=True)) if d != axis
        ):
            fact = f"{op}(axis={axis}): {first.shape} and {kind.shape} differ in other dims than that axis"
            raise LayoutError(with_fix(fact, "only the dim along the axis may differ"))
    shape = list(first.shape)
    shape[axis] = sum(kind.shape[axis] for kind in types)
    return typed(dtype_of(_promoted, op, *(kind.dtype for kind in types)), shape, first)


def _promoted(*arrays: Any) -> Any:
    return jnp.zeros((), jnp.result_type(*arrays))


def stack(values: Sequence[Any], axis: int = 0) -> TensorValue:
    """The values along a new axis."""
    return _several("stack", values, axis, new=1)


def _stack(types: Kinds, attributes: Attributes) -> list[TensorType]:
    axis, shapes = attributes["axis"], list(dict.fromkeys(kind.shape for kind in types))
    if len(shapes) > 1:
        fact = f"stack: the values have different shapes: {', '.join(map(str, shapes))}"
        raise LayoutError(with_fix(fact, "give them one shape"))
    shape = [*shapes[0][:axis], len(types), *shapes[0][axis:]]
    return [typed(dtype_of(_promoted, "stack", *(kind.dtype for kind in types)), shape, types[0])]


def split(x: Any, split_sizes: Sequence[Any], axis: int = 0) -> list[TensorValue]:
    """x in parts of these sizes along an axis."""
    value = as_tensor(x, "split")
    settings = {"sizes": dims_of(split_sizes), "axis": axis_of(axis, value.rank, "split")}
    return value.graph.add("split", [value], settings)


def _split(types: Kinds, attributes: Attributes) -> list[TensorType]:
    (x,), axis, sizes = types, attributes["axis"], attributes["sizes"]
    if sum(sizes) != x.shape[axis]:
        fact = f"split(axis={axis}): the sizes {tuple(map(str, sizes))} add up to {sum(sizes)}, not to {x.shape[axis]}"
        raise LayoutError(with_fix(fact, "give sizes that make up the dim"))
    return [typed(x.dtype, [*x.shape[:axis], size, *x.shape[axis + 1 :]], x) for size in sizes]


def _split_arrays(attributes: Attributes, x: Any) -> tuple[Any, ...]:
    ends, total = [], 0
    for size in attributes["sizes"][:-1]:
        total += size
        ends.append(total)
    return tuple(jnp.split(x, ends, axis=attributes["axis"]))


def gather(x: Any, indices: Any, axis: int = 0) -> TensorValue:
    """The entries of x along an axis that `indices` names, as `numpy.take`; out of range: the nearest entry."""
    value = as_tensor(x, "gather")
    chosen = as_tensor(indices, "gather", device=value.device, graph=value.graph)
    same_device([value, chosen], "gather")
    return value.graph.add("gather", [value, chosen], {"axis": axis_of(axis, value.rank, "gather")})[0]


def _gather(types: Kinds, attributes: Attributes) -> list[TensorType]:
    (x, indices), axis = types, attributes["axis"]
    if "int" not in indices.dtype:
        raise LayoutError(with_fix(f"gather: indices are integers, not {indices.dtype}", "ops.cast(indices, 'int32')"))
    return [typed(x.dtype, [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]], x)]


def slice_tensor(x: Any, indices: Any) -> TensorValue:
    """x[indices], of ints, slices, `...` and None; bounds may be symbolic dims."""
    return _one("slice_tensor", x, index=frozen_index(indices))


RULES: dict[str, Op] = {
    "reshape": Local(_reshape, lambda attributes, x: jnp.reshape(x, attributes["shape"])),
    "rebind": Local(_rebind, lambda attributes, x: x),
    "broadcast_to": Local(_broadcast_to, lambda attributes, x: jnp.broadcast_to(x, attributes["shape"])),
    "permute": Local(
        lambda types, attributes: [typed(types[0].dtype, [types[0].shape[d] for d in attributes["dims"]], types[0])],
        lambda attributes, x: jnp.transpose(x, attributes["dims"]),
    ),
    "squeeze": Local(_squeeze, lambda attributes, x: jnp.squeeze(x, attributes["axis"])),
    "unsqueeze": Local(_unsqueeze, lambda attributes, x: jnp.expand_dims(x, attributes["axis"])),
    "concat": Local(
        lambda types, attributes: [joined("concat", types, attributes["axis"])],
        lambda attributes, *arrays: jnp.concatenate(arrays, attributes["axis"]),
    ),
    "stack": Local(_stack, lambda attributes, *arrays: jnp.stack(arrays, attributes["axis"])),
    "split": Local(_split, _split_arrays),
    "gather": Local(_gather, lambda attributes, x, indices: jnp.take(x, indices, axis=attributes["axis"], mode="clip")),
    "slice_tensor": Local(
        lambda types, attributes: [typed(types[0].dtype, sliced_shape(types[0].shape, attributes["index"]), types[0])],
        lambda attributes, x: x[thawed_index(attributes["index"])],
    ),
}
FUNCTIONS = (
    reshape, rebind, broadcast_to, permute, transpose, squeeze, unsqueeze, concat, stack, split, gather,
    slice_tensor,
)  # fmt: skip
