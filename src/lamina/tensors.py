"""`lamina.Tensor`: one `jax.Array` and how it lies on a mesh.

Invariants:

1. The array is what `Storage` says for (mesh, layout, shape): leading axes for pieces, then the dims, padded per block.
2. Immutable.  Every op returns a new Tensor, and a failed op leaves its inputs as they were.
3. A pytree with one leaf, the array, so JAX's transformations take it.  A Tensor that JAX rebuilds from an array with
   one dim more or less (`lax.scan` over it) has that dim in front, whole.  `jax.vmap` counts the *tensor's* dims.
4. Reading (`numpy`, `item`, `bool`, `repr`, …) means the global value, never one shard's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import compat, inventory, primitive, reading, transfer, watching
from lamina.engine.storage import Storage, storage, whole
from lamina.errors import ConversionError, LayoutError, TransformError, explained, with_fix
from lamina.operators import Operators
from lamina.sharding import Device, DeviceMapping, DeviceMesh, Layout, NamedMapping, Placement, TensorLayout
from lamina.sharding.dims import is_static
from lamina.sharding.layout import check_rank
from lamina.sharding.shapes import global_shape_from_local, local_shapes


class Tensor(Operators):
    """An immutable tensor that lies on a mesh.  Make one with `lamina.shard`, `lamina.tensor` or `lamina.from_jax`.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2, 2), ("x", "y"))
    >>> t = lamina.shard(np.arange(6.0).reshape(2, 3), mesh, ["x", "y"])
    >>> t.shape, t.placements, [shard.shape for shard in t.shards]
    ((2, 3), (Sharded(0), Sharded(1)), [(1, 2), (1, 1), (1, 2), (1, 1)])
    """

    __slots__ = ("__weakref__", "_array", "_storage")
    _array: Any
    _storage: Storage

    def __init__(self, array: Any, held: Storage):
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_storage", held)

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self._held.shape

    @property
    def ndim(self) -> int:
        return len(self._held.shape)

    @property
    def size(self) -> int:
        return self._held.size

    @property
    def dtype(self) -> Any:
        return self._array.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the global value."""
        return self.size * self.dtype.itemsize

    @property
    def mesh(self) -> DeviceMesh:
        return self._held.mesh

    @property
    def sharding(self) -> NamedMapping:
        """How it lies on its mesh, in the dialect that can say every layout."""
        return self._held.mapping

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The same, one placement per mesh axis; ConversionError for an axis order that placements can't say."""
        return self._held.mapping.to_placements()

    @property
    def layout(self) -> Layout:
        """The canonical layout."""
        return self._held.layout

    @property
    def device(self) -> Device:
        """The device of a tensor on one device (a simulated mesh is one device)."""
        devices = set(self.mesh.devices)
        if len(devices) > 1:
            raise LayoutError(f"this tensor lies on {len(devices)} devices of {self.mesh!r}: see .mesh.devices")
        return devices.pop()

    @property
    def _held(self) -> Storage:
        if self._storage is None:
            raise LayoutError(
                f"this Tensor was rebuilt from an array of shape {self._array.shape}, which no layout explains: "
                "a function that was mapped over its leaves changed the shape"
            )
        return self._storage

    # -- reading the global value -------------------------------------------------------------------------------

    @property
    def shards(self) -> list[Any]:
        """What each position of the mesh holds, row-major: one `jax.Array` each, never any padding.

        A Partial axis's positions hold their pieces.
        """
        return reading.shards(self._array, self._held)

    def numpy(self) -> np.ndarray:
        """The global value, on the host."""
        return reading.value(self._array, self._held)

    def jax(self) -> jax.Array:
        """The `jax.Array` of a layout that JAX can say (even, nothing Partial), at no cost.

        >>> import numpy as np, lamina
        >>> mesh = lamina.DeviceMesh.simulated((2,), ("x",))
        >>> lamina.shard(np.ones(3), mesh, ["x"]).jax()
        Traceback (most recent call last):
        lamina.errors.ConversionError: JAX can't say the layout [x=2] x of shape (3,): it is uneven
          fix: lamina.shard(x, mesh, ...) it to a layout that divides evenly and has nothing Partial, or read x.numpy()
        """
        held = self._held
        if held.is_plain:
            return self._array if compat.is_tracer(self._array) else held.home(self._array)
        why = "it has Partial axes" if held.lead else "it is uneven"
        raise ConversionError(
            f"JAX can't say the layout {held.layout} of shape {held.shape}: {why}\n"
            "  fix: lamina.shard(x, mesh, ...) it to a layout that divides evenly and has nothing Partial, "
            "or read x.numpy()"
        )

    def item(self, *index: int) -> Any:
        """The one element as a Python number; with an index, that element."""
        return self._known().item(*index)

    def tolist(self) -> Any:
        """The global value as nested lists of Python numbers."""
        return self.numpy().tolist()

    def _known(self) -> np.ndarray:
        """The value, under eager `jax.grad` too: what `item` and `if` see there, as those of a `jax.Array` do."""
        return reading.value(reading.known(self._array, self._held), self._held)

    def block_until_ready(self) -> Tensor:
        """Waits until the value is computed."""
        watching.ready(self._array)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._one_array().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._one_array().__dlpack_device__()

    def _one_array(self) -> Any:
        """The value in one device's memory: as it is where that is so, else the first device gathers it."""
        held = self._held
        if held.is_local and held.is_plain:
            return self._array
        homes = [inventory.resolve(device) for device in held.mesh.devices]
        own = [home for home in homes if home.process_index == jax.process_index()]
        return jax.device_put(self.numpy(), (own or jax.local_devices())[0])

    def __bool__(self) -> bool:
        return bool(self._known())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __index__(self) -> int:
        return self.numpy().__index__()

    def __format__(self, how: str) -> str:
        return format(self.item(), how) if how and not self.shape else format(str(self), how)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d Tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a Tensor can't be iterated over: each step would communicate; iterate over x.numpy()")

    def __repr__(self) -> str:
        if self._storage is None:
            return f"Tensor(no layout explains an array of shape {self._array.shape})"
        kind = f"{self.dtype.name}[{','.join(map(str, self.shape))}]"
        if not isinstance(self._array, (jax.Array, np.ndarray)):  # what jax.device_get leaves can be read
            return f"Tensor({kind} without data, '{self.sharding}')"
        if compat.is_tracer(self._array):
            return f"Tensor({kind} traced, '{self.sharding}')"
        value = np.array2string(self.numpy(), prefix="Tensor(", threshold=100, separator=", ")
        return f"Tensor({value}, {kind}, '{self.sharding}')"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Tensor is immutable: can't set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Tensor is immutable: can't delete {name!r}")

    def __reduce__(self) -> tuple:
        return _unpickle, (self.numpy(), self.sharding)


