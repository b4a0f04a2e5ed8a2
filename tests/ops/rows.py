"""What a row of the table of ops says, and how an operand's value is drawn."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import lamina
from tests.strategies import numpy_dtype


@dataclass(frozen=True)
class Operand:
    """An operand's shape and dtype, and between what its values lie.

    Floats are multiples of 1/64, so that pieces of them add up exactly; `ties` makes them whole numbers.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = -3.0
    high: float = 3.0
    ties: bool = False

    def draw(self, seed: int) -> np.ndarray:
        random, kind = np.random.default_rng(seed), numpy_dtype(self.dtype)
        if kind.kind == "b":
            return random.integers(0, 2, self.shape).astype(kind)
        if kind.kind in "iu":
            low = max(self.low, 0) if kind.kind == "u" else self.low
            return random.integers(int(low), int(self.high) + 1, self.shape).astype(kind)
        step = 1 if self.ties else 64
        drawn = [random.integers(round(self.low * step), round(self.high * step) + 1, self.shape) for _ in range(2)]
        real = (drawn[0] / step).astype(kind)
        return (real + kind.type(1j) * (drawn[1] / step).astype(kind)).astype(kind) if kind.kind == "c" else real


@dataclass(frozen=True)
class Row:
    """One op on operands of these shapes: what it is tested with, on all of their layouts.

    `op` takes Tensors, `oracle` the same values as plain arrays; without them they are `lamina.<name>` and
    `jnp.<name>`.  `case` tells several rows of one op apart.  `gradient`: is it differentiable?  (Only with respect to
    float and complex operands.)  `tolerance` is relative, of values and gradients.
    """

    name: str
    operands: tuple[Operand, ...]
    op: Callable[..., Any] | None = None
    oracle: Callable[..., Any] | None = None
    case: str = ""
    gradient: bool = True
    tolerance: float = 2e-5

    def __str__(self) -> str:
        return f"{self.name}-{self.case}" if self.case else self.name

    @property
    def run(self) -> Callable[..., Any]:
        return self.op or getattr(lamina, self.name)

    @property
    def expected(self) -> Callable[..., Any]:
        return self.oracle or getattr(jnp, self.name)

    @property
    def seed(self) -> int:
        return zlib.crc32(str(self).encode())

    def values(self) -> list[np.ndarray]:
        """The operands' global values, the same in every run."""
        return [operand.draw(self.seed + i) for i, operand in enumerate(self.operands)]

    @property
    def differentiable(self) -> list[int]:
        """The operands that gradients are taken for."""
        if not self.gradient:
            return []
        return [i for i, operand in enumerate(self.operands) if numpy_dtype(operand.dtype).kind in "fc"]
