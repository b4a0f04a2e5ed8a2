"""`spmd`: the user's own code for one device, run on every device of a mesh, with Lamina's layouts in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import jax

from lamina.engine import compat, local_code, watching
from lamina.engine.local import differing
from lamina.engine.local_code import Running
from lamina.engine.programs import queue_guard
from lamina.engine.storage import Storage, storage
from lamina.errors import LayoutError, TransformError, explained, with_fix
from lamina.ops.arguments import as_data, described, relocate, shape_of
from lamina.ops.asking import asked_layout
from lamina.sharding import DeviceMapping, DeviceMesh, DimSpec, Layout, Placement, PlacementMapping, TensorLayout
from lamina.sharding.mesh import as_mesh, holding
from lamina.tensors import Tensor


def spmd(
    fn: Callable[..., Any], mesh: DeviceMesh | None, in_mappings: Any, out_mappings: Any, *, checked: bool = True
) -> Callable[..., Any]:
    """`fn` as code for one device: it sees its device's blocks, and may use collectives of `jax.lax` by axis name.

    `in_mappings` has one entry per argument, `out_mappings` one per result (or one for all): a DeviceMapping, dim specs
    such as `["dp", None]`, a list of placements, or a pytree of these where the argument is a pytree.  Arguments are
    brought there first, from any layout.

    What `fn` sees: of a dim over k devices a block of ⌈n/k⌉, filled up with zeros where the dim is uneven
    (`lamina.here()` knows how much of it is valid); of a Partial axis the device's own piece.  What it returns: blocks
    of the same kind.  A result's dim has the size of its block times the devices, or, where a dim of an argument is
    split over the same axes into such blocks, that dim's; a TensorLayout as out mapping says shape and layout itself.
    Padding is zeroed on the way out.

    A result must be the same along the axes that its mapping doesn't name.  JAX proves it (its `check_vma`), and
    refuses code that it can't follow, such as a `scan` whose carry differs between devices only after the first turn:
    `lamina.here().varying(carry)` says that it will; `checked=False` leaves the proof to you.

    The result is differentiable, works under `jax.jit` and `jax.vmap`, and is the same on simulated meshes (there, give
    collectives one axis name at a time).

    >>> import jax, numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2,), ("x",))
    >>> fn = lamina.spmd(lambda a: jax.lax.psum(a.sum(), "x"), mesh, [["x"]], [])
    >>> fn(np.arange(5.0)).item()
    10.0
    """
    with explained("spmd(mesh)"):
        mesh = holding(as_mesh(mesh))
    several = isinstance(out_mappings, list) and not is_mapping(out_mappings)
    return _Code(fn, mesh, tuple(in_mappings), tuple(out_mappings) if several else out_mappings, checked)


class _Code:
    """`fn` with its mappings: what `spmd` returns."""

    def __init__(self, fn: Callable, mesh: DeviceMesh, in_mappings: tuple, out_mappings: Any, checked: bool):
        self.fn, self.mesh, self.checked = fn, mesh, checked
        self.in_mappings, self.out_mappings = in_mappings, out_mappings
        self._decided = lru_cache(maxsize=256)(self._decide)

    def __call__(self, *arguments: Any) -> Any:
        if len(arguments) != len(self.in_mappings):
            fact = f"spmd: {len(arguments)} arguments for {len(self.in_mappings)} in_mappings"
            raise LayoutError(with_fix(fact, "give one mapping per argument"))
        found = [self._brought(x, entry, f"argument {i}") for i, (x, entry) in
                 enumerate(zip(arguments, self.in_mappings, strict=True))]  # fmt: skip
        leaves, tree = jax.tree.flatten(found, is_leaf=_is_tensor)
        operands = tuple(x._held for x in leaves)
        dtypes = tuple(x.dtype for x in leaves)
        decide = self._decided if compat.nothing_is_traced() else self._decide
        run, results, out_tree = decide(operands, dtypes, tree)
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        what = f"spmd {name}: {', '.join(str(held.layout) for held in operands)}"
        made = watching.on(self.mesh, what, run, *(x._array for x in leaves))
        return jax.tree.unflatten(out_tree, [Tensor(x, held) for x, held in zip(made, results, strict=True)])

    def _brought(self, x: Any, entry: Any, name: str) -> Any:
        """Every leaf of an argument as its mapping says."""

        def one(leaf: Any, mapping: Any) -> Tensor:
            value = as_data(leaf, "spmd")
            held = asked_storage(f"spmd({name})", mapping, self.mesh, shape_of(value))
            return relocate(value, held)

        def under(mapping: Any, part: Any) -> Any:
            return jax.tree.map(partial(one, mapping=mapping), part, is_leaf=_is_tensor)

        return jax.tree.map(under, entry, x, is_leaf=is_mapping)

    def _decide(self, operands: tuple[Storage, ...], dtypes: tuple, tree: Any) -> tuple[Callable, tuple, Any]:
        out_tree: Any = None

        def code(*blocks: Any) -> list[Any]:
            nonlocal out_tree
            made, out_tree = jax.tree.flatten(self.fn(*jax.tree.unflatten(tree, blocks)))
            return [jax.numpy.asarray(x) for x in made]

        blocks = local_code.blocks_made(code, self.mesh, operands, dtypes)
        numbered = jax.tree.unflatten(out_tree, list(range(len(blocks))))
        mappings: dict[int, Any] = {}

        def under(mapping: Any, part: Any) -> None:
            mappings.update((number, mapping) for number in jax.tree.leaves(part))

        jax.tree.map(under, self.out_mappings, numbered, is_leaf=is_mapping)
        results = tuple(self._result(i, mappings[i], block, operands) for i, block in enumerate(blocks))
        if self.checked:
            local_code.check_copies(code, self.mesh, operands, results, dtypes)
        run = local_code.program(code, self.mesh, operands, results, self.checked)
        if not compat.nothing_is_traced():
            return run, results, out_tree
        return _guarded(jax.jit(run), self.mesh), results, out_tree

    def _result(self, number: int, entry: Any, block: Any, operands: tuple[Storage, ...]) -> Storage:
        """Where a result lies, and the shape of the whole."""
        name = f"spmd(result {number})"
        if isinstance(entry, TensorLayout):
            held = asked_storage(name, entry, self.mesh, tuple(int(size) for size in entry.shape))
        else:
            layout = asked_storage(name, entry, self.mesh, (0,) * len(block.shape)).layout
            known = _uneven_dims(operands)
            shape = tuple(
                known.get((axes, size), size * blocks)
                for axes, size, blocks in zip(layout.dims, block.shape, layout.grid, strict=True)
            )
            held = storage(self.mesh, layout, shape)
        expected = held.layout.padded_block(held.shape)
        if expected != block.shape:
            fact = f"{name}: fn made a block of shape {block.shape} for {described(held)}, whose blocks are {expected}"
            raise LayoutError(with_fix(fact, "return that shape, or say another in out_mappings"))
        return held


def _uneven_dims(operands: tuple[Storage, ...]) -> dict[tuple, int]:
    """The size of a dim by its axes and its blocks' size, where that isn't their product; none if two differ."""
    found: dict[tuple, set[int]] = {}
    for held in operands:
        for axes, size, block in zip(held.layout.dims, held.shape, held.layout.padded_block(held.shape), strict=True):
            if axes:
                found.setdefault((axes, block), set()).add(size)
    return {key: next(iter(sizes)) for key, sizes in found.items() if len(sizes) == 1}


def _guarded(program: Callable, mesh: DeviceMesh) -> Callable:
    if mesh.is_single or mesh.is_simulated or not compat.queue_is_unsafe():
        return program

    def run(*arrays: Any) -> tuple:
        made = program(*arrays)
        if made:
            queue_guard(made[0])
        return made

    return run


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def is_mapping(entry: Any) -> bool:
    """Is this one tensor's mapping, and not a pytree of several?"""
    if entry is None or isinstance(entry, DeviceMapping):
        return True
    if isinstance(entry, dict) or not isinstance(entry, Iterable) or isinstance(entry, str):
        return False
    parts = list(entry)
    return all(isinstance(part, (str, DimSpec, Placement)) or part is None or _is_axes(part) for part in parts)


