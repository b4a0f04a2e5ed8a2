"""Symbolic sizes of tensor dims.

A dim is an int, or an expression over symbols that are bound to ints later. It means a function from the values of its
symbols (sizes, so >= 0) to an integer: a polynomial over symbols and floor divisions, kept in a normal form.

1. Equal form, equal object: what the normal form unites is `==`, with one hash and one text. It unites all polynomial
   identities, a quotient's exact part, `(4*n + 5) // 4 == n + 1`, common factors, nesting, `n // 2 // 3 == n // 6`, and
   rounding up, `-(-n // 4) == (n + 3) // 4`. Dims that are `==` always mean the same. Identities between several
   quotients are not all found: `n // 3 + (n + 1) // 3 + (n + 2) // 3 == n` is False; `join_sizes` finds this one.
2. Smallest kind: a constant is an `int`, a lone symbol a `SymbolicDim`, anything else an `AlgebraicDim`.
3. Binding symbols before or after arithmetic gives the same ints, Python's; but a divisor counts as other than 0 until
   it is bound: `m * n // n` is `m`, and `n // n` is 1.
4. `x % y` is `x - y * (x // y)`, so `x // y * y + x % y == x`; only the text shows a `%`.
5. `parse_dim(str(dim)) == dim`.
6. The layout rule is `split_sizes`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword
from math import gcd, prod
from numbers import Integral
from typing import Any, NamedTuple, final
from unicodedata import is_normalized


class _Expression:
    """The operators of symbols and composed expressions.

    >>> n, m = Dim("n"), Dim("m")
    >>> n + n == 2 * n, n - n, 2 * (n + 1), n + 1 == n, n == 4
    (True, 0, AlgebraicDim('2*n + 2'), False, False)
    >>> (4 * n + 3) // 4, (4 * n + m) // 4, n * m // m, -(-n // 4)
    (SymbolicDim('n'), AlgebraicDim('n + m // 4'), SymbolicDim('n'), AlgebraicDim('(n + 3) // 4'))
    >>> (4 * n + m) % 4, (4 * n + 7) % 4, n % n, n // 4 * 4 == n
    (AlgebraicDim('m % 4'), 3, 0, False)
    >>> n < n + 1, n >= n, n > n + 2
    (True, True, False)
    >>> n < 4
    Traceback (most recent call last):
    TypeError: n < 4 is not decided: bind n first, by substitute(dim, {'n': ...})
    >>> range(n + 1)
    Traceback (most recent call last):
    TypeError: AlgebraicDim('n + 1') is no int yet: bind n first, by substitute(dim, {'n': ...})
    """

    __slots__ = ()

    # fmt: off
    def __add__(self, other: _Dim) -> _Dim: return _operate(_add, self, other)
    def __radd__(self, other: int) -> _Dim: return _operate(_add, other, self)
    def __sub__(self, other: _Dim) -> _Dim: return _operate(_subtract, self, other)
    def __rsub__(self, other: int) -> _Dim: return _operate(_subtract, other, self)
    def __mul__(self, other: _Dim) -> _Dim: return _operate(_multiply, self, other)
    def __rmul__(self, other: int) -> _Dim: return _operate(_multiply, other, self)
    def __floordiv__(self, other: _Dim) -> _Dim: return _operate(_floor_divide, self, other)
    def __rfloordiv__(self, other: int) -> _Dim: return _operate(_floor_divide, other, self)
    def __mod__(self, other: _Dim) -> _Dim: return _operate(_modulo, self, other)
    def __rmod__(self, other: int) -> _Dim: return _operate(_modulo, other, self)
    def __neg__(self) -> _Dim: return 0 - self
    def __lt__(self, other: _Dim) -> bool: return _compare("<", operator.lt, self, other)
    def __le__(self, other: _Dim) -> bool: return _compare("<=", operator.le, self, other)
    def __gt__(self, other: _Dim) -> bool: return _compare(">", operator.gt, self, other)
    def __ge__(self, other: _Dim) -> bool: return _compare(">=", operator.ge, self, other)
    def __bool__(self) -> bool: raise TypeError(f"{self!r} has no truth value yet: {_how_to_bind(self)}")
    def __index__(self) -> int: raise TypeError(f"{self!r} is no int yet: {_how_to_bind(self)}")
    def __repr__(self) -> str: return f"{type(self).__name__}({str(self)!r})"
    # fmt: on


@final
@dataclass(frozen=True, slots=True, repr=False)
class SymbolicDim(_Expression):
    """A symbol: a size that is known by name only. Its name is an identifier, as in Python.

    >>> SymbolicDim("n"), str(SymbolicDim("batch_size")), SymbolicDim("n") == SymbolicDim("m")
    (SymbolicDim('n'), 'batch_size', False)
    >>> SymbolicDim("n + 1")
    Traceback (most recent call last):
    ValueError: a symbol's name is an identifier like 'n', not 'n + 1' (parse_dim reads expressions)
    """

    name: str

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str):
            raise TypeError(f"a symbol's name is a str, not {name!r}")
        if not name.isidentifier() or iskeyword(name) or not is_normalized("NFKC", name):
            raise ValueError(f"a symbol's name is an identifier like 'n', not {name!r} (parse_dim reads expressions)")

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True, repr=False, init=False)
class AlgebraicDim(_Expression):
    """A composed expression: what arithmetic gives when it's neither an int nor a lone symbol.

    >>> AlgebraicDim("(n + 7) // 4"), AlgebraicDim("n + n") == 2 * Dim("n")
    (AlgebraicDim('(n + 3) // 4 + 1'), True)
    >>> AlgebraicDim("n + 0")
    Traceback (most recent call last):
    ValueError: 'n + 0' is no composed expression but SymbolicDim('n')
    """

    terms: _Terms

    def __init__(self, text: str) -> None:
        dim = parse_dim(text)
        if not isinstance(dim, AlgebraicDim):
            raise ValueError(f"{text!r} is no composed expression but {dim!r}")
        object.__setattr__(self, "terms", dim.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return AlgebraicDim, (str(self),)  # as text, so that a pickle outlives a change of the normal form

    def __str__(self) -> str:
        return _text(self)


_Dim = int | SymbolicDim | AlgebraicDim
DimLike = int | str | SymbolicDim | AlgebraicDim


def Dim(value: DimLike) -> _Dim:
    """The dim that `value` says: a size, the name of a symbol, or a dim already.

    >>> Dim(4), Dim("n"), Dim(Dim("n") + 1)
    (4, SymbolicDim('n'), AlgebraicDim('n + 1'))
    >>> Dim(-1)
    Traceback (most recent call last):
    ValueError: a dim is 0 or more, not -1
    """
    if isinstance(value, _Expression):
        return value
    if isinstance(value, str):
        return SymbolicDim(value)
    if not _is_int(value):
        raise TypeError(f"a dim is an int, the name of a symbol or a symbolic dim, not {value!r}")
    if value < 0:
        raise ValueError(f"a dim is 0 or more, not {value}")
    return int(value)


def is_static(dim: DimLike) -> bool:
    """Whether the size is known: of 4 it is, of `Dim("n")` it isn't."""
    return not free_symbols(dim)