def _unpickle(value: np.ndarray, mapping: NamedMapping) -> Tensor:
    held = storage(mapping.mesh, mapping.layout(value.ndim), value.shape, mapping.memory_kind)
    return Tensor(transfer.place(value, held), held)


# -- making one -------------------------------------------------------------------------------------------------------


def tensor(x: Any, dtype: Any = None) -> Tensor:
    """A Tensor of anything array-like, where it is: host data goes to the default device.

    >>> import lamina
    >>> lamina.tensor([1.0, 2.0]).shape
    (2,)
    """
    if isinstance(x, Tensor):
        return x if dtype is None or x.dtype == dtype else _converted(x, dtype)
    if isinstance(x, jax.Array):
        return from_jax(x if dtype is None else x.astype(dtype))
    value = host_array(x, "tensor", dtype)
    held = whole(DeviceMesh.single(inventory.default_device()), value.shape)
    return Tensor(transfer.place(value, held), held)


def _converted(t: Tensor, dtype: Any) -> Tensor:
    """Of another dtype.  Pieces are reduced first: 0.5 and 0.5 make 1, and rounded to integers they make 0."""
    held = t._held.without_pieces()
    return Tensor(primitive.transition(t._array, t._held, held).astype(dtype), held)


def host_array(x: Any, op: str, dtype: Any = None) -> np.ndarray:
    """Anything that numpy makes numbers of, as an array; TypeError for what it makes text or objects of."""
    value = np.asarray(x, dtype)
    if value.dtype.kind not in "biufc" and not (value.dtype.kind == "V" and jnp.issubdtype(value.dtype, jnp.number)):
        fact = f"{op}(x) takes a Tensor, an array or numbers, not {type(x).__name__}"
        if isinstance(x, (dict, list, tuple)):  # to show it would read every tensor in it
            raise TypeError(with_fix(f"{fact} of them", f"jax.tree.map(lamina.{op}, x) takes a pytree"))
        raise TypeError(f"{fact} {x!r}")
    return value


def from_jax(array: Any) -> Tensor:
    """The Tensor that a `jax.Array` already is: its NamedSharding becomes the layout, no data moves.

    >>> import jax.numpy as jnp, lamina
    >>> lamina.from_jax(jnp.ones((2, 2))).mesh.is_single
    True
    """
    if compat.is_tracer(array):
        return Tensor(array, reading.traced_storage(array, compat.concrete(array)))
    if not isinstance(array, jax.Array):
        raise TypeError(f"from_jax takes a jax.Array, not {type(array).__name__}; see lamina.tensor")
    with explained("from_jax(array)", shape=array.shape):
        held = reading.storage_of(array)
        return Tensor(reading.as_auto(array, held), held)


