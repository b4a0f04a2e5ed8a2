"""Python's operators and numpy's protocols, which a Tensor inherits: each is an op, looked up when used.

`x + y` is `lamina.add(x, y)`; numpy's ufuncs and functions on a Tensor are the ops of the same name, so that
`np.exp(x)` and `np.sum(x, axis=0)` stay on the devices.  What there is no op for is an error, never a silent copy to
the host.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any

from lamina.errors import LayoutError, with_fix


@lru_cache(maxsize=512)
def _op(name: str) -> Callable[..., Any] | None:
    from lamina import ops  # the verbs stand above the Tensor; only their use needs them

    return getattr(ops, name, None)


@lru_cache(maxsize=512)
def _parameters(op: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(op).parameters)


def _named(name: str) -> Any:
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        op = _op(name)
        assert op is not None, name
        return op(self, *arguments, **options)

    method.__name__ = name
    method.__doc__ = f"`lamina.{name}` of this tensor."
    return method


def _called(name: str, *arguments: Any) -> Any:
    op = _op(name)
    assert op is not None, name
    return op(*arguments)


def _operator(name: str, swapped: bool = False) -> Any:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, (str, bytes, dict, list, tuple, set)) or other is None:
            return NotImplemented
        op = _op(name)
        assert op is not None, name
        return op(other, self) if swapped else op(self, other)

    return method


class Operators:
    """See the module's docstring."""

    __slots__ = ()
    __array_priority__ = 1000.0  # numpy's operators leave mixed expressions to the Tensor
    __hash__ = None  # type: ignore[assignment]  # == is element by element

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", True)
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _operator("floor_divide", True)
    __mod__, __rmod__ = _operator("remainder"), _operator("remainder", True)
    __pow__, __rpow__ = _operator("power"), _operator("power", True)
    __matmul__, __rmatmul__ = _operator("matmul"), _operator("matmul", True)
    __and__, __rand__ = _operator("bitwise_and"), _operator("bitwise_and", True)
    __or__, __ror__ = _operator("bitwise_or"), _operator("bitwise_or", True)
    __xor__, __rxor__ = _operator("bitwise_xor"), _operator("bitwise_xor", True)
    __lshift__, __rlshift__ = _operator("left_shift"), _operator("left_shift", True)
    __rshift__, __rrshift__ = _operator("right_shift"), _operator("right_shift", True)
    __eq__, __ne__ = _operator("equal"), _operator("not_equal")
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __neg__, __pos__ = _named("negative"), _named("positive")
    __abs__, __invert__ = _named("absolute"), _named("invert")

    sum, prod, mean, var, std = _named("sum"), _named("prod"), _named("mean"), _named("var"), _named("std")
    max, min, any, all = _named("max"), _named("min"), _named("any"), _named("all")
    argmax, argmin = _named("argmax"), _named("argmin")
    astype, conj, clip, dot = _named("astype"), _named("conjugate"), _named("clip"), _named("dot")

    take, repeat, swapaxes, squeeze = _named("take"), _named("repeat"), _named("swapaxes"), _named("squeeze")
    cumsum, cumprod, sort, argsort = _named("cumsum"), _named("cumprod"), _named("sort"), _named("argsort")
    ravel, flatten, nonzero = _named("ravel"), _named("ravel"), _named("nonzero")

    def reshape(self, *shape: Any) -> Any:
        """`lamina.reshape` of this tensor, to sizes or a shape."""
        return _called("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """`lamina.transpose` of this tensor, by dims or a list of them."""
        return _called("transpose", self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)

    @property
    def T(self) -> Any:
        """The dims reversed."""
        return _called("transpose", self)

    @property
    def mT(self) -> Any:
        """The last two dims swapped."""
        return _called("matrix_transpose", self)

    @property
    def at(self) -> Any:
        """To change a part of a copy, as JAX has it: `x.at[1:3].set(0)`, or `.add`, `.multiply`."""
        return _called("At", self)

    def __getitem__(self, index: Any) -> Any:
        return _called("getitem", self, index)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        op = _op(_ALIASES.get(ufunc.__name__, ufunc.__name__))
        if op is None or method != "__call__" or options:
            what = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            extra = f" with {', '.join(options)}" if options else ""
            fact = f"{what}{extra} has no op in Lamina, so it can't take a Tensor"
            raise LayoutError(with_fix(fact, "use lamina.apply(jnp_function, x), or read x.numpy()"))
        return op(*operands)

    def __array_function__(self, function: Any, _types: Any, arguments: tuple, options: dict) -> Any:
        op = _op(_ALIASES.get(function.__name__, function.__name__))
        if function.__name__ in _PROPERTIES:
            return getattr(arguments[0], function.__name__)
        unknown = [] if op is None else [name for name in options if name not in _parameters(op)]
        if op is None or unknown:
            extra = f" with {', '.join(unknown)}" if unknown else ""
            fact = f"np.{function.__name__}{extra} has no op in Lamina, so it can't take a Tensor"
            raise LayoutError(with_fix(fact, "use lamina.apply(jnp_function, x), or read x.numpy()"))
        return op(*arguments, **options)


_PROPERTIES = ("shape", "ndim", "size")

# numpy's name → Lamina's, where they differ
_ALIASES = {
    "abs": "absolute",
    "true_divide": "divide",
    "mod": "remainder",
    "fabs": "absolute",
    "conj": "conjugate",
    "bitwise_not": "invert",
    "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "pow": "power",
    "amax": "max",
    "amin": "min",
    "round": "rint",
    "concat": "concatenate",
    "permute_dims": "transpose",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "atan2": "arctan2",
}
