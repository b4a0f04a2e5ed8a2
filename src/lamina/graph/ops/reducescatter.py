"""`ops.reducescatter.sum(inputs, signal_buffers, axis)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamina.graph.ops.collectives import reduce_scatter
from lamina.graph.values import TensorValue


def sum(inputs: Iterable[Any], signal_buffers: Any = None, axis: int = -1) -> list[TensorValue]:
    """Each device's part along `axis` of the sum of all inputs; uneven parts differ by at most 1, larger first."""
    return reduce_scatter("sum", inputs, signal_buffers, axis)
