"""Symbolic sizes for a rehearsal: a symbol stands for a number, and the results' numbers are read back as symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import LayoutError, with_fix
from lamina.sharding import DeviceMesh, TensorLayout
from lamina.sharding.dims import Dim, substitute

# No product or sum of two sizes meets another by chance: each symbol gets primes of its own, one per reading.
_PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197)


def bound(symbols: Sequence[str], mesh: DeviceMesh, reading: int) -> dict[str, int]:
    """A large size for each symbol, which every product of mesh axes divides; another one for each reading."""
    if 2 * len(symbols) > len(_PRIMES):
        raise LayoutError(f"{len(symbols)} symbols in one call: {len(_PRIMES) // 2} at most can be told apart")
    return {name: 64 * mesh.num_devices * _PRIMES[2 * i + reading] for i, name in enumerate(symbols)}


def unbound(
    op: str,
    one: tuple[int, ...],
    other: tuple[int, ...],
    operands: Sequence[Any],
    symbols: Sequence[str],
    mesh: DeviceMesh,
) -> tuple[Any, ...]:
    """The shape that had these sizes in two readings, in symbols."""
    first, second = bound(symbols, mesh, 0), bound(symbols, mesh, 1)
    known = {d for x in operands if isinstance(x, TensorLayout) for d in x.shape} | {Dim(name) for name in symbols}
    terms = {(int(substitute(d, first)), int(substitute(d, second))): d for d in known}
    return tuple(a if a == b else _in_symbols(op, (a, b), terms) for a, b in zip(one, other, strict=True))


def _in_symbols(op: str, sizes: tuple[int, int], terms: dict[tuple[int, int], Any]) -> Any:
    """A dim of the operands; a multiple of one; or the sum or product of two."""
    if sizes in terms:
        return terms[sizes]
    for (a, b), dim in terms.items():
        if sizes[0] % a == 0 and sizes[0] // a * b == sizes[1]:
            return dim * (sizes[0] // a)
        for (c, d), more in terms.items():
            if (a + c, b + d) == sizes:
                return dim + more
            if (a * c, b * d) == sizes:
                return dim * more
        if sizes[0] - a == sizes[1] - b:
            return dim + (sizes[0] - a)
    fact = f"infer({op}): a dim of the result is {sizes[0]} where the symbols are large, which isn't read back"
    raise LayoutError(with_fix(fact, "bind the symbols first, by lamina.sharding.dims.substitute(dim, {...})"))
