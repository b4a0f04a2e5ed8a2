"""Normalisations along dims: softmax, layer norm and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamina.ops import elementwise, reduction
from lamina.ops.compute import Kernel, compute, settled
from lamina.ops.reduction import Dims, dims_of, finite_peak, floating, is_split, mean, resolved, sum
from lamina.rules.nn import along
from lamina.tensors import Tensor


def _zero(dtype: Any) -> Any:
    """Rows of padding: any finite value gives finite results."""
    return 0


def _kernel(name: str, body: Callable[..., Any]) -> Kernel:
    """`body(*blocks, dims, eps)`; what it normalises along is whole on the device."""
    return Kernel(name, lambda shapes, dims, *_: along(shapes, dims), lambda here, *arguments: body(*arguments), _zero)


def _normalised(x: Any, mean_of_squares: Any, eps: float) -> Any:
    return x * jax.lax.rsqrt(mean_of_squares + eps)


def _layer_norm(x: Any, *more: Any) -> Any:
    *affine, dims, eps, has_scale = more
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    away = wide - jnp.mean(wide, dims, keepdims=True)
    made = _normalised(away, jnp.mean(jnp.square(away), dims, keepdims=True), eps)
    return _affine(made, affine, has_scale, jnp.multiply, jnp.add).astype(x.dtype)


def _rms_norm(x: Any, *more: Any) -> Any:
    *affine, dims, eps, has_scale = more
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    made = _normalised(wide, jnp.mean(jnp.square(wide), dims, keepdims=True), eps)
    return _affine(made, affine, has_scale, jnp.multiply, jnp.add).astype(x.dtype)


def _affine(made: Any, affine: Any, has_scale: bool, multiply: Any, add: Any) -> Any:
    """Scaled and shifted by what there is of the two, scale first."""
    for operand, is_scale in zip(affine, (has_scale, False), strict=False):
        made = multiply(made, operand) if is_scale else add(made, operand)
    return made


_SOFTMAX = _kernel("softmax", lambda x, dims: jax.nn.softmax(x, dims))
_LOG_SOFTMAX = _kernel("log_softmax", lambda x, dims: jax.nn.log_softmax(x, dims))
_LAYER_NORM = _kernel("layer_norm", _layer_norm)
_RMS_NORM = _kernel("rms_norm", _rms_norm)
_MAX = reduction.KERNELS["max"]  # what looks at whole rows of x takes it as a maximum does
KERNELS = {kernel.name: kernel for kernel in (_SOFTMAX, _LOG_SOFTMAX, _LAYER_NORM, _RMS_NORM)}


def softmax(x: Any, axis: Dims = -1) -> Any:
    """exp(x) / Σ exp(x) along `axis`, as `jax.nn.softmax`.  Along a split dim a maximum and a sum per row move.

    >>> import numpy as np, lamina
    >>> x = lamina.shard(np.zeros((2, 4)), lamina.DeviceMesh.simulated((2,), ("tp",)), [None, "tp"])
    >>> lamina.softmax(x).tolist()[0], lamina.softmax(x).placements
    ([0.25, 0.25, 0.25, 0.25], (Sharded(1),))
    """
    x = floating(x)
    dims = dims_of("softmax", x, axis)
    if not is_split(x, dims):
        return compute(_SOFTMAX, (x,), (dims,))
    x = settled(_MAX, x, (dims, True))
    grown = elementwise.exp(elementwise.subtract(x, finite_peak(x, dims)))
    return elementwise.divide(grown, resolved(sum(grown, dims, keepdims=True)))


def log_softmax(x: Any, axis: Dims = -1) -> Any:
    """log(softmax(x)) along `axis`, without overflow.  Along a split dim a maximum and a sum per row move.

    >>> import lamina
    >>> lamina.log_softmax(lamina.tensor([5.0])).tolist()
    [0.0]
    """
    x = floating(x)
    dims = dims_of("log_softmax", x, axis)
    if not is_split(x, dims):
        return compute(_LOG_SOFTMAX, (x,), (dims,))
    x = settled(_MAX, x, (dims, True))
    lowered = elementwise.subtract(x, finite_peak(x, dims))
    total = resolved(sum(elementwise.exp(lowered), dims, keepdims=True))
    return elementwise.subtract(lowered, elementwise.log(total))


def layer_norm(x: Any, scale: Any = None, bias: Any = None, axis: Dims = -1, eps: float = 1e-5) -> Any:
    """(x - mean) / √(variance + eps) along `axis`, times scale, plus bias; computed in float32 at least.

    Along a split dim a mean and a variance per row move.

    >>> import lamina
    >>> lamina.layer_norm(lamina.tensor([1.0, 3.0]), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    x = floating(x)
    dims = dims_of("layer_norm", x, axis)
    affine = tuple(operand for operand in (scale, bias) if operand is not None)
    if not is_split(x, dims):
        return compute(_LAYER_NORM, (x, *affine), (dims, float(eps), scale is not None))
    wide = _wide(settled(_MAX, x, (dims, True)))
    away = elementwise.subtract(wide, resolved(mean(wide, dims, keepdims=True)))
    return _finished(away, x, affine, dims, eps, scale is not None)


def rms_norm(x: Any, scale: Any = None, axis: Dims = -1, eps: float = 1e-6) -> Any:
    """x / √(mean(x²) + eps) along `axis`, times scale; computed in float32 at least.

    Along a split dim a mean per row moves.

    >>> import lamina
    >>> lamina.rms_norm(lamina.tensor([3.0, -3.0]), eps=0.0).tolist()
    [1.0, -1.0]
    """
    x = floating(x)
    dims = dims_of("rms_norm", x, axis)
    affine = () if scale is None else (scale,)
    if not is_split(x, dims):
        return compute(_RMS_NORM, (x, *affine), (dims, float(eps), scale is not None))
    return _finished(_wide(settled(_MAX, x, (dims, True))), x, affine, dims, eps, scale is not None)


def _wide(x: Tensor) -> Tensor:
    return elementwise.astype(x, jnp.promote_types(x.dtype, jnp.float32))


def _finished(away: Tensor, x: Tensor, affine: tuple, dims: tuple[int, ...], eps: float, has_scale: bool) -> Any:
    """What both norms do where the dims are split, after one has taken the mean away."""
    spread = resolved(mean(elementwise.square(away), dims, keepdims=True))
    made = elementwise.multiply(away, elementwise.rsqrt(elementwise.add(spread, float(eps))))
    return elementwise.astype(_affine(made, affine, has_scale, elementwise.multiply, elementwise.add), x.dtype)


__all__ = ["layer_norm", "log_softmax", "rms_norm", "softmax"]