def free_symbols(dim: DimLike) -> frozenset[str]:
    """The names that are still to be bound.

    >>> sorted(free_symbols((Dim("n") + 3) // Dim("m"))), free_symbols(4), free_symbols(Dim("n") - Dim("n"))
    (['m', 'n'], frozenset(), frozenset())
    """
    atoms = (atom for monomial, _ in _terms(_any_dim(dim)) for atom in monomial)
    names = ({x} if isinstance(x, str) else free_symbols(x.numerator) | free_symbols(x.divisor) for x in atoms)
    return frozenset[str]().union(*names)


def substitute(dim: DimLike, bindings: Mapping[str, DimLike]) -> _Dim:
    """`dim` with symbols bound, all at once, to sizes or to other dims. Names that it doesn't use are ignored.

    >>> n, m = Dim("n"), Dim("m")
    >>> substitute((n + 3) // 4, {"n": 9, "k": 1}), substitute(n * m, {"n": 4}), substitute(n - m, {"n": m, "m": n})
    (3, AlgebraicDim('4*m'), AlgebraicDim('m - n'))
    >>> substitute(n // m, {"m": 0})
    Traceback (most recent call last):
    ZeroDivisionError: n // m: m is 0
    """
    bindings = {name: Dim(value) for name, value in bindings.items()}

    def value(atom: _Atom) -> _Dim:
        if isinstance(atom, str):
            return Dim(bindings.get(atom, atom))
        x, y = (substitute(part, bindings) for part in atom)
        if y == 0:
            raise ZeroDivisionError(f"{atom}: {atom.divisor} is 0")
        return x // y

    return sum(prod(map(value, monomial), start=c) for monomial, c in _terms(_any_dim(dim)))