def _is_axes(part: Any) -> bool:
    return isinstance(part, tuple) and bool(part) and all(isinstance(axis, str) for axis in part)


def asked_storage(where: str, entry: Any, mesh: DeviceMesh, shape: tuple[int, ...]) -> Storage:
    if not isinstance(entry, DeviceMapping):
        parts = () if entry is None else tuple(entry)
        if not any(isinstance(part, Placement) for part in parts):
            return storage(mesh, asked_layout(where, shape, None, mesh, parts, None, ()), shape)
        entry = PlacementMapping(mesh, parts)
    if entry.mesh != mesh:
        fact = f"{where}: {entry!r} is on {entry.mesh!r}, not on spmd's {mesh!r}"
        raise LayoutError(with_fix(fact, "name the mesh of spmd in the mapping, or give dim specs"))
    with explained(where, shape=shape, mesh=mesh):
        layout: Layout = entry.layout(len(shape))
    return storage(mesh, layout, shape)


class Place:
    """Where local code runs: what a function under `spmd` may ask of its device.  `lamina.here()` makes one."""

    __slots__ = ("_running",)

    def __init__(self, running: Running):
        self._running = running

    def index(self, *axes: str) -> Any:
        """The device's position along these axes (major to minor), as one number; without axes, in the whole mesh."""
        return self._running.here.index(axes or self._running.mesh.axis_names)

    def start(self, block: Any, dim: int) -> Any:
        """Where the block of an argument begins in the whole dim."""
        return self._running.here.start(self._held(block), dim)

    def length(self, block: Any, dim: int) -> Any:
        """How many entries of an argument's block are not padding."""
        return self._running.here.length(self._held(block), dim)

    def size(self, block: Any, dim: int) -> int:
        """The size of the whole dim."""
        return self._held(block).shape[dim]

    def positions(self, block: Any, dim: int) -> Any:
        """For each entry of an argument's block along a dim: which entry of the whole dim it is; past the end for
        padding."""
        return self._running.here.positions(self._held(block), dim)

    def varying(self, x: Any, *axes: str) -> Any:
        """x, the same on all devices now, for JAX to take as something that may differ: what a loop starts from.

        Without axes: along all those along which some argument differs.
        """
        if not self._running.follows:
            return x
        names = axes or differing(self._running.here.operands)
        return jax.tree.map(lambda leaf: compat.varying(leaf, names), x)

    def _held(self, block: Any) -> Storage:
        for one, held in zip(self._running.blocks, self._running.here.operands, strict=True):
            if one is block and held is not None:
                return held
        fact = "lamina.here() knows only the blocks that fn was given, not what was computed from them"
        raise TransformError(with_fix(fact, "pass the argument itself"))


def here() -> Place:
    """Inside a function under `lamina.spmd`: where its device stands, and what of its blocks is valid.

    >>> import jax.numpy as jnp, numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2,), ("x",))
    >>> def mine(block):
    ...     place = lamina.here()
    ...     return jnp.stack([place.start(block, 0), place.length(block, 0)])[None]
    >>> lamina.spmd(mine, mesh, [["x"]], ["x"])(np.zeros(5)).tolist()
    [[0, 3], [3, 2]]
    """
    running = local_code.running()
    if running is None:
        fact = "lamina.here() is asked outside of local code"
        raise TransformError(with_fix(fact, "call it inside a function that runs under lamina.spmd"))
    return Place(running)


__all__ = ["here", "spmd"]
