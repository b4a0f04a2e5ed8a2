"""What the tests of graphs share: devices, data, and one way to run a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.graph import DeviceRef, Graph, InferenceSession, TensorType

ALL = [DeviceRef.CPU(i) for i in range(8)]
DTYPES = ("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "complex64")


def devices(count: int) -> list[Any]:
    """So many devices, not in the order of JAX's."""
    return ALL[:count][::-1]


def data(shape: Sequence[int], dtype: Any = "float32", seed: int = 0) -> np.ndarray:
    """Small numbers of either sign, exact in every dtype."""
    numbers = np.random.default_rng(seed).integers(-4, 5, size=tuple(shape))
    kind = jnp.dtype(dtype)
    if kind == np.bool_:
        return numbers > 0
    return (numbers % 5 if kind.kind == "u" else numbers).astype(kind)


def run(
    build: Callable[..., Any], inputs: Sequence[np.ndarray], places: Sequence[Any], symbols: Any = None
) -> list[Any]:
    """The outputs of the graph that `build` traces, as numpy arrays; `symbols` names the inputs' dims."""
    shapes = symbols or [x.shape for x in inputs]
    kinds = [TensorType(x.dtype, s, d) for x, s, d in zip(inputs, shapes, places, strict=True)]
    model = InferenceSession().load(Graph("test", build, kinds))
    return [check_place(t, kind) for t, kind in zip(model.execute(*inputs), model.graph.outputs, strict=True)]


def check_place(t: Any, value: Any) -> np.ndarray:
    """The numbers; they must lie on the device, and have the dtype, that the graph said."""
    assert t.device == value.device and t.dtype == jnp.dtype(value.dtype), (t, value)
    assert t.jax().devices() == {jax.devices()[value.device.id]}
    return t.numpy()
