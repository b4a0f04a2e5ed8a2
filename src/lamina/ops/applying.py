"""`apply`: any function of JAX on Tensors, partitioned by XLA."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax

from lamina.engine import compat, watching
from lamina.engine.computing import Computation
from lamina.engine.primitive import transition
from lamina.engine.programs import laid_out, queue_guard
from lamina.engine.storage import Storage
from lamina.errors import LayoutError, with_fix
from lamina.ops import implicit
from lamina.ops.compute import one_mesh
from lamina.ops.local import asked_storage, is_mapping
from lamina.sharding import DeviceMesh, Layout
from lamina.tensors import Tensor


def apply(fn: Callable[..., Any], *tensors: Any, out: Any = None, **options: Any) -> Any:
    """`fn(*tensors, **options)` for any function of JAX arrays: what Lamina has no op for.

    Arguments are Tensors (or pytrees with Tensors in them), and whatever else `fn` takes.  A Tensor that JAX can say
    stays where it is; one that it can't is reduced, and its uneven dims are made whole, first.  `fn` sees the whole
    arrays, and XLA partitions it and chooses its communication, which `on_reshard` doesn't see.

    The results are Tensors, the same on all devices, or as `out` says: a DeviceMapping, dim specs such as
    `["dp", None]`, or a pytree of these like the result.

    >>> import jax.numpy as jnp, numpy as np, lamina
    >>> x = lamina.shard(np.arange(6.0).reshape(2, 3), lamina.DeviceMesh.simulated((2,), ("x",)), ["x"])
    >>> lamina.apply(jnp.cross, x, np.ones(3), out=["x"]).sharding
    NamedMapping('[x=2] x,-')
    """
    leaves, tree = jax.tree.flatten((tensors, options), is_leaf=_is_tensor)
    found = [leaf for leaf in leaves if _is_tensor(leaf)]
    mesh = one_mesh("apply", found)
    if mesh is None:
        fact = "apply(fn, *tensors): no Tensor is among the arguments"
        raise LayoutError(with_fix(fact, "lamina.shard(x, mesh, ...) one, or call fn itself"))
    sources = tuple(leaf._held.with_kind(None) for leaf in found)
    targets = tuple(map(sayable, sources))
    _report(sources, targets, found)
    which = tuple(_is_tensor(leaf) for leaf in leaves)
    arrays = [leaf._held.with_kind(None).home(leaf._array) if leaf._held.memory_kind else leaf._array for leaf in found]
    others = [leaf for leaf in leaves if not _is_tensor(leaf)]
    if compat.nothing_is_traced():
        try:
            run, shape = _compiled(fn, mesh, sources, targets, which, tree, tuple(others), _frozen(out))
        except TypeError:  # an argument that can't be hashed
            run, shape = _compiled.__wrapped__(fn, mesh, sources, targets, which, tree, tuple(others), out)
    else:
        run, shape = _program(fn, mesh, sources, targets, which, tree, tuple(others), out)
    name = getattr(fn, "__name__", type(fn).__name__)
    made = watching.on(mesh, f"apply {name}: {_layouts(sources)}", run, *arrays)
    if (
        made
        and not (mesh.is_single or mesh.is_simulated)
        and compat.queue_is_unsafe()
        and not compat.is_tracer(made[0])
    ):
        queue_guard(made[0])
    results, out_tree = shape()
    return jax.tree.unflatten(out_tree, [Tensor(x, held) for x, held in zip(made, results, strict=True)])


def sayable(held: Storage) -> Storage:
    """The nearest storage that is an ordinary array: nothing Partial, and the axes that divide their dims."""
    dims = []
    for axes, size in zip(held.layout.dims, held.shape, strict=True):
        while size % held.layout.count(axes):
            axes = axes[:-1]
        dims.append(axes)
    return held.with_layout(Layout(held.layout.axes, dims))


def _report(sources: tuple[Storage, ...], targets: tuple[Storage, ...], found: list[Any]) -> None:
    if implicit.watched() and sources != targets:
        itemsizes = tuple(float(leaf.dtype.itemsize) for leaf in found)
        implicit.report(Computation("apply", _nothing, sources, targets, ()), itemsizes)


def _layouts(storages: tuple[Storage, ...]) -> str:
    return ", ".join(str(held.layout) for held in storages)


def _nothing(*_: Any) -> None: ...


def _frozen(out: Any) -> Any:
    return tuple(_frozen(part) for part in out) if isinstance(out, (list, tuple)) else out


@lru_cache(maxsize=256)
def _compiled(*key: Any) -> tuple[Callable, Callable]:
    run, shape = _program(*key)
    return jax.jit(run), shape


def _program(
    fn: Callable,
    mesh: DeviceMesh,
    sources: tuple[Storage, ...],
    targets: tuple[Storage, ...],
    which: tuple[bool, ...],
    tree: Any,
    others: tuple,
    out: Any,
) -> tuple[Callable, Callable]:
    """The call as a function of stored arrays, and one that says, once it was traced, what its results are."""
    known: list[Any] = []

    def run(*arrays: Any) -> list[Any]:
        plain = (transition(x, held, target) for x, held, target in zip(arrays, sources, targets, strict=True))
        rest = iter(others)
        arguments, options = jax.tree.unflatten(tree, [next(plain if one else rest) for one in which])
        leaves, out_tree = jax.tree.flatten(fn(*arguments, **options))
        results = _results(mesh, leaves, out_tree, out)
        known[:] = [results, out_tree]
        return [_laid(jax.numpy.asarray(x), held) for x, held in zip(leaves, results, strict=True)]

    return run, lambda: tuple(known)


def _results(mesh: DeviceMesh, leaves: list[Any], out_tree: Any, out: Any) -> tuple[Storage, ...]:
    found: dict[int, Storage] = {}

    def one(number: int, mapping: Any) -> None:
        shape = tuple(leaves[number].shape)
        found[number] = asked_storage("apply(out)", mapping, mesh, shape)

    def under(mapping: Any, part: Any) -> None:
        jax.tree.map(partial(one, mapping=mapping), part)

    jax.tree.map(under, out, jax.tree.unflatten(out_tree, list(range(len(leaves)))), is_leaf=is_mapping)
    return tuple(found[number] for number in range(len(leaves)))


def _laid(x: Any, held: Storage) -> Any:
    """XLA's array as the result is stored: it takes the part of the layout that it can say from the start."""
    near = sayable(held)
    return transition(laid_out(x, near), near, held)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


__all__ = ["apply"]
