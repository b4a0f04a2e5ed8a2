"""Ops that bring values in: constants, dims as numbers, and any JAX function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from lamina.errors import LayoutError, with_fix
from lamina.graph.arguments import as_tensor, constant_of, same_device
from lamina.graph.devices import as_device
from lamina.graph.graph import Graph, kept
from lamina.graph.nodes import Attributes, Local, Op
from lamina.graph.ops.inferring import typed
from lamina.graph.values import TensorValue
from lamina.sharding import CPU, TensorType
from lamina.sharding.dims import parse_dim
from lamina.sharding.shape import Shape


def constant(value: Any, dtype: Any = None, device: Any = CPU()) -> TensorValue:
    """A value that is known now: numbers, an array, anything with DLPack."""
    return constant_of(value, "constant", as_device(device, "constant(device)"), dtype, Graph.current())


def _constant(_: Any, attributes: Attributes) -> list[TensorType]:
    shape = attributes["shape"] if "shape" in attributes else _shape_of(attributes["value"])
    return [TensorType(attributes["dtype"], Shape(shape), attributes["device"])]


def _shape_of(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        return ()
    return (len(value), *(_shape_of(value[0]) if value else ()))


def _constant_array(attributes: Attributes) -> Any:
    return jnp.asarray(attributes["value"], attributes["dtype"])  # a named one is an input of the program


def _index_dtype() -> str:
    return jax.dtypes.canonicalize_dtype(jnp.int64).name


def shape_of(x: Any) -> TensorValue:
    """The shape of x as a value: a vector of integers, known when the symbolic dims are bound."""
    value = as_tensor(x, "shape_of")
    return as_tensor(value.shape, "shape_of", value)


def call(function: Callable[..., Any], *values: Any, output_types: Sequence[Any] | None = None, **options: Any) -> Any:
    """`function(*values, **options)`, any JAX function of arrays of one device; the result, or a list of them.

    The types of the results are found by tracing it, with symbolic dims as they are.  Where JAX can't do that, give
    `output_types`, which are then checked when the dims are bound.  `options` are fixed when the graph is built.
    """
    like = next((value for value in values if isinstance(value, TensorValue)), None)
    tensors = [as_tensor(value, "call", like) for value in values]
    if not tensors:
        raise LayoutError(with_fix("call: no values", "give at least one; ops.constant(x, device=...) makes one"))
    same_device(tensors, "call")
    graph = tensors[0].graph
    run = function if not options else _with(function, options)
    kinds = _result_types(run, [value.type for value in tensors], output_types)
    name = _name_of(graph, run)
    dims = tuple((kind.dtype, tuple(kind.shape)) for kind in kinds)
    results = graph.add("call", tensors, {"function": name, "results": dims})
    return results[0] if len(results) == 1 else results


def _with(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    def run(*arrays: Any) -> Any:
        return function(*arrays, **options)

    run.__name__ = getattr(function, "__name__", "function")
    return run


def _name_of(graph: Graph, function: Callable[..., Any]) -> str:
    """The name under which the graph knows the function; a second use finds it again."""
    for name, known in graph.functions.items():
        if known is function:
            return name
    name = f"{getattr(function, '__name__', type(function).__name__)}#{len(graph.functions)}"
    graph.functions[name] = function
    return name


def _result_types(function: Any, kinds: Sequence[TensorType], given: Sequence[Any] | None) -> list[TensorType]:
    device = kinds[0].device
    if given is not None:
        return [TensorType(kept(kind).dtype, kind.shape, device) for kind in given]
    symbols = sorted(frozenset[str]().union(*(kind.shape.symbols for kind in kinds)))
    known = dict(zip(symbols, export.symbolic_shape(",".join(symbols)), strict=True)) if symbols else {}
    try:
        arrays = [jax.ShapeDtypeStruct(_foreign(kind.shape, known), jnp.dtype(kind.dtype)) for kind in kinds]
        found = jax.tree_util.tree_leaves(jax.eval_shape(function, *arrays))
        shapes = [[_ours(dim) for dim in array.shape] for array in found]
    except Exception as error:
        if not symbols:
            raise
        fact = f"call: JAX can't trace the function with symbolic dims {', '.join(symbols)}: {error}"
        raise LayoutError(with_fix(fact.partition("\n")[0], "give output_types=[TensorType(...), ...]")) from error
    return [typed(array.dtype, shape, kinds[0]) for array, shape in zip(found, shapes, strict=True)]


def _foreign(shape: Shape, known: dict[str, Any]) -> tuple[Any, ...]:
    """Our dims as JAX's."""
    return tuple(eval(str(dim), {"__builtins__": {}}, known) if not isinstance(dim, int) else dim for dim in shape)


def _ours(dim: Any) -> Any:
    """JAX's dims as ours; it writes quotients as functions."""
    return dim if isinstance(dim, int) else parse_dim(ast.unparse(_Quotients().visit(ast.parse(str(dim), mode="eval"))))


class _Quotients(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        signs = {"floordiv": ast.FloorDiv(), "mod": ast.Mod()}
        match node:
            case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in signs:
                return ast.BinOp(left, signs[name], right)
        raise ValueError(f"{ast.unparse(node)} is no dim that Lamina knows")


def _call(types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    return [typed(dtype, shape, types[0]) for dtype, shape in attributes["results"]]


def _called(attributes: Attributes, *arrays: Any) -> Any:
    """`lower` puts the function itself under its name."""
    found = tuple(jax.tree_util.tree_leaves(attributes["function"](*arrays)))
    expected = [(jnp.dtype(dtype), tuple(shape)) for dtype, shape in attributes["results"]]
    if [(jnp.result_type(array), jnp.shape(array)) for array in found] != expected:
        shown = ", ".join(f"{jnp.result_type(array)}{list(jnp.shape(array))}" for array in found)
        wanted = ", ".join(f"{dtype}{list(shape)}" for dtype, shape in attributes["results"])
        raise LayoutError(with_fix(f"call: the function gave {shown}, not {wanted}", "correct its output_types"))
    return found


RULES: dict[str, Op] = {
    "constant": Local(_constant, _constant_array),
    "dim": Local(
        lambda types, attributes: [TensorType(_index_dtype(), Shape(()), attributes["device"])],
        lambda attributes: jnp.asarray(attributes["dim"], _index_dtype()),
    ),
    "shape": Local(
        lambda types, attributes: [TensorType(_index_dtype(), Shape((len(attributes["dims"]),)), attributes["device"])],
        lambda attributes: jnp.asarray(attributes["dims"], _index_dtype()),
    ),
    "call": Local(_call, _called),
}
FUNCTIONS = (
    constant, shape_of, call,
)  # fmt: skip
