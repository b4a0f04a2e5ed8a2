"""`shard`: any value, from wherever it is, to any layout."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lamina.engine import primitive
from lamina.engine.programs import Options
from lamina.engine.storage import Storage, storage
from lamina.errors import DeviceError, LayoutError, PlanError, explained, with_fix
from lamina.ops.arguments import as_data, described, over_leaves, relocate, shape_of
from lamina.ops.asking import asked_layout
from lamina.planning.plan import block_bytes
from lamina.planning.topology import topology as links_of
from lamina.sharding import DeviceMesh
from lamina.sharding.mesh import as_mesh, holding
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
    those of the mesh's devices), `donate` (x's memory may be reused: x is gone then, unless it was on another mesh).

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
        if unused := [key for key in dim_specs if key not in x]:
            fact = f"shard(dim_specs): the dict of specs has {unused}, which x has not"
            raise LayoutError(with_fix(fact, f"name keys of x: {list(x)}"))
        found = x.copy()  # of x's own kind: ordered, with a default, …
        found.update({key: shard(leaf, mesh, dim_specs[key], replicated_axes, **kwargs) for key, leaf in x.items()})
        return found
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
        mesh = holding(as_mesh(mesh))
    held = x._held if isinstance(x, Tensor) else None
    options = _options(memory_limit, topology)
    target = _target(shape_of(x), held, mesh, dim_specs, replicated_axes, partial)
    with (
        explained("shard(mesh)", mesh=mesh, only=DeviceError),
        explained("shard(memory_limit)", "raise the limit, or leave it out", only=PlanError, x=_seen(held), mesh=mesh),
    ):
        return relocate(x, _within(target, x, memory_limit), options, donate)


def _options(memory_limit: Any, topology: Any) -> Options:
    if memory_limit is not None and (isinstance(memory_limit, bool) or not isinstance(memory_limit, (int, float))):
        raise TypeError(f"shard(memory_limit) must be a number of bytes, not {memory_limit!r}")
    with explained("shard(topology)", "name a preset, or give a Topology such as lamina.calibrate(mesh)"):
        return Options(memory_limit, None if topology is None else links_of(topology))


def _seen(held: Storage | None) -> str | None:
    return None if held is None else described(held)


def _within(target: Storage, x: Any, memory_limit: float | None) -> Storage:
    """The target, if a device can hold its shard at all."""
    size = block_bytes(target.layout, target.shape, x.dtype.itemsize)
    if memory_limit is not None and size > memory_limit:
        raise PlanError(f"a shard of {target.layout} alone takes {size:.0f} bytes, more than {memory_limit:.0f}")
    return target


def _target(
    shape: tuple[int, ...], held: Storage | None, mesh: DeviceMesh, dim_specs: Any, replicated_axes: Any, partial: Any
) -> Storage:
    lies = None if held is None else (held.mesh, held.layout)
    return storage(mesh, asked_layout("shard", shape, lies, mesh, dim_specs, replicated_axes, partial), tuple(shape))