def parse_dim(text: str) -> _Dim:
    """The dim that `text` writes: ints, names, parentheses and `+ - * // %`.

    >>> parse_dim("7"), parse_dim("n"), parse_dim("2*(2*n) + 1"), parse_dim("(n + 3) // 4")
    (7, SymbolicDim('n'), AlgebraicDim('4*n + 1'), AlgebraicDim('(n + 3) // 4'))
    >>> parse_dim("n / 4")
    Traceback (most recent call last):
    ValueError: a dim is written like '4*n + 1' or '(n + 3) // 4', not 'n / 4'
    """
    if not isinstance(text, str):
        raise TypeError(f"parse_dim reads a str, not {text!r}")
    try:
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        raise ValueError(f"a dim is written like '4*n + 1' or '(n + 3) // 4', not {text!r}") from None


def ceil_div(n: DimLike, k: DimLike) -> _Dim:
    """`n / k` rounded up: the size of the first shard.

    >>> ceil_div(9, 4), ceil_div(8, 4), ceil_div("n", 4)
    (3, 2, AlgebraicDim('(n + 3) // 4'))
    """
    return -(-Dim(n) // Dim(k))


def split_sizes(n: DimLike, k: int) -> tuple[_Dim, ...]:
    """The layout rule: the sizes of the `k` shards of `n` differ by at most 1, larger first.

    A dim over several mesh axes is split once, over their product: 10 over 2, then each 5 over 2, were 3, 2, 3, 2.

    >>> split_sizes(10, 4), split_sizes(3, 8), split_sizes(0, 2)
    ((3, 3, 2, 2), (1, 1, 1, 0, 0, 0, 0, 0), (0, 0))
    >>> split_sizes("n", 2), split_sizes(4 * Dim("n"), 2)
    ((AlgebraicDim('(n + 1) // 2'), AlgebraicDim('n // 2')), (AlgebraicDim('2*n'), AlgebraicDim('2*n')))
    >>> split_sizes(4, 0)
    Traceback (most recent call last):
    ValueError: a dim is split into 1 shard or more, not 0
    """
    n, k = Dim(n), _shard_count(k)
    if isinstance(n, int):
        return (n // k + 1,) * (n % k) + (n // k,) * (k - n % k)
    return tuple((n + (k - 1 - i)) // k for i in range(k))


def join_sizes(sizes: Sequence[DimLike]) -> _Dim:
    """The sum of shard sizes; where they are the split of a dim, that dim, and not the long sum that equals it.

    >>> n = Dim("n")
    >>> join_sizes([3, 3, 2, 2]), join_sizes(split_sizes(n, 3)), join_sizes(["n", n // 2])
    (10, SymbolicDim('n'), AlgebraicDim('n + n // 2'))
    """
    parts = [Dim(size) for size in sizes]
    total, k = sum(parts), len(parts)
    if isinstance(total, int):
        return total
    candidates = (n for part in (parts[-1], parts[0]) for n in _undivided(part, k) if n // k == parts[-1])
    return next((n for n in candidates if [*split_sizes(n, k)] == parts), total)


def split_offset(n: int, k: int, i: int) -> int:
    """Where shard `i` of `k` starts in `n`, which is static; `i == k` gives the end.

    >>> [split_offset(10, 4, i) for i in range(5)], split_offset(3, 8, 6)
    ([0, 3, 6, 8, 10], 3)
    >>> split_offset(10, 4, 5)
    Traceback (most recent call last):
    ValueError: 4 shards have offsets 0 to 4, not 5
    """
    n, k = operator.index(Dim(n)), _shard_count(k)
    if not 0 <= i <= k:
        raise ValueError(f"{k} shards have offsets 0 to {k}, not {i}")
    return i * (n // k) + min(i, n % k)


def _shard_count(k: int) -> int:
    if not _is_int(k):
        raise TypeError(f"a number of shards is an int, not {k!r}")
    if k < 1:
        raise ValueError(f"a dim is split into 1 shard or more, not {k}")
    return int(k)


def _any_dim(value: DimLike) -> _Dim:
    return int(value) if _is_int(value) else Dim(value)  # arithmetic may give an int below 0


def _is_int(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _how_to_bind(dim: Any) -> str:
    names = sorted(free_symbols(dim))
    return f"bind {', '.join(names)} first, by substitute(dim, {{{', '.join(f'{name!r}: ...' for name in names)}}})"


# The normal form: a dim is a sum of terms, in order; a term is a monomial and its coefficient, which isn't 0;
# a monomial is a sorted tuple of atoms; an atom is the name of a symbol or a quotient.


class _Quotient(NamedTuple):
    """Its numerator divided by its divisor, rounded down."""

    numerator: _Dim
    divisor: _Dim

    def __str__(self) -> str:
        return f"{_operand(self.numerator)} // {_operand(self.divisor)}"


_Atom = str | _Quotient
_Monomial = tuple[_Atom, ...]
_Term = tuple[_Monomial, int]
_Terms = tuple[_Term, ...]


def _terms(dim: _Dim) -> _Terms:
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    return dim.terms if isinstance(dim, AlgebraicDim) else (((dim.name,), 1),)


def _dim(*terms: _Term) -> _Dim:
    """The sum of any terms: everything that is an `AlgebraicDim` comes from here, in normal form."""
    total: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    match tuple(sorted(((m, c) for m, c in total.items() if c), key=_term_order)):
        case ():
            return 0
        case (((), constant),):
            return constant
        case (((str(name),), 1),):
            return SymbolicDim(name)
        case ordered:
            dim = object.__new__(AlgebraicDim)
            object.__setattr__(dim, "terms", ordered)
            return dim


def _term_order(term: _Term) -> tuple[Any, ...]:
    """Higher degrees first, then by name: a graded order, as the long division in `_divide` needs it."""
    monomial, coefficient = term
    return -len(monomial), [_atom_order(atom) for atom in monomial], coefficient < 0, abs(coefficient)


def _atom_order(atom: _Atom) -> tuple[Any, ...]:
    return (0, atom) if isinstance(atom, str) else (1, *([*map(_term_order, _terms(dim))] for dim in atom))


def _product(one: _Term, other: _Term) -> _Term:
    return tuple(sorted(one[0] + other[0], key=_atom_order)), one[1] * other[1]


def _weight(dim: _Dim) -> tuple[Any, ...]:
    return sum(c < 0 for _, c in _terms(dim)), [*map(_term_order, _terms(dim))]


def _quotients(dim: _Dim) -> Iterator[tuple[_Monomial, int, _Monomial, _Quotient]]:
    """Each quotient: the monomial that it is in, the coefficient, the monomial's other atoms, itself."""
    for monomial, coefficient in _terms(dim):
        for i, atom in enumerate(monomial):
            if isinstance(atom, _Quotient):
                yield monomial, coefficient, monomial[:i] + monomial[i + 1 :], atom


def _operate(rule: Callable[[Any, Any], _Dim], left: Any, right: Any) -> Any:
    known = all(isinstance(side, _Expression) or _is_int(side) for side in (left, right))
    return rule(_any_dim(left), _any_dim(right)) if known else NotImplemented


def _compare(sign: str, relation: Callable[[int, int], bool], left: Any, right: Any) -> Any:
    difference = _operate(_subtract, left, right)
    if isinstance(difference, _Expression):
        raise TypeError(f"{left} {sign} {right} is not decided: {_how_to_bind(difference)}")
    return difference if difference is NotImplemented else relation(difference, 0)


# fmt: off
def _add(a: _Dim, b: _Dim) -> _Dim: return _dim(*_terms(a), *_terms(b))
def _subtract(a: _Dim, b: _Dim) -> _Dim: return _add(a, _multiply(-1, b))
def _multiply(a: _Dim, b: _Dim) -> _Dim: return _dim(*(_product(x, y) for x in _terms(a) for y in _terms(b)))
def _modulo(a: _Dim, b: _Dim) -> _Dim: return a - b * (a // b)
# fmt: on


@lru_cache(maxsize=4096)  # 0.1 ms without; the sizes of shards come back again and again
def _floor_divide(a: _Dim, b: _Dim) -> _Dim:
    if b == 0:
        raise ZeroDivisionError(f"{a} divided by 0")
    if a == 0:
        return 0
    if _terms(b)[0][1] < 0:
        return -a // -b
    if (lowest := _cancel(a, b)) != (a, b):
        return operator.floordiv(*lowest)
    if (flat := _flatten(a, b)) is not None:
        return flat
    exact, rest = _divide(a, b)
    if exact != 0:
        return exact + rest // b
    if _is_positive(b):
        # rest // b is also its negative, rounded up, negated: -((b - 1 - rest) // b). The lighter is the normal form.
        exact, mirror = _divide(b - 1 - rest, b)
        if _flatten(mirror, b) is not None or _weight(mirror) < _weight(rest):
            return -(exact + mirror // b)
    return _dim(((_Quotient(rest, b),), 1))


def _is_positive(b: _Dim) -> bool:
    """Whether a divisor surely is: a constant or a product of symbols. Its leading coefficient is positive."""
    return len(_terms(b)) == 1 and not any(_quotients(b))


def _cancel(a: _Dim, b: _Dim) -> tuple[_Dim, _Dim]:
    """Drop common factors. With a positive divisor the constant may round down: (4*n + 3) // 6 is (2*n + 1) // 3."""
    common = gcd(*(c for _, c in _terms(b)), *(c for monomial, c in _terms(a) if monomial or not _is_positive(b)))
    first, *others = [monomial for x in (b, a) for monomial, c in _terms(x) if c // common]
    shared = tuple(x for i, x in enumerate(first) if all(other.count(x) > first[:i].count(x) for other in others))
    a, b = (_dim(*((_without(m, shared) or (), c // common) for m, c in _terms(x) if c // common)) for x in (a, b))
    return a, b


def _without(monomial: _Monomial, factor: _Monomial) -> _Monomial | None:
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _divide(a: _Dim, b: _Dim) -> tuple[_Dim, _Dim]:
    """Long division: the exact part, and a rest that is the same for all `a` that differ by multiples of `b`."""
    lead, unit = _terms(b)[0]
    exact, rest = _dim(), _dim()
    while a != 0:
        monomial, coefficient = _terms(a)[0]
        cofactor = _without(monomial, lead)
        times = 0 if cofactor is None else coefficient // unit
        part, left = _dim((cofactor or (), times)), _dim((monomial, coefficient - times * unit))
        exact, rest, a = exact + part, rest + left, a - part * b - left
    return exact, rest


def _flatten(a: _Dim, b: _Dim) -> _Dim | None:
    """(x // y + z) // b as (x + y*z) // (y*b), and the same for -(x // y), which is (y - 1 - x) // y; else None."""
    match list(_quotients(a)):
        case [(_, 1, (), (x, y) as quotient)] if _is_positive(b):
            return (x + y * (a - _dim(((quotient,), 1)))) // (y * b)
        case [(_, -1, (), (x, y) as quotient)] if _is_positive(b) and _is_positive(y):
            return (y - 1 - x + y * (a + _dim(((quotient,), 1)))) // (y * b)
    return None


def _undivided(part: _Dim, k: int) -> Iterator[_Dim]:
    """Dims that may give `part` when divided by `k`: one that was (x // y) // k is now x // (k*y), in lowest terms."""
    for monomial, coefficient, _, (x, y) in _quotients(part):
        others = part - _dim((monomial, coefficient))
        content = gcd(k, *(c for _, c in _terms(y)))
        for cancelled in (d for d in range(1, k + 1) if k % d == 0 and content % (k // d) == 0):
            for constant in range(cancelled):
                yield k * others + coefficient * ((cancelled * x + constant) // (cancelled * y // k))


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def _read(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.Name(id=name):
            return SymbolicDim(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_read(left), _read(right))
    raise ValueError(ast.unparse(node))


def _text(dim: _Dim) -> str:
    """The terms in order, what is added before what is subtracted."""
    written: list[tuple[_Monomial, int, list[str]]] = []  # monomial (for the order), coefficient, factors
    for monomial, _, rest, quotient in _quotients(dim):
        now = dict(_terms(dim))
        for cofactor, times, text, meaning in _readings(rest, quotient, now.get(monomial, 0)):
            if meaning != 0 and all(c * now.get(m, 0) >= c * c for m, c in _terms(meaning)):
                dim -= meaning
                written.append(((*cofactor, quotient), times, [*map(str, cofactor), text]))
                break
    written += [(monomial, coefficient, [*map(str, monomial)]) for monomial, coefficient in _terms(dim)]
    text = ""
    for _, coefficient, factors in sorted(written, key=lambda term: (term[1] < 0, _term_order(term[:2]))):
        if abs(coefficient) != 1 or not factors:
            factors = [str(abs(coefficient)), *factors]
        bare = len(factors) == 1 and (text or coefficient > 0)
        term = factors[0] if bare else "*".join(f"({factor})" if " " in factor else factor for factor in factors)
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {term}" if text else f"{sign}{term}".removeprefix("+")
    return text or "0"


def _readings(rest: _Monomial, quotient: _Quotient, c: int) -> Iterator[tuple[_Monomial, int, str, _Dim]]:
    """How c * rest * quotient, with other terms, may read: cofactor, coefficient, text (rounded up, or %), meaning."""
    (x, y), z = quotient, _dim(((quotient,), 1))
    if y == 2:
        yield rest, -c, f"{_operand(x + 1)} // 2", _dim((rest, -c)) * (x - z)
    lead, unit = _terms(y)[0]
    cofactor = _without(rest, lead)
    if cofactor is not None and c % unit == 0:
        times = -c // unit
        yield cofactor, times, f"{_operand(x)} % {_operand(y)}", _dim((cofactor, times)) * (x - y * z)


def _operand(dim: _Dim) -> str:
    text = _text(dim)
    return text if text.isidentifier() or text.isdecimal() else f"({text})"
