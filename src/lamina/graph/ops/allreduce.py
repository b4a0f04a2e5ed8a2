"""`ops.allreduce.sum(inputs, signal_buffers)`, and `max`, `min`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamina.graph.ops.collectives import allreduce
from lamina.graph.values import TensorValue


def sum(inputs: Iterable[Any], signal_buffers: Any = None) -> list[TensorValue]:
    """The sum of all inputs, on every input's device."""
    return allreduce("sum", inputs, signal_buffers)


def max(inputs: Iterable[Any], signal_buffers: Any = None) -> list[TensorValue]:
    """The largest of all inputs, element by element, on every input's device."""
    return allreduce("max", inputs, signal_buffers)


def min(inputs: Iterable[Any], signal_buffers: Any = None) -> list[TensorValue]:
    """The smallest of all inputs, element by element, on every input's device."""
    return allreduce("min", inputs, signal_buffers)