def from_shards(shards: Sequence[Any], mapping: DeviceMapping, shape: Sequence[int] | None = None) -> Tensor:
    """The Tensor whose shards these are, one per mesh position, row-major.

    The global shape follows from the shards.  Replicas must be given for every position that holds one; they aren't
    compared.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2,), ("x",))
    >>> lamina.from_shards([np.zeros(2), np.ones(1)], lamina.NamedMapping(mesh, ["x"])).tolist()
    [0.0, 0.0, 1.0]
    """
    if not isinstance(mapping, DeviceMapping):
        raise TypeError(f"from_shards(mapping) must be a lamina DeviceMapping such as NamedMapping, not {mapping!r}")
    with explained(
        "from_shards(shards, mapping)",
        mapping=mapping,
        fix="give one shard per mesh position, each of the shape that "
        "lamina.sharding.local_shard_shape_from_global says",
    ):
        arrays = [part if isinstance(part, jax.Array) else host_array(part, "from_shards") for part in shards]
        if len(arrays) != mapping.mesh.num_devices:
            raise LayoutError(f"{len(arrays)} shards for the {mapping.mesh.num_devices} devices of {mapping.mesh}")
        found = [tuple(part.shape) for part in arrays]
        if shape is None and isinstance(mapping, TensorLayout) and all(map(is_static, mapping.shape)):
            shape = mapping.shape
        full = global_shape_from_local(found, mapping.mesh, mapping) if shape is None else tuple(shape)
        layout = mapping.layout(len(full))
        check_rank(layout, full)
        if local_shapes(full, layout) != found:
            raise LayoutError(
                f"shards of shapes {found} don't make up {full}, whose shards are {local_shapes(full, layout)}"
            )
        kinds = {np.dtype(part.dtype) for part in arrays}
        if len(kinds) > 1:
            names = sorted(kind.name for kind in kinds)
            raise LayoutError(with_fix(f"the shards have different dtypes: {names}", "give them one dtype"))
        held = storage(mapping.mesh, layout, full, mapping.memory_kind)
        return Tensor(reading.from_shards(arrays, held), held)


# -- a pytree ---------------------------------------------------------------------------------------------------------


def _flatten(t: Tensor) -> tuple[tuple[Any], Storage]:
    return (t._array,), t._storage


def _flatten_with_keys(t: Tensor) -> tuple[tuple[tuple[Any, Any]], Storage]:
    return ((jax.tree_util.GetAttrKey("array"), t._array),), t._storage


def _unflatten(held: Storage, leaves: tuple) -> Tensor:
    array = leaves[0]
    shape = getattr(array, "shape", None)
    if held is None or not isinstance(shape, tuple) or shape == held.array_shape:
        return Tensor(array, held)  # not an array at all: JAX passes placeholders through, too
    return Tensor(array, _explain(held, shape))


def _explain(held: Storage, shape: tuple[int, ...]) -> Any:
    """The storage of an array that a transformation made from one in `held`: a front dim more or less, if any."""
    lead, expected = len(held.lead), held.array_shape
    if not lead and len(shape) == len(expected) + 1 and shape[1:] == expected:
        return held.with_dim(0, shape[0])
    if not lead and len(shape) == len(expected) - 1 and shape == expected[1:] and not held.layout.dims[0]:
        return held.without_dim(0)
    if held.is_plain and len(shape) == len(expected) and held.layout.is_even(shape):
        return storage(held.mesh, held.layout, shape, held.memory_kind)
    return None


jax.tree_util.register_pytree_with_keys(Tensor, _flatten_with_keys, _unflatten, _flatten)


def _take_mapped(element: Any, _: Any, t: Tensor, dim: int | None) -> Tensor:
    """What `jax.vmap` hands to the function: the tensor without the mapped dim."""
    if dim is None:
        return Tensor(element(t._array, None), t._held)
    held, position = t._held, _checked_dim(t, dim, t.ndim, "in_axes")
    if held.layout.dims[position]:
        raise TransformError(
            f"jax.vmap(in_axes={dim}): dim {position} of this Tensor is split over {held.layout.dims[position]} in "
            f"{held.layout}, so its entries lie on different devices\n"
            f"  fix: map over a whole dim, or lamina.all_gather(x, {position}) first"
        )
    return Tensor(element(t._array, len(held.lead) + position), held.without_dim(position))


def _put_mapped(element: Any, size: int, t: Tensor, dim: int | None) -> Tensor:
    """What `jax.vmap` returns: the tensor with the mapped dim, whole."""
    if dim is None:
        return Tensor(element(size, t._array, None), t._held)
    position = _checked_dim(t, dim, t.ndim + 1, "out_axes")
    held = t._held.with_dim(position, size)
    return Tensor(element(size, t._array, len(held.lead) + position), held)


def _checked_dim(t: Tensor, dim: int, rank: int, argument: str) -> int:
    if not -rank <= dim < rank:
        raise TransformError(f"jax.vmap({argument}={dim}) is out of range for a Tensor of shape {t.shape}")
    return dim % rank


compat.register_vmappable(Tensor, _take_mapped, _put_mapped)
