"""What a graph computes with: values that are there only when it runs.

A value is a place in one graph: the number that the graph gave it, and its type.  It has no data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lamina.sharding import BufferType, Device, DistributedType, TensorType
from lamina.sharding.shape import Shape

if TYPE_CHECKING:
    from lamina.graph.graph import Graph


class Value:
    """A place in a graph: `graph`, `number`, `type`."""

    __slots__ = ("graph", "number", "type")
    graph: Graph
    number: int
    type: Any

    def __init__(self, graph: Graph, number: int, type: TensorType | BufferType):
        self.graph, self.number, self.type = graph, number, type

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def device(self) -> Device:
        return self.type.device

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    def __repr__(self) -> str:
        return f"%{self.number}: {self.type}"


class TensorValue(Value):
    """An immutable value on one device.  Its operators are those of `graph.ops`; `==` compares places, not numbers."""

    __slots__ = ()
    __array_priority__ = 1000.0  # numpy leaves mixed expressions to the value

    # fmt: off
    def __add__(self, other: Any) -> TensorValue: return _op("add", self, other)
    def __radd__(self, other: Any) -> TensorValue: return _op("add", other, self)
    def __sub__(self, other: Any) -> TensorValue: return _op("sub", self, other)
    def __rsub__(self, other: Any) -> TensorValue: return _op("sub", other, self)
    def __mul__(self, other: Any) -> TensorValue: return _op("mul", self, other)
    def __rmul__(self, other: Any) -> TensorValue: return _op("mul", other, self)
    def __truediv__(self, other: Any) -> TensorValue: return _op("div", self, other)
    def __rtruediv__(self, other: Any) -> TensorValue: return _op("div", other, self)
    def __floordiv__(self, other: Any) -> TensorValue: return _op("floordiv", self, other)
    def __mod__(self, other: Any) -> TensorValue: return _op("mod", self, other)
    def __pow__(self, other: Any) -> TensorValue: return _op("pow", self, other)
    def __matmul__(self, other: Any) -> TensorValue: return _op("matmul", self, other)
    def __rmatmul__(self, other: Any) -> TensorValue: return _op("matmul", other, self)
    def __neg__(self) -> TensorValue: return _op("negate", self)
    def __abs__(self) -> TensorValue: return _op("abs", self)
    def __lt__(self, other: Any) -> TensorValue: return _op("less", self, other)
    def __le__(self, other: Any) -> TensorValue: return _op("less_equal", self, other)
    def __gt__(self, other: Any) -> TensorValue: return _op("greater", self, other)
    def __ge__(self, other: Any) -> TensorValue: return _op("greater_equal", self, other)
    def __getitem__(self, index: Any) -> TensorValue: return _op("slice_tensor", self, index)
    # fmt: on

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is a value of a graph: it has no truth value until the graph runs; see ops.where")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} is a value of a graph and can't be iterated over; see ops.split")

    @property
    def T(self) -> TensorValue:
        """With the last two dims swapped."""
        return _op("transpose", self, -1, -2)

    def to(self, device: Any) -> TensorValue:
        """On another device: `ops.transfer_to`."""
        return _op("transfer_to", self, device)

    def cast(self, dtype: Any) -> TensorValue:
        """As another dtype: `ops.cast`."""
        return _op("cast", self, dtype)

    def reshape(self, shape: Sequence[Any]) -> TensorValue:
        """With other dims: `ops.reshape`."""
        return _op("reshape", self, shape)

    def transpose(self, axis_1: int, axis_2: int) -> TensorValue:
        """With two dims swapped: `ops.transpose`."""
        return _op("transpose", self, axis_1, axis_2)

    def rebind(self, shape: Sequence[Any]) -> TensorValue:
        """With dims known to be these: `ops.rebind`."""
        return _op("rebind", self, shape)


class BufferValue(Value):
    """A mutable buffer on one device: read with `ops.buffer_load`, written with `ops.buffer_store`."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> TensorValue:
        """What it holds now; `buffer[...]` is all of it."""
        loaded = _op("buffer_load", self)
        return loaded if index is Ellipsis else loaded[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is Ellipsis:
            _op("buffer_store", self, value)
        else:
            _op("buffer_store_slice", self, value, index)


class DistributedValue(Sequence):
    """The values of one distributed tensor or buffer, one per mesh position, row-major: a list that knows its type."""

    __slots__ = ("type", "values")

    def __init__(self, values: Sequence[Any], type: DistributedType):
        self.values, self.type = tuple(values), type

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"DistributedValue({', '.join(f'%{value.number}' for value in self.values)}: {self.type!r})"


@runtime_checkable
class HasTensorValue(Protocol):
    """Anything that stands for a value of a graph."""

    def __tensorvalue__(self) -> TensorValue: ...


@runtime_checkable
class HasBufferValue(Protocol):
    """Anything that stands for a buffer of a graph."""

    def __buffervalue__(self) -> BufferValue: ...


def _op(name: str, *arguments: Any) -> Any:
    """The op of that name; by name, for the ops are made of values."""
    return getattr(import_module("lamina.graph.ops"), name)(*arguments)
