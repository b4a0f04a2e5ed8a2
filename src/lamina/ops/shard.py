"""`shard`: any value, from wherever it is, to any layout."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any

from lamina.engine import primitive
from lamina.engine.programs import Options
from lamina.engine.storage import Storage, storage
from lamina.errors import DeviceError, LayoutError, PlanError, Problems, explained, with_fix
from lamina.ops.arguments import as_data, described, over_leaves, relocate, shape_of
from lamina.planning.plan import block_bytes
from lamina.planning.topology import topology as links_of
from lamina.sharding import DeviceMesh, DimSpec, ReduceOp
from lamina.sharding.layout import Axes, Layout, check_axis_use
from lamina.sharding.mesh import as_mesh
from lamina.sharding.specs import as_dim_specs, as_unreduced, axis_users
from lamina.sharding.text import spec_text
from lamina.tensors import Tensor

KEYWORDS = ("partial", "memory_limit", "topology", "donate")


def shard(x: Any, mesh: DeviceMesh | None, dim_specs: Any, replicated_axes: Any = None, **kwargs: Any) -> Any:
    """x with its dims split as `dim_specs` says: the planner's cheapest route from whatever layout x has.

    `x` is a Tensor, a jax.Array, host data, or a pytree of these (a plain list is a pytree, as everywhere in JAX); for
    a dict, `dim_specs` may be a dict of specs.  `dim_specs` has one entry per dim: None, an axis name, a tuple of names
    (major to minor), or a DimSpec; dims that it doesn't reach stay whole.  An open DimSpec keeps the compatible
    sharding that its dim has.  `replicated_axes` names mesh axes that must not be used.

    Keywords: `partial` (axes left unreduced: names, or a mapping from axis to ReduceOp), `memory_limit` (bytes that a
    device may hold at once on the way), `topology` (the links to plan for: a preset's name or a Topology; by default
    those of the mesh's devices), `donate` (x's memory may be reused; x is gone afterwards).

    The value doesn't change; the gradient is the way back.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((2, 4), ("dp", "tp"))
    >>> x = lamina.shard(np.arange(64.0).reshape(8, 8), mesh, ["dp", None])
    >>> lamina.shard(x, mesh, [None, ("tp", "dp")]).sharding
    NamedMapping('[dp=2,tp=4] -,(tp,dp)')
    """
    if type(x) is Tensor and not kwargs and replicated_axes is None and type(dim_specs) in (list, tuple):
        try:
            target, steps = _known_route(x._storage, mesh, tuple(dim_specs))
        except (TypeError, _Slow):
            pass
        else:
            array = x._array
            for step in steps:
                array = primitive.apply(array, step)
            return Tensor(array, target)
    if unknown := [name for name in kwargs if name not in KEYWORDS]:
        raise TypeError(f"shard() got unknown keywords {unknown}; it takes {', '.join(KEYWORDS)}")
    if isinstance(x, dict) and isinstance(dim_specs, Mapping):
        if missing := [key for key in x if key not in dim_specs]:
            fact = f"shard(dim_specs): the dict of specs has none for {missing}"
            raise LayoutError(with_fix(fact, "give every key of x one; [] leaves a value whole"))
        return {key: shard(leaf, mesh, dim_specs[key], replicated_axes, **kwargs) for key, leaf in x.items()}
    return over_leaves(lambda leaf: _shard_one(leaf, mesh, dim_specs, replicated_axes, **kwargs), x)


def reshard(*args: Any, **kwargs: Any) -> Any:
    """Deprecated: use `shard`, which takes a tensor from any layout.

    >>> import warnings, numpy as np, lamina
    >>> x = lamina.shard(np.arange(4.0), lamina.DeviceMesh.simulated((2,), ("x",)), ["x"])
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     lamina.reshard(x, x.mesh, [None]).sharding
    NamedMapping('[x=2] -')
    """
    warnings.warn("lamina.reshard is deprecated: use lamina.shard", DeprecationWarning, stacklevel=2)
    return shard(*args, **kwargs)


class _Slow(Exception):
    """The call needs the whole road: another mesh, another memory."""


@lru_cache(maxsize=4096)
def _known_route(held: Storage, mesh: DeviceMesh | None, specs: tuple) -> tuple[Storage, tuple]:
    """The front path: everything that a call on a Tensor decides, decided once."""
    if mesh is None or mesh != held.mesh or held.memory_kind is not None:
        raise _Slow
    target = _target(held.shape, held, mesh, specs, None, ())
    return target, primitive.route(held, target)


def _shard_one(
    x: Any,
    mesh: DeviceMesh | None,
    dim_specs: Any,
    replicated_axes: Any,
    partial: Any = (),
    memory_limit: float | None = None,
    topology: Any = None,
    donate: bool = False,
) -> Tensor:
    x = as_data(x, "shard")
    with explained("shard(mesh)"):
        mesh = as_mesh(mesh)
    held = x._held if isinstance(x, Tensor) else None
    target = _target(shape_of(x), held, mesh, dim_specs, replicated_axes, partial)
    with (
        explained("shard(mesh)", mesh=mesh, only=DeviceError),
        explained("shard(memory_limit)", "raise the limit, or leave it out", only=PlanError, x=_seen(held), mesh=mesh),
    ):
        options = Options(memory_limit, None if topology is None else links_of(topology))
        return relocate(x, _within(target, x, memory_limit), options, donate)


def _seen(held: Storage | None) -> str | None:
    return None if held is None else described(held)


def _within(target: Storage, x: Any, memory_limit: float | None) -> Storage:
    """The target, if a device can hold its shard at all."""
    size = block_bytes(target.layout, target.shape, x.dtype.itemsize)
    if memory_limit is not None and size > memory_limit:
        raise PlanError(f"a shard of {target.layout} alone takes {size:.0f} bytes, more than {memory_limit:.0f}")
    return target


def _target(
    shape: tuple[int, ...],
    held: Storage | None,
    mesh: DeviceMesh,
    dim_specs: Any,
    replicated_axes: Any,
    partial: Any,
) -> Storage:
    """The storage that the arguments ask for; all that is wrong with them is said at once."""
    with explained(
        f"shard(dim_specs={_written(dim_specs)})",
        fix=f"one entry per dim: None, one of {list(mesh.axis_names)}, or a tuple of them; each axis once",
        shape=shape,
        x=_seen(held),
        mesh=mesh,
    ):
        problems = Problems()
        specs: tuple[DimSpec, ...] = ()
        pieces: dict[str, ReduceOp] = {}
        with problems.caught():
            specs = as_dim_specs(dim_specs)
        with problems.caught():
            pieces = as_unreduced(partial, "partial")
        if len(specs) > len(shape):
            hint = "" if shape else " (a plain list is a pytree of numbers: use np.asarray)"
            problems.add(f"{len(specs)} entries for a tensor of rank {len(shape)}{hint}")
        with problems.caught():
            check_axis_use(dict(mesh.axes), axis_users(specs, pieces, "partial"))
        replicated = _replicated(replicated_axes, mesh, specs, pieces, problems)
        problems.check()
        dims = _closed(specs, held, mesh, {*replicated, *pieces})
        return storage(mesh, Layout(mesh.axes, (*dims, *[()] * (len(shape) - len(dims))), pieces), tuple(shape))


def _replicated(
    replicated_axes: Any, mesh: DeviceMesh, specs: tuple[DimSpec, ...], pieces: dict, problems: Problems
) -> tuple[str, ...]:
    """The axes that must hold copies; nothing else may use them."""
    if replicated_axes is None:
        return ()
    names = (replicated_axes,) if isinstance(replicated_axes, str) else tuple(replicated_axes)
    used = {*(axis for spec in specs for axis in spec.axes), *pieces}
    for name in names:
        if name not in mesh.axis_names:
            problems.add(f"replicated_axes: {name!r} is not an axis of the mesh {mesh}")
        elif name in used:
            spec = spec_text(specs, pieces.items())
            problems.add(f"replicated_axes: axis {name!r} is used by the spec {mesh} {spec}")
    return names


def _closed(specs: tuple[DimSpec, ...], held: Storage | None, mesh: DeviceMesh, taken: set[str]) -> list[Axes]:
    """The axes of each dim.  An open dim keeps those that x has there already, where nothing else wants them."""
    taken = taken | {axis for spec in specs for axis in spec.axes}
    dims = []
    for dim, spec in enumerate(specs):
        axes = spec.axes
        if spec.is_open and held is not None and held.mesh.axes == mesh.axes:
            axes = _extended(axes, held.layout.dims[dim], taken)
        taken.update(axes)
        dims.append(axes)
    return dims


def _extended(axes: Axes, has: Axes, taken: set[str]) -> Axes:
    if has[: len(axes)] != axes:
        return axes
    free = takewhile(lambda axis: axis not in taken, has[len(axes) :])
    return (*axes, *free)


def _written(dim_specs: Any) -> str:
    """The specs as the user wrote them, more or less."""
    if isinstance(dim_specs, Iterable) and not isinstance(dim_specs, str):
        return str([entry.entry if isinstance(entry, DimSpec) else entry for entry in dim_specs])
    return repr(dim_specs)
