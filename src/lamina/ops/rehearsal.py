"""A rehearsal: an op runs on shapes alone, on a simulated mesh, and what it decides on the way is written down.

Nothing is computed and no device is needed, so the mesh may be an abstract one of any size.  Every op of Lamina, and
any function made of them, can be rehearsed, for they all decide in `ops.compute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax

from lamina.engine.primitive import route
from lamina.engine.programs import Options
from lamina.engine.storage import Storage, storage
from lamina.planning import Topology
from lamina.planning.choice import Choice, choices
from lamina.planning.explanation import Operand, Stage
from lamina.planning.wishes import Wishes
from lamina.rules import Factors
from lamina.sharding import DeviceMesh, DimSpec, Layout
from lamina.tensors import Tensor

Specs = tuple[DimSpec, ...]


class Rehearsal:
    """What is decided while an op is rehearsed on these links.

    `first` is, for each operand that a stage took as it was given, how the first such stage required it.
    """

    def __init__(self, links: Topology):
        self.links = links
        self.stages: list[Stage] = []
        self.first: dict[int, Layout] = {}
        self._given: list[tuple[Any, int, Specs | None]] = []

    def give(self, array: Any, number: int, specs: Specs | None) -> None:
        """From here on this array is known as an operand, and what its spec asks for."""
        self._given.append((array, number, specs))

    def weigh(
        self, name: str, arrays: Sequence[Any], sources: Sequence[Storage | None]
    ) -> Callable[[Factors, Sequence[Layout], Sequence[float], Layout | None], Choice]:
        """Chooses for `ops.compute`, and writes it down."""

        def chosen(
            factors: Factors, layouts: Sequence[Layout], itemsizes: Sequence[float], wanted: Layout | None
        ) -> Choice:
            known = [self._known(x) for x in arrays]
            wishes = Wishes.of([None if one is None else one[1] for one in known], layouts)
            every = choices(factors, layouts, itemsizes, self.links, wanted, wishes)
            way = every[0].way
            for one, required in zip(known, way.required, strict=True):
                if one is not None:
                    self.first.setdefault(one[0], required)
            operands = tuple(
                self._operand(held, required, itemsize)
                for held, required, itemsize in zip(sources, way.required, itemsizes, strict=True)
                if held is not None
            )
            results = tuple(zip(factors.result_shapes, way.results, strict=True))
            self.stages.append(Stage(name, operands, results, every))
            return every[0]

        return chosen

    def inside(self, received: float) -> None:
        """What a device receives while the last stage runs."""
        self.stages[-1] = replace(self.stages[-1], inside=received)

    def moved(self, x: Any, source: Storage, target: Storage, itemsize: float) -> None:
        """A tensor is brought to another layout between two ops."""
        if source.mesh == target.mesh and source.layout != target.layout:
            if (one := self._known(x)) is not None:
                self.first.setdefault(one[0], target.layout)
            result = (target.shape, target.layout)
            self.stages.append(Stage("shard", (self._operand(source, target.layout, itemsize),), (result,)))

    def _known(self, x: Any) -> tuple[int, Specs | None] | None:
        return next(((number, specs) for array, number, specs in self._given if array is x), None)

    def _operand(self, held: Storage, required: Layout, itemsize: float) -> Operand:
        steps = route(held, held.with_layout(required), Options(topology=self.links))
        return Operand(held.shape, held.layout, required, tuple(step.plan(itemsize) for step in steps))


_current: ContextVar[Rehearsal | None] = ContextVar("lamina_rehearsal", default=None)


def current() -> Rehearsal | None:
    """The rehearsal that is on."""
    return _current.get()


@contextmanager
def _on(rehearsal: Rehearsal) -> Iterator[None]:
    token = _current.set(rehearsal)
    try:
        yield
    finally:
        _current.reset(token)


def rehearse(
    fn: Callable[..., Any], operands: Sequence[Any], specs: Sequence[Specs | None], links: Topology
) -> tuple[Rehearsal, list[Tensor]]:
    """The rehearsal, and the Tensors that `fn` makes (shapes in place of arrays).

    `operands` are stand-ins (see `stand_in`), and whatever else `fn` takes.
    """
    rehearsal = Rehearsal(links)
    which = [i for i, x in enumerate(operands) if isinstance(x, Tensor)]

    def run(*tensors: Tensor) -> Any:
        full = list(operands)
        for i, t in zip(which, tensors, strict=True):
            full[i] = t
            rehearsal.give(t._array, i, specs[i])
        return fn(*full)

    with _on(rehearsal):
        made = jax.eval_shape(run, *(operands[i] for i in which))
    return rehearsal, [leaf for leaf in jax.tree.leaves(made, is_leaf=_is_tensor) if _is_tensor(leaf)]


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def stand_in(dtype: Any, shape: tuple[int, ...], layout: Layout, mesh: DeviceMesh) -> Tensor:
    """A Tensor of a shape alone, on a simulated mesh like this one."""
    held = storage(DeviceMesh.simulated(mesh.mesh_shape, mesh.axis_names), layout, shape)
    return Tensor(jax.ShapeDtypeStruct(held.array_shape, dtype), held)
