"""How the catalogue is written: a row is a user's mistake, and what the message must say about it.

A message of a public function names the function and the argument, states the fact with the offending value, shows the
layout, and says once what would fix it.  Its order is `function(argument…): fact`, then lines `  name: value`, then
`  fix: …`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import lamina
from lamina import CPU, DeviceMesh, LayoutError, NamedMapping, Tensor


class World:
    """What the mistakes are made with: real meshes over the 8 virtual CPU devices, and tensors on them."""

    def __init__(self) -> None:
        self.host = np.arange(64, dtype="float32").reshape(8, 8)
        self.mesh = DeviceMesh.create((2, 4), ("dp", "tp"))
        self.four = DeviceMesh.create((4,), ("x",))
        self.backwards = DeviceMesh([CPU(i) for i in (3, 2, 1, 0)], (4,), ("x",))
        self.abstract = DeviceMesh.abstract((2, 4), ("dp", "tp"))
        self.simulated = DeviceMesh.simulated((2,), ("x",))
        self.rows = lamina.shard(self.host, self.mesh, ["dp", None])  # copies along tp
        self.both = lamina.shard(self.host, self.mesh, ["dp", "tp"])
        self.sums = lamina.shard(self.host, self.mesh, ["dp"], partial=["tp"])
        self.maxima = lamina.shard(self.host, self.mesh, ["dp"], partial={"tp": "max"})
        self.even = lamina.shard(np.arange(8, dtype="float32"), self.four, ["x"])
        self.uneven = lamina.shard(np.arange(10, dtype="float32"), self.four, ["x"])
        self.scalar = lamina.shard(np.float32(3), self.four, [])

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def split(self, mesh: DeviceMesh, *spec: Any) -> NamedMapping:
        return NamedMapping(mesh, spec)


@lru_cache(maxsize=1)
def the_world() -> tuple[World, dict[str, np.ndarray]]:
    world = World()
    return world, {name: value.numpy() for name, value in world.tensors().items()}


@dataclass(frozen=True)
class Mistake:
    what: str
    call: Callable[[World], object]
    says: str | Sequence[str]  # sentences of the message, as they are printed
    error: type[Exception] = LayoutError
    where: str = ""  # how the message begins: the function, often with the argument
    shows: str = ""  # the layout or the mesh that it shows
    fix: str | None = field(default="")  # words of its one line `fix: …`; None: Python's own TypeError, needs none


def table(*mistakes: Mistake) -> pytest.MarkDecorator:
    names = [mistake.what for mistake in mistakes]
    assert len(set(names)) == len(names), "two rows have one name"
    return pytest.mark.parametrize("mistake", mistakes, ids=names)


def check(mistake: Mistake) -> str:
    """Makes the mistake; the message says everything, and everything that was there is still usable."""
    world, before = the_world()
    with pytest.raises(mistake.error) as caught:
        mistake.call(world)
    message = str(caught.value)
    assert type(caught.value) is mistake.error, message
    for sentence in [mistake.says] if isinstance(mistake.says, str) else mistake.says:
        assert sentence in message, f"{sentence!r} isn't said:\n{message}"
    assert message.startswith(mistake.where), f"it doesn't begin with {mistake.where!r}:\n{message}"
    assert mistake.shows in message, f"it doesn't show {mistake.shows!r}:\n{message}"
    if mistake.fix is not None:
        assert message.count("fix:") == 1, f"one line must say what would fix it:\n{message}"
        assert mistake.fix in message.partition("fix:")[2], f"the fix isn't {mistake.fix!r}:\n{message}"
    for name, tensor in world.tensors().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])
    return message
