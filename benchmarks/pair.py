"""One pair of layouts, measured."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.compiling import Answer
from benchmarks.figures import ratio
from benchmarks.layouts import Family, block_bytes
from lamina.sharding import Layout

SLACK = 1 + 1e-9  # sums of the same bytes in another order


@dataclass(frozen=True)
class Measured:
    """One pair: what the plan says, and what the compilers answered, where they were asked."""

    family: Family
    source: Layout
    target: Layout
    received: float
    bound: float
    counted_bound: float | None
    peak: float
    steps: str
    jax: Answer | None = None
    compiled: Answer | None = None

    @property
    def ratio(self) -> float:
        return ratio(self.received, self.bound)

    @property
    def jax_ratio(self) -> float | None:
        return ratio(self.jax.mean, self.bound) if self.jax is not None and self.jax.crash is None else None

    @property
    def held(self) -> int:
        """The bytes of a source and a target block together."""
        return block_bytes(self.source, self.family.shape) + block_bytes(self.target, self.family.shape)

    @property
    def above_jax(self) -> bool:
        if self.jax is None or self.jax.crash is not None:
            return False
        ran = self.compiled.mean if self.compiled is not None and self.compiled.crash is None else 0.0
        return max(self.received, ran) > self.jax.mean * SLACK

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target.__str__().partition('] ')[2]} {list(self.family.shape)}"
