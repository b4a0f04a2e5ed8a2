"""From what a user passes to `execute`, to a value for every input of the graph, and a size for every symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lamina.engine import compat, primitive, reading, transfer, whole
from lamina.engine.storage import Storage, storage
from lamina.engine.storage import whole as whole_storage
from lamina.errors import LayoutError, Problems, with_fix
from lamina.graph.buffers import Buffer
from lamina.graph.graph import Graph
from lamina.graph.held import Member, array_of, is_inside_jit, tensor_family
from lamina.sharding import BufferType, DeviceMesh, DistributedType, TensorType
from lamina.sharding.dims import SymbolicDim, is_static, substitute
from lamina.sharding.shape import Shape
from lamina.tensors import Tensor, from_jax

Type = TensorType | BufferType


class Binding:
    """The values of one call: `held` by number, the sizes of the symbols, and the buffers to be updated."""

    __slots__ = ("buffers", "held", "problems", "sizes", "types")

    def __init__(self, graph: Graph, arguments: Sequence[Any], pure: bool):
        self.held: dict[int, Any] = {}
        self.sizes: dict[str, int] = {}
        self.buffers: dict[tuple[int, ...], Any] = {}
        self.problems = Problems()
        self.types = graph.types
        self._take_all(graph, list(arguments), pure)
        self.problems.check()
        self._check_shapes(graph)
        self.problems.check()

    def _take_all(self, graph: Graph, arguments: list[Any], pure: bool) -> None:
        groups = list(graph.input_groups)
        place = 0
        while groups:
            numbers, distributed = groups.pop(0)
            if place >= len(arguments):
                missing = [str(self.types[n]) for ns, _ in [(numbers, None), *groups] for n in ns]
                self.problems.add(f"{len(missing)} inputs are missing: {', '.join(missing)}", _hint(graph))
                return
            argument, where = arguments[place], f"input {place}"
            place += 1
            if distributed is None and isinstance(argument, Tensor) and argument.mesh.num_devices > 1:
                while len(numbers) < argument.mesh.num_devices and groups and groups[0][1] is None:
                    numbers += groups.pop(0)[0]
            self._take(argument, numbers, distributed, where, pure)
        if place < len(arguments):
            self.problems.add(f"{len(arguments)} inputs were given, the graph takes {place}", _hint(graph))

    def _take(self, argument: Any, numbers: tuple[int, ...], distributed: Any, where: str, pure: bool) -> None:
        if isinstance(self.types[numbers[0]], BufferType) and not pure:
            argument = self._content(argument, numbers, where)
            if argument is None:
                return
        elif isinstance(argument, Buffer):
            argument = argument.value
        if isinstance(argument, Tensor):
            self._take_tensor(argument, numbers, distributed, where)
        elif distributed is not None:
            self._take_distributed(argument, numbers, distributed, where)
        else:
            self._put(numbers[0], array_of(argument), where)

    def _content(self, argument: Any, numbers: tuple[int, ...], where: str) -> Any:
        """What a buffer holds; it will be told what it holds then."""
        if isinstance(argument, Buffer):
            self.buffers[numbers] = argument
            return argument.value
        if isinstance(argument, np.ndarray) and argument.flags.writeable:
            self.buffers[numbers] = argument
            return argument
        fact = f"{where} is the buffer {self.types[numbers[0]]}, not {type(argument).__name__}"
        fix = "pass a lamina.graph.Buffer(x, device) or a writable numpy array, or call model.functional(...)"
        self.problems.add(fact, fix)
        return None

    # -- tensors ----------------------------------------------------------------------------------------------------

    def _take_tensor(self, t: Tensor, numbers: tuple[int, ...], distributed: Any, where: str) -> None:
        held = t._held
        if distributed is not None and (held.mesh != distributed.mesh or held.layout != distributed.layout):
            fact = f"{where} is {distributed!r}, and the Tensor lies as {held.mapping}"
            fix = f"lamina.shard(x, mesh, {[list(axes) or None for axes in distributed.layout.dims]}) it first"
            self.problems.add(fact, fix)
            return
        if held.mesh.num_devices != len(numbers):
            fact = f"{where} is a Tensor on {held.mesh.num_devices} devices, for {len(numbers)} inputs"
            self.problems.add(fact, "lamina.to_device(x, device) it, or give a Tensor on as many devices")
            return
        if distributed is not None:
            self._match(Shape(distributed.shape), held.shape, where)
        spread = held.is_plain and not held.is_local
        if spread:
            family = tensor_family(t._array, held)
            parts: list[Any] = [Member(family, i) for i in range(len(numbers))]
            shape = held.layout.padded_block(held.shape)
            for number, part in zip(numbers, parts, strict=True):
                self._put(number, part, where, shape, t.dtype)
            return
        for number, part in zip(numbers, _shards(t), strict=True):
            self._put(number, part, where)

    def _take_distributed(self, argument: Any, numbers: tuple[int, ...], kind: DistributedType, where: str) -> None:
        """A list of local values, or all of it: from the host, or from wherever JAX has it."""
        if isinstance(argument, (list, tuple)) and len(argument) == len(numbers):
            for number, part in zip(numbers, argument, strict=True):
                self._put(number, array_of(part), where)
            return
        value = array_of(argument)
        if value.ndim != kind.rank:
            self._match(Shape(kind.shape), value.shape, where)
            return
        mapping = kind.mapping
        target = storage(mapping.mesh, mapping.layout(value.ndim), value.shape, mapping.memory_kind)
        if is_inside_jit(value):
            self._match(Shape(kind.shape), value.shape, where)
            one = whole_storage(DeviceMesh.single(mapping.mesh.devices[0]), value.shape)
            for number, part in zip(numbers, whole.cut(whole.convert(value, one, target), target), strict=True):
                self._put(number, part, where)
            return
        self._take_tensor(Tensor(_relocated(value, target), target), numbers, kind, where)

    def _put(self, number: int, value: Any, where: str, shape: Any = None, dtype: Any = None) -> None:
        kind = self.types[number]
        shape = tuple(value.shape) if shape is None else shape
        found = np.dtype(value.dtype if dtype is None else dtype)
        if kind.dtype != found.name and jax.dtypes.canonicalize_dtype(found).name != kind.dtype:
            self.problems.add(f"{where} is {found.name}, the graph takes {kind}", f"cast it to {kind.dtype}")
        self._match(kind.shape, shape, where)
        self.held[number] = value

    # -- sizes ------------------------------------------------------------------------------------------------------

    def _match(self, dims: Shape, shape: Sequence[int], where: str) -> None:
        if len(dims) != len(shape):
            fact = f"{where} has shape {tuple(shape)}, the graph takes {Shape(dims)}"
            self.problems.add(fact, "give it the rank of the input type")
            return
        for dim, size in zip(dims, shape, strict=True):
            if isinstance(dim, SymbolicDim) and self.sizes.setdefault(dim.name, size) != size:
                fact = (
                    f"{where} has shape {tuple(shape)} for {Shape(dims)}, but {dim} is {self.sizes[dim.name]} elsewhere"
                )
                self.problems.add(fact, f"give every dim called {dim} one size")
            elif isinstance(dim, int) and dim != size:
                fact = f"{where} has shape {tuple(shape)}, the graph takes {Shape(dims)}"
                self.problems.add(fact, "give it the sizes of the input type")

    def _check_shapes(self, graph: Graph) -> None:
        """Dims that are expressions: known now, and as the values have them."""
        for number, value in self.held.items():
            dims = self.types[number].shape
            for dim, size in zip(dims, _shape(value), strict=True):
                found = substitute(dim, self.sizes)
                if not is_static(found):
                    fact = f"nothing says how large {found} is, of {self.types[number]}"
                    self.problems.add(fact, "pass the Tensor itself, or another input with that dim alone")
                elif found != size:
                    fact = f"an input of shape {_shape(value)} for {dims}, where {dim} is {found}"
                    self.problems.add(fact, "give it the sizes of the input type")


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, Member):
        array, family = value.family.array, value.family
        return _block_shape(array.shape, family.spec, family.mesh)
    return tuple(value.shape)


def _block_shape(shape: Sequence[int], spec: Any, mesh: Any) -> tuple[int, ...]:
    sizes = dict(mesh.axes)
    counts = [1] * len(shape)
    for dim, entry in enumerate(spec):
        for axis in () if entry is None else (entry,) if isinstance(entry, str) else entry:
            counts[dim] *= sizes[axis]
    return tuple(size // count for size, count in zip(shape, counts, strict=True))


def _relocated(value: Any, target: Storage) -> Any:
    """An array, from the host or from JAX's devices, as `target` says."""
    if not isinstance(value, jax.Array):
        return transfer.place(value, target)
    t = from_jax(value)
    if t.mesh == target.mesh:
        return primitive.transition(t._array, t._held, target)
    return primitive.transfer(t._array, t._held, target)


def _shards(t: Tensor) -> list[Any]:
    return whole.cut(t._array, t._held) if compat.is_tracer(t._array) else reading.shards(t._array, t._held)


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
