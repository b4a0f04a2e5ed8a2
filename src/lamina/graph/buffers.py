"""Memory that a graph may change: what the buffers of a graph are when it runs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamina.engine import compat, transfer
from lamina.engine.storage import whole
from lamina.graph.devices import as_device
from lamina.sharding import CPU, DeviceMesh
from lamina.tensors import Tensor, host_array


class Buffer:
    """A place on a device, or on the devices of a Tensor, whose content `execute` replaces.

    It owns its memory: the content is copied in, and a graph that stores into the buffer reuses it.

    >>> import numpy as np
    >>> from lamina.graph import Buffer, DeviceRef
    >>> buffer = Buffer(np.zeros(3, "float32"), DeviceRef.CPU(1))
    >>> buffer.value.device, buffer.numpy().tolist()
    (CPU(1), [0.0, 0.0, 0.0])
    """

    __slots__ = ("value",)
    value: Tensor

    def __init__(self, content: Any, device: Any = None):
        if isinstance(content, Tensor):
            self.value = Tensor(copied(content._array), content._held)
            return
        home = as_device(CPU(0) if device is None else device, "Buffer(device)")
        data = np.asarray(content) if isinstance(content, jax.Array) else host_array(content, "Buffer")
        held = whole(DeviceMesh.single(home), data.shape)
        self.value = Tensor(copied(transfer.place(data, held)), held)  # in XLA's own memory: numpy's can't be reused

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    def numpy(self) -> np.ndarray:
        """What it holds now, copied to the host: the memory itself may be reused by the next `execute`."""
        return np.array(self.value.numpy())

    def __repr__(self) -> str:
        return f"Buffer({self.dtype.name}{list(self.shape)} on {', '.join(map(repr, self.value.mesh.devices))})"


def copied(array: Any) -> Any:
    """The same in memory of its own; what lies in another process is that one's to copy."""
    return array.copy() if compat.single_arrays(array) else array
