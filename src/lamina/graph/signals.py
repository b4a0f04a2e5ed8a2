"""`Signals`: the buffers on which the participants of collectives meet.

In MAX they are memory that kernels use to wait for each other.  JAX's collectives wait by themselves, so here they are
one byte each; what they say stays the same: who takes part, and in which order a device takes part in what.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lamina.errors import LayoutError, with_fix
from lamina.graph.buffers import Buffer
from lamina.graph.devices import as_device
from lamina.sharding import BufferType
from lamina.sharding.shape import Shape


class Signals:
    """A signal buffer on each device: `input_types()` for the graph, `buffers()` for its execution.

    >>> from lamina.graph import DeviceRef, Signals
    >>> signals = Signals([DeviceRef.CPU(0), DeviceRef.CPU(1)])
    >>> [str(kind) for kind in signals.input_types()], len(signals.buffers())
    (['uint8[1] @ CPU(0)', 'uint8[1] @ CPU(1)'], 2)
    """

    def __init__(self, devices: Iterable[Any]):
        self.devices = [as_device(device, "Signals(devices)") for device in devices]
        if len(set(self.devices)) < len(self.devices):
            raise LayoutError(with_fix(f"Signals(devices={self.devices}): a device stands twice", "name each once"))

    def input_types(self) -> list[BufferType]:
        """The types of the buffers, as inputs of a graph."""
        return [BufferType("uint8", Shape((1,)), device) for device in self.devices]

    def buffers(self) -> list[Buffer]:
        """The buffers themselves, for `model.execute(*inputs, *signals.buffers())`."""
        return [Buffer(np.zeros(1, np.uint8), device) for device in self.devices]
