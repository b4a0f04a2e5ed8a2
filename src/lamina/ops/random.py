"""`lamina.random`: the numbers of `jax.random`, made where they lie.

For one key the numbers are those that `jax.random` gives for the whole array, whatever the mesh and layout.  Each
device makes just its own block, uneven ones too, and nothing is communicated; in and out of `jax.jit`.  (That holds for
JAX's default generator; with another one each device makes everything and keeps its part.)

Where the numbers shall lie is said as in `lamina.shard`: `mesh` and `dim_specs`, or a DeviceMapping as `mesh`.  Without
them, the mesh of `with mesh:`, else the default device.

>>> import jax, numpy as np, lamina
>>> key, mesh = jax.random.key(0), lamina.DeviceMesh.simulated((2, 2), ("x", "y"))
>>> x = lamina.random.normal(key, (5, 3), mesh=mesh, dim_specs=["x", "y"])
>>> x.shards[0].shape, bool(np.allclose(x.numpy(), jax.random.normal(key, (5, 3))))
((3, 2), True)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import inventory, randomness
from lamina.engine.storage import Storage, storage, whole
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops import elementwise, indexing
from lamina.ops.applying import apply
from lamina.ops.arguments import as_data, relayout
from lamina.ops.asking import asked_layout
from lamina.ops.dims import as_dim
from lamina.sharding import DeviceMapping, DeviceMesh
from lamina.sharding.mesh import ambient_mesh, as_mesh, holding
from lamina.tensors import Tensor, tensor

Shape = Sequence[int]


def uniform(
    key: Any,
    shape: Shape = (),
    dtype: Any = float,
    minval: float = 0.0,
    maxval: float = 1.0,
    *,
    mesh: Any = None,
    dim_specs: Any = (),
) -> Tensor:
    """Evenly distributed numbers from minval up to, not including, maxval.

    >>> import jax, lamina
    >>> lamina.random.uniform(jax.random.key(0), (4,)).shape
    (4,)
    """
    bounds = _number("uniform", "minval", minval), _number("uniform", "maxval", maxval)
    return _drawn("uniform", jax.random.uniform, key, shape, (_float(dtype), *bounds), mesh, dim_specs)


def normal(key: Any, shape: Shape = (), dtype: Any = float, *, mesh: Any = None, dim_specs: Any = ()) -> Tensor:
    """Normally distributed numbers with mean 0 and variance 1.

    >>> import jax, lamina
    >>> lamina.random.normal(jax.random.key(0), (4,)).shape
    (4,)
    """
    return _drawn("normal", jax.random.normal, key, shape, (_float(dtype),), mesh, dim_specs)


def truncated_normal(
    key: Any,
    lower: float,
    upper: float,
    shape: Shape = (),
    dtype: Any = float,
    *,
    mesh: Any = None,
    dim_specs: Any = (),
) -> Tensor:
    """Normally distributed numbers between two bounds.

    >>> import jax, lamina
    >>> lamina.random.truncated_normal(jax.random.key(0), -2, 2, (4,)).shape
    (4,)
    """
    bounds = _number("truncated_normal", "lower", lower), _number("truncated_normal", "upper", upper)
    return _drawn("truncated_normal", _truncated, key, shape, (*bounds, _float(dtype)), mesh, dim_specs)


def _truncated(key: Any, shape: tuple[int, ...], lower: float, upper: float, dtype: Any) -> Any:
    return jax.random.truncated_normal(key, lower, upper, shape, dtype)


def gumbel(key: Any, shape: Shape = (), dtype: Any = float, *, mesh: Any = None, dim_specs: Any = ()) -> Tensor:
    """Gumbel-distributed numbers: logits + gumbel, and the argmax of it, draws from softmax(logits).

    >>> import jax, lamina
    >>> lamina.random.gumbel(jax.random.key(0), (4,)).shape
    (4,)
    """
    return _drawn("gumbel", jax.random.gumbel, key, shape, (_float(dtype),), mesh, dim_specs)


def randint(
    key: Any, shape: Shape, minval: int, maxval: int, dtype: Any = int, *, mesh: Any = None, dim_specs: Any = ()
) -> Tensor:
    """Evenly distributed integers from minval up to, not including, maxval.

    >>> import jax, lamina
    >>> lamina.random.randint(jax.random.key(0), (4,), 0, 10).shape
    (4,)
    """
    bounds = int(_number("randint", "minval", minval)), int(_number("randint", "maxval", maxval))
    return _drawn("randint", jax.random.randint, key, shape, (*bounds, jnp.zeros((), dtype).dtype), mesh, dim_specs)


def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None, *, mesh: Any = None, dim_specs: Any = ()) -> Tensor:
    """True with probability p.  Where p is a Tensor the result has its shape and lies as it does.

    >>> import jax, lamina
    >>> lamina.random.bernoulli(jax.random.key(0), 0.25, (4,)).dtype.name
    'bool'
    """
    if isinstance(p, Tensor):
        if shape is not None and tuple(shape) != p.shape:
            fact = f"bernoulli(p, shape={tuple(shape)}): p has shape {p.shape}"
            raise LayoutError(with_fix(fact, "leave shape out, or broadcast p to it"))
        even = _made(jax.random.uniform, key, p._held.without_pieces().with_kind(None), (p.dtype,))
        return elementwise.less(even, p)
    params = (_number("bernoulli", "p", p),)
    return _drawn("bernoulli", _bernoulli, key, () if shape is None else shape, params, mesh, dim_specs)


def _bernoulli(key: Any, shape: tuple[int, ...], p: float) -> Any:
    return jax.random.bernoulli(key, p, shape)


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, mesh: Any = None, dim_specs: Any = ()
) -> Tensor:
    """x with its entries along `axis` in random order; of an integer, the numbers below it.

    Each device makes the whole order (one integer per entry), and receives just the rows that it lacks.  With
    `independent` every row along the axis has an order of its own, and XLA moves what that takes.

    >>> import jax, lamina
    >>> sorted(lamina.random.permutation(jax.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        return _drawn("permutation", _order, key, (int(x),), (), mesh, dim_specs, by_block=False)
    x = x if isinstance(x, Tensor) else tensor(as_data(x, "permutation"))
    with explained(f"permutation(axis={axis!r})", shape=x.shape):
        dim = as_dim(axis, x.ndim)
    if independent:
        return apply(_shuffled, key, x, axis=dim, out=x.sharding)
    order = _whole_order(key, x.mesh, x.shape[dim])
    return indexing.take(x, order, axis=dim)


def _order(key: Any, shape: tuple[int, ...]) -> Any:
    return jax.random.permutation(key, shape[0])


def _shuffled(key: Any, x: Any, axis: int) -> Any:
    return jax.random.permutation(key, x, axis, independent=True)


def _whole_order(key: Any, mesh: DeviceMesh, size: int) -> Tensor:
    return _made(_order, key, whole(mesh, (size,)), (), by_block=False)


def dropout(key: Any, x: Any, rate: float) -> Any:
    """x with each entry zero with probability `rate`, and the others larger by as much: the mean stays.

    >>> import jax, numpy as np, lamina
    >>> sorted(set(lamina.random.dropout(jax.random.key(0), np.ones(100), 0.5).tolist()))
    [0.0, 2.0]
    """
    rate = _number("dropout", "rate", rate)
    if not 0 <= rate < 1:
        raise ValueError(f"dropout(rate={rate}): it must be at least 0, and less than 1")
    x = x if isinstance(x, Tensor) else tensor(as_data(x, "dropout"))
    if not rate:
        return x
    kept = _made(_bernoulli, key, x._held.without_pieces().with_kind(None), (1 - rate,))
    return elementwise.where(kept, elementwise.divide(x, 1 - rate), 0)


# -- arguments --------------------------------------------------------------------------------------------------------


def _drawn(
    name: str,
    draw: randomness.Draw,
    key: Any,
    shape: Shape,
    params: tuple,
    mesh: Any,
    dim_specs: Any,
    by_block: bool = True,
) -> Tensor:
    try:
        sizes = tuple(int(size) for size in shape)
    except TypeError:
        raise TypeError(f"random.{name}(shape) must be a tuple of sizes, not {shape!r}") from None
    return _made(draw, key, _place(name, sizes, mesh, dim_specs), params, by_block)


def _made(draw: randomness.Draw, key: Any, held: Storage, params: tuple, by_block: bool = True) -> Tensor:
    """Numbers for each block, and as pieces, if that is asked for, after that."""
    plain = held.without_pieces()
    data = key._array if isinstance(key, Tensor) else jnp.asarray(key)
    return relayout(Tensor(randomness.drawn(draw, data, plain, params, by_block), plain), held)


def _place(name: str, shape: tuple[int, ...], mesh: Any, dim_specs: Any) -> Storage:
    verb = f"random.{name}"
    if isinstance(mesh, DeviceMapping):
        with explained(f"{verb}(mesh={mesh!r})", shape=shape):
            return storage(mesh.mesh, mesh.layout(len(shape)), shape)
    if mesh is None and ambient_mesh() is None:
        mesh = DeviceMesh.single(inventory.default_device())
    with explained(f"{verb}(mesh)"):
        there = holding(as_mesh(mesh))
    return storage(there, _layout(verb, shape, there, dim_specs), shape)


def _layout(verb: str, shape: tuple[int, ...], mesh: DeviceMesh, dim_specs: Any) -> Any:
    try:
        return _known_layout(verb, shape, mesh, tuple(dim_specs))
    except TypeError:
        return asked_layout(verb, shape, None, mesh, dim_specs, None, ())


@lru_cache(maxsize=4096)
def _known_layout(verb: str, shape: tuple[int, ...], mesh: DeviceMesh, dim_specs: tuple) -> Any:
    return asked_layout(verb, shape, None, mesh, dim_specs, None, ())


def _float(dtype: Any) -> Any:
    return jnp.zeros((), dtype).dtype


def _number(name: str, argument: str, value: Any) -> Any:
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return value if isinstance(value, (int, float)) else value.item()
    raise TypeError(f"random.{name}({argument}) must be a number, not {value!r}")


__all__ = [
    "bernoulli",
    "dropout",
    "gumbel",
    "normal",
    "permutation",
    "randint",
    "truncated_normal",
    "uniform",
]
