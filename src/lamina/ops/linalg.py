"""Products that are summed over shared dims: `einsum`, `matmul`, `tensordot` and their kin.

A split dim that is summed makes pieces: `x @ w` with both split along the shared dim is Partial, and nothing moves
until its value is needed.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lamina.errors import LayoutError, explained, with_fix
from lamina.ops.compute import Kernel, compute
from lamina.ops.dims import as_dims
from lamina.rules import contraction
from lamina.rules.elementwise import letters


def _zero(dtype: Any) -> Any:
    """Padding adds nothing to a sum of products."""
    return 0


def _einsum_rule(shapes: Any, subscripts: str, precision: Any, dtype: Any) -> Any:
    return contraction.einsum(shapes, subscripts)


def _einsum(here: Any, *blocks: Any) -> Any:
    *operands, subscripts, precision, dtype = blocks
    return jnp.einsum(subscripts, *operands, precision=precision, preferred_element_type=dtype)


_EINSUM = Kernel("einsum", _einsum_rule, _einsum, _zero)
_MATMUL = Kernel(
    "matmul",
    lambda shapes, precision, dtype: contraction.matmul(shapes),
    lambda here, x, y, precision, dtype: jnp.matmul(x, y, precision=precision, preferred_element_type=dtype),
    _zero,
)
KERNELS = {"einsum": _EINSUM, "matmul": _MATMUL}


def einsum(
    subscripts: str,
    /,
    *operands: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The sum of products that the subscripts say, as `jnp.einsum`; letters that the result lacks are summed.

    `out_sharding` (dim specs, or a mapping) says how the result lies, and so what moves: with x split along b and w
    along o, `["tp", None]` gathers w and `[None, "tp"]` gathers x, whichever is larger.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2,), ("tp",))
    >>> x, w = lamina.shard(np.ones((4, 6)), mesh, [None, "tp"]), lamina.shard(np.ones((6, 8)), mesh, ["tp"])
    >>> lamina.einsum("bi,io->bo", x, w).placements
    (Partial(SUM),)
    """
    if not isinstance(subscripts, str):
        raise TypeError(f"einsum(subscripts) must be a string such as 'ij,jk->ik', not {type(subscripts).__name__}")
    return compute(_EINSUM, operands, (subscripts.replace(" ", ""), precision, preferred_element_type), out_sharding)


def matmul(
    x: Any, y: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Any:
    """x @ y, as `jnp.matmul`: the last dim of x with the second to last of y; dims before are a batch.

    `out_sharding` says how the result lies, as in `einsum`.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2, 2), ("dp", "tp"))
    >>> x, w = lamina.shard(np.ones((4, 6)), mesh, ["dp"]), lamina.shard(np.ones((6, 8)), mesh, [None, "tp"])
    >>> (x @ w).sharding
    NamedMapping('[dp=2,tp=2] dp,tp')
    """
    return compute(_MATMUL, (x, y), (precision, preferred_element_type), out_sharding)


def tensordot(x: Any, y: Any, axes: Any = 2, *, precision: Any = None) -> Any:
    """The sum of products over pairs of dims, as `jnp.tensordot`.

    >>> import numpy as np, lamina
    >>> lamina.tensordot(lamina.tensor(np.ones((2, 3))), lamina.tensor(np.ones((3, 4))), 1).shape
    (2, 4)
    """
    ranks = np.ndim(x), np.ndim(y)
    with explained(f"tensordot(axes={axes!r})", "name as many dims of x as of y, or how many at the end of x"):
        if isinstance(axes, int):
            if not 0 <= axes <= min(ranks):
                raise LayoutError(f"there are no {axes} dims to sum over in tensors of ranks {ranks[0]} and {ranks[1]}")
            pairs = tuple(range(ranks[0] - axes, ranks[0])), tuple(range(axes))
        else:
            pairs = as_dims(axes[0], ranks[0], "axes[0]"), as_dims(axes[1], ranks[1], "axes[1]")
        if len(pairs[0]) != len(pairs[1]):
            raise LayoutError(f"{len(pairs[0])} dims of x and {len(pairs[1])} of y can't be paired")
    names = letters(ranks[0] + ranks[1])
    left, right = list(names[: ranks[0]]), list(names[ranks[0] :])
    for mine, theirs in zip(*pairs, strict=True):
        right[theirs] = left[mine]
    kept = [a for d, a in enumerate(left) if d not in pairs[0]] + [a for d, a in enumerate(right) if d not in pairs[1]]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", x, y, precision=precision)


def dot(x: Any, y: Any) -> Any:
    """As `jnp.dot`: matmul, with the last dim of x and the second to last of y for higher ranks; scalars multiply.

    >>> import lamina
    >>> lamina.dot(lamina.tensor([1.0, 2.0]), lamina.tensor([3.0, 4.0])).item()
    11.0
    """

    if np.ndim(x) == 0 or np.ndim(y) == 0:
        return einsum(f"{_dots(x)},{_dots(y)}->...", x, y)
    return tensordot(x, y, ((np.ndim(x) - 1,), (max(np.ndim(y) - 2, 0),)))


def _dots(x: Any) -> str:
    return "..." if np.ndim(x) else ""


def outer(x: Any, y: Any) -> Any:
    """Every product of an element of the 1-D x and one of the 1-D y.

    >>> import lamina
    >>> lamina.outer(lamina.tensor([1.0, 2.0]), lamina.tensor([3.0, 4.0])).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    if np.ndim(x) != 1 or np.ndim(y) != 1:
        fact = f"outer takes two 1-D tensors, not ranks {np.ndim(x)} and {np.ndim(y)}"
        raise LayoutError(with_fix(fact, "reshape them to 1-D, or use einsum"))
    return einsum("i,j->ij", x, y)


__all__ = ["dot", "einsum", "matmul", "outer", "tensordot"]
