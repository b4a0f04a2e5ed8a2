"""From what a user passes to `execute`, to a value for every input of the graph, and a size for every symbol.

A Binding looks at shapes, dtypes and layouts only, so it is made once for each `signature` of arguments; what is left
to do in a call is `held`, which takes the arguments apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from lamina.engine import compat, primitive, reading, transfer, whole
from lamina.engine.storage import Storage, storage
from lamina.engine.storage import whole as whole_storage
from lamina.errors import LayoutError, Problems, with_fix
from lamina.graph.buffers import Buffer
from lamina.graph.graph import Graph
from lamina.graph.held import Member, array_of, is_inside_jit, tensor_family
from lamina.sharding import BufferType, DeviceMesh, DistributedType
from lamina.sharding.dims import SymbolicDim, is_static, substitute
from lamina.sharding.shape import Shape
from lamina.sharding.shapes import local_shapes
from lamina.tensors import Tensor, from_jax


def signature(argument: Any) -> Any:
    """What a Binding may depend on; None where only looking closer can tell."""
    kind = type(argument)
    if kind is Tensor:
        return argument._storage, argument.dtype
    if kind is np.ndarray:
        return "host", argument.shape, argument.dtype, argument.flags.writeable
    if kind is Buffer:
        return "buffer", argument.value._storage, argument.value.dtype
    if isinstance(argument, jax.Array):
        return "device", argument.shape, argument.dtype, is_inside_jit(argument)
    if kind is list or kind is tuple:
        parts = tuple(map(signature, argument))
        return None if None in parts else parts
    return None


class Step(NamedTuple):
    """Argument number `place` becomes the values of these inputs; `buffer`: it is to be updated."""

    place: int
    numbers: tuple[int, ...]
    take: Callable[[Any], Sequence[Any]]
    buffer: bool


class Binding:
    """What the arguments of one signature mean: `steps` that take them apart, `sizes` of the symbols."""

    __slots__ = ("_shapes", "problems", "sizes", "steps", "types")

    def __init__(self, graph: Graph, arguments: Sequence[Any], pure: bool):
        self.sizes: dict[str, int] = {}
        self.steps: list[Step] = []
        self.problems = Problems()
        self.types = graph.types
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._take_all(graph, list(arguments), pure)
        self.problems.check()
        self._check_shapes()
        self.problems.check()

    def held(self, arguments: Sequence[Any]) -> dict[int, Any]:
        """A value for every input."""
        found: dict[int, Any] = {}
        for place, numbers, take, _ in self.steps:
            found.update(zip(numbers, take(arguments[place]), strict=True))
        return found

    def buffers(self, arguments: Sequence[Any]) -> dict[tuple[int, ...], Any]:
        """The arguments that are buffers, by their inputs."""
        return {step.numbers: arguments[step.place] for step in self.steps if step.buffer}

    def _take_all(self, graph: Graph, arguments: list[Any], pure: bool) -> None:
        groups = list(graph.input_groups)
        place = 0
        while groups:
            numbers, distributed = groups.pop(0)
            if place >= len(arguments):
                missing = [str(self.types[n]) for ns, _ in [(numbers, None), *groups] for n in ns]
                self.problems.add(f"{len(missing)} inputs are missing: {', '.join(missing)}", _hint(graph))
                return
            argument = arguments[place]
            if distributed is None and isinstance(argument, Tensor) and argument.mesh.num_devices > 1:
                while len(numbers) < argument.mesh.num_devices and groups and groups[0][1] is None:
                    numbers += groups.pop(0)[0]
            self._take(argument, place, numbers, distributed, pure)
            place += 1
        if place < len(arguments):
            self.problems.add(f"{len(arguments)} inputs were given, the graph takes {place}", _hint(graph))

    def _take(self, argument: Any, place: int, numbers: tuple[int, ...], distributed: Any, pure: bool) -> None:
        is_buffer = isinstance(self.types[numbers[0]], BufferType) and not pure
        writable = isinstance(argument, np.ndarray) and argument.flags.writeable
        if is_buffer and not (isinstance(argument, Buffer) or writable):
            fact = f"input {place} is the buffer {self.types[numbers[0]]}, not {type(argument).__name__}"
            fix = "pass a lamina.graph.Buffer(x, device) or a writable numpy array, or call model.functional(...)"
            self.problems.add(fact, fix)
            return
        take = self._how(_content(argument), numbers, distributed, f"input {place}")
        if take is not None:
            self.steps.append(Step(place, numbers, partial(_of_content, take), is_buffer))

    # -- what an argument is ----------------------------------------------------------------------------------------

    def _how(self, argument: Any, numbers: tuple[int, ...], distributed: Any, where: str) -> Any:
        """How to take the argument apart; checked here, and what is wrong is noted."""
        if isinstance(argument, Tensor):
            return self._tensor(argument, numbers, distributed, where)
        if distributed is None:
            value = array_of(argument)
            self._check(numbers[0], value.shape, value.dtype, where)
            return _array
        if isinstance(argument, (list, tuple)) and len(argument) == len(numbers):
            for number, part in zip(numbers, argument, strict=True):
                value = array_of(part)
                self._check(number, value.shape, value.dtype, where)
            return _list
        return self._whole(array_of(argument), numbers, distributed, where)

    def _tensor(self, t: Tensor, numbers: tuple[int, ...], distributed: Any, where: str) -> Any:
        held = t._held
        if distributed is not None and (held.mesh != distributed.mesh or held.layout != distributed.layout):
            fact = f"{where} is {distributed!r}, and the Tensor lies as {held.mapping}"
            fix = f"lamina.shard(x, mesh, {[list(axes) or None for axes in distributed.layout.dims]}) it first"
            self.problems.add(fact, fix)
            return None
        if held.mesh.num_devices != len(numbers):
            fact = f"{where} is a Tensor on {held.mesh.num_devices} devices, for {len(numbers)} inputs"
            self.problems.add(fact, "lamina.to_device(x, device) it, or give a Tensor on as many devices")
            return None
        if distributed is not None:
            self._match(Shape(distributed.shape), held.shape, where)
        for number, shape in zip(numbers, local_shapes(held.shape, held.layout), strict=True):
            self._check(number, shape, t.dtype, where)
        if held.is_plain and not held.is_local:
            return _members
        return _one if held.is_plain and held.mesh.is_single else _shards

    def _whole(self, value: Any, numbers: tuple[int, ...], kind: DistributedType, where: str) -> Any:
        """All of a distributed value: from the host, or from wherever JAX has it."""
        self._match(Shape(kind.shape), value.shape, where)
        if value.ndim != kind.rank:
            return None
        target = storage(kind.mesh, kind.mapping.layout(value.ndim), tuple(value.shape), kind.mapping.memory_kind)
        for number, shape in zip(numbers, local_shapes(target.shape, target.layout), strict=True):
            self._check(number, shape, value.dtype, where)
        return partial(_parts_of_all, target)

    # -- sizes ------------------------------------------------------------------------------------------------------

    def _check(self, number: int, shape: Sequence[int], dtype: Any, where: str) -> None:
        kind, found = self.types[number], np.dtype(dtype)
        if kind.dtype != found.name and jax.dtypes.canonicalize_dtype(found).name != kind.dtype:
            self.problems.add(f"{where} is {found.name}, the graph takes {kind}", f"cast it to {kind.dtype}")
        self._match(kind.shape, shape, where)
        self._shapes[number] = tuple(shape)

    def _match(self, dims: Shape, shape: Sequence[int], where: str) -> None:
        if len(dims) != len(shape):
            fact = f"{where} has shape {tuple(shape)}, the graph takes {dims}"
            self.problems.add(fact, "give it the rank of the input type")
            return
        for dim, size in zip(dims, shape, strict=True):
            if isinstance(dim, SymbolicDim) and self.sizes.setdefault(dim.name, size) != size:
                other = self.sizes[dim.name]
                fact = f"{where} has shape {tuple(shape)} for {dims}, but {dim} is {other} elsewhere"
                self.problems.add(fact, f"give every dim called {dim} one size")
            elif isinstance(dim, int) and dim != size:
                fact = f"{where} has shape {tuple(shape)}, the graph takes {dims}"
                self.problems.add(fact, "give it the sizes of the input type")

    def _check_shapes(self) -> None:
        """Dims that are expressions: known now, and as the values have them."""
        for number, shape in self._shapes.items():
            dims = self.types[number].shape
            for dim, size in zip(dims, shape, strict=True):
                found = substitute(dim, self.sizes)
                if not is_static(found):
                    fact = f"nothing says how large {found} is, of {self.types[number]}"
                    self.problems.add(fact, "pass the Tensor itself, or another input with that dim alone")
                elif found != size:
                    fact = f"an input of shape {shape} for {dims}, where {dim} is {found}"
                    self.problems.add(fact, "give it the sizes of the input type")


# -- taking arguments apart -------------------------------------------------------------------------------------------


def _content(argument: Any) -> Any:
    return argument.value if isinstance(argument, Buffer) else argument


def _of_content(take: Callable[[Any], Sequence[Any]], argument: Any) -> Sequence[Any]:
    return take(argument.value if type(argument) is Buffer else argument)


def _array(argument: Any) -> list[Any]:
    return [array_of(argument)]


def _list(argument: Sequence[Any]) -> list[Any]:
    return [array_of(part) for part in argument]


def _members(t: Tensor) -> list[Any]:
    family = tensor_family(t._array, t._held)
    return [Member(family, i) for i in range(t._held.mesh.num_devices)]


def _one(t: Tensor) -> list[Any]:
    return [t._array]


def _shards(t: Tensor) -> list[Any]:
    return whole.cut(t._array, t._held) if compat.is_tracer(t._array) else reading.shards(t._array, t._held)


def _parts_of_all(target: Storage, argument: Any) -> list[Any]:
    """All of a value is brought to where `target` says first."""
    value = array_of(argument)
    if is_inside_jit(value):
        one = whole_storage(DeviceMesh.single(target.mesh.devices[0]), target.shape)
        return whole.cut(whole.convert(value, one, target), target)
    t = Tensor(_relocated(value, target), target)
    return _members(t) if target.is_plain and not target.is_local else _shards(t)


def _relocated(value: Any, target: Storage) -> Any:
    """An array, from the host or from JAX's devices, as `target` says."""
    if not isinstance(value, jax.Array):
        return transfer.place(value, target)
    t = from_jax(value)
    if t.mesh == target.mesh:
        return primitive.transition(t._array, t._held, target)
    return primitive.transfer(t._array, t._held, target)


def _hint(graph: Graph) -> str:
    return "the inputs are " + ", ".join(
        repr(kind) if kind is not None else str(graph.types[numbers[0]]) for numbers, kind in graph.input_groups
    )


def storage_of(kind: DistributedType, sizes: dict[str, int]) -> Storage:
    """Where the Tensor of a distributed type lies, its dims bound."""
    shape = tuple(int(substitute(dim, sizes)) for dim in kind.shape)
    return storage(kind.mesh, kind.mapping.layout(len(shape)), shape, kind.mapping.memory_kind)


def unknown_device(devices: Sequence[Any], known: Sequence[Any]) -> None:
    """LayoutError for devices of a graph that a session doesn't have."""
    if missing := [device for device in devices if device not in known]:
        fact = f"load(graph): it uses {', '.join(map(repr, missing))}, the session has {', '.join(map(repr, known))}"
        raise LayoutError(with_fix(fact, "InferenceSession(devices) with all of them, or without any"))
