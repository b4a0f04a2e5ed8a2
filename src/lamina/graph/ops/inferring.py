"""What several ops' rules of types have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from lamina.errors import LayoutError, with_fix
from lamina.sharding import TensorType
from lamina.sharding.shape import Shape


def typed(dtype: Any, shape: Sequence[Any], like: TensorType) -> TensorType:
    """A type on the device of `like`."""
    return TensorType(jnp.dtype(dtype).name, Shape(shape), like.device)


def broadcast(op: str, shapes: Sequence[Shape]) -> Shape:
    """numpy's broadcasting, with symbolic dims: equal, or 1."""
    rank = max(len(shape) for shape in shapes)
    dims = []
    for place in range(-rank, 0):
        found = [shape[place] for shape in shapes if len(shape) >= -place]
        sizes = list(dict.fromkeys(dim for dim in found if dim != 1))
        if len(sizes) > 1:
            written = " and ".join(map(str, shapes))
            raise LayoutError(
                with_fix(
                    f"{op}: the shapes {written} don't broadcast: dim {place} is {' and '.join(map(str, sizes))}",
                    "make the dims equal or 1; ops.rebind(x, shape) says that two symbolic dims are the same",
                )
            )
        dims.append(sizes[0] if sizes else 1)
    return Shape(dims)


@lru_cache(maxsize=4096)
def dtype_of(function: Any, op: str, *dtypes: str) -> Any:
    """The dtype of `function` of scalars of these dtypes: JAX's own promotion."""
    try:
        return jax.eval_shape(function, *(jax.ShapeDtypeStruct((), jnp.dtype(dtype)) for dtype in dtypes)).dtype
    except (TypeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise LayoutError(
            with_fix(f"{op}: not for {' and '.join(dtypes)}: {why}", "ops.cast(x, dtype) first")
        ) from None


def elementwise(op: str, function: Callable[..., Any]) -> Callable[..., list[TensorType]]:
    """The rule of an op that computes element by element."""

    def infer(types: Sequence[TensorType], attributes: Any) -> list[TensorType]:
        dtype = dtype_of(function, op, *(kind.dtype for kind in types))
        return [typed(dtype, broadcast(op, [kind.shape for kind in types]), types[0])]

    return infer
