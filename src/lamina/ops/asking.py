"""From what the user asks for (dim specs, axes that stay replicated, axes left Partial) to the layout that it means."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from lamina.errors import Problems, explained
from lamina.sharding import DeviceMapping, DeviceMesh, DimSpec, Placement, ReduceOp
from lamina.sharding.layout import Axes, Layout, check_axis_use
from lamina.sharding.specs import as_dim_specs, as_unreduced, axis_users, spec_as_written
from lamina.sharding.text import spec_text

Lies = tuple[DeviceMesh, Layout]  # where a tensor is now


def asked_layout(
    verb: str,
    shape: tuple[int, ...],
    lies: Lies | None,
    mesh: DeviceMesh,
    dim_specs: Any,
    replicated_axes: Any,
    partial: Any,
    argument: str = "dim_specs",
) -> Layout:
    """The layout that the arguments of `verb` ask for; all that is wrong with them is said at once."""
    with explained(
        f"{verb}({argument}={spec_as_written(dim_specs)})",
        fix=f"one entry per dim: None, one of {list(mesh.axis_names)}, or a tuple of them; each axis once",
        shape=shape,
        x=None if lies is None else f"{list(shape)} lying as {lies[1]}",
        mesh=mesh,
    ):
        problems = Problems()
        specs: tuple[DimSpec, ...] = ()
        pieces: dict[str, ReduceOp] = {}
        with problems.caught(_other_dialect(dim_specs)):
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
        dims = _closed(specs, lies, mesh, {*replicated, *pieces})
        return Layout(mesh.axes, (*dims, *[()] * (len(shape) - len(dims))), pieces)


def _other_dialect(dim_specs: Any) -> str:
    """What to call for who means the same in another way."""
    if isinstance(dim_specs, DeviceMapping):
        return "lamina.to_device(x, sharding=mapping) takes a mapping"
    if isinstance(dim_specs, (list, tuple)) and any(isinstance(entry, Placement) for entry in dim_specs):
        return "lamina.to_device(x, sharding=PlacementMapping(mesh, placements)) takes placements"
    return ""


def _replicated(
    replicated_axes: Any, mesh: DeviceMesh, specs: tuple[DimSpec, ...], pieces: dict, problems: Problems
) -> tuple[str, ...]:
    """The axes that must hold copies; nothing else may use them."""
    if replicated_axes is None:
        return ()
    if not isinstance(replicated_axes, Iterable):
        raise TypeError(f"replicated_axes must be names of mesh axes, not {replicated_axes!r}")
    names = (replicated_axes,) if isinstance(replicated_axes, str) else tuple(replicated_axes)
    used = {*(axis for spec in specs for axis in spec.axes), *pieces}
    for name in names:
        if name not in mesh.axis_names:
            problems.add(f"replicated_axes: {name!r} is not an axis of the mesh {mesh}")
        elif name in used:
            spec = spec_text(specs, pieces.items())
            problems.add(f"replicated_axes: axis {name!r} is used by the spec {mesh} {spec}")
    return names


def _closed(specs: tuple[DimSpec, ...], lies: Lies | None, mesh: DeviceMesh, taken: set[str]) -> list[Axes]:
    """The axes of each dim.  An open dim keeps those that x has there already, where nothing else wants them."""
    taken = taken | {axis for spec in specs for axis in spec.axes}
    dims = []
    for dim, spec in enumerate(specs):
        axes = spec.axes
        if spec.is_open and lies is not None and lies[0].axes == mesh.axes:
            axes = _extended(axes, lies[1].dims[dim], taken)
        taken.update(axes)
        dims.append(axes)
    return dims


def _extended(axes: Axes, has: Axes, taken: set[str]) -> Axes:
    if has[: len(axes)] != axes:
        return axes
    free = takewhile(lambda axis: axis not in taken, has[len(axes) :])
    return (*axes, *free)
