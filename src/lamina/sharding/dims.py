"""Symbolic sizes of tensor dims.

A dim is an int, or an expression over symbols that are bound to ints later. It means a function from the values of its
symbols (sizes, so >= 0) to an integer: a polynomial over symbols and floor divisions, kept in a normal form.

1. Equal form, equal object: what the normal form unites is `==`, with one hash and one text. It unites all polynomial
   identities, a quotient's exact part, `(4*n + 5) // 4 == n + 1`, common factors, nesting, `n // 2 // 3 == n // 6`, and
   rounding up, `-(-n // 4) == (n + 3) // 4`. Dims that are `==` always mean the same. Identities between several
   quotients are not all found: `n // 3 + (n + 1) // 3 + (n + 2) // 3 == n` is False; `join_sizes` finds this one.
2. Smallest kind: a constant is an `int`, a lone symbol a `SymbolicDim`, anything else an `AlgebraicDim`.
3. Binding symbols before or after arithmetic gives the same ints, Python's, unless a divisor is 0: `m * n // n` is `m`.
4. `x % y` is `x - y * (x // y)`, so `x // y * y + x % y == x`; only the text shows a `%`.
5. `parse_dim(str(dim)) == dim`.
6. The layout rule is `split_sizes`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from keyword import iskeyword
from math import gcd
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
    # fmt: on


@final
@dataclass(frozen=True, slots=True)
class SymbolicDim(_Expression):
    """A symbol: a size that is known by name only. Its name is an identifier, as in Python.

    >>> SymbolicDim("n"), str(SymbolicDim("batch_size")), SymbolicDim("n") == SymbolicDim("m")
    (SymbolicDim('n'), 'batch_size', False)
    >>> SymbolicDim("n + 1")
    Traceback (most recent call last):
    ValueError: a symbol's name is an identifier such as 'n', not 'n + 1' (parse_dim reads expressions)
    """

    name: str

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str):
            raise TypeError(f"a symbol's name is a str, not {name!r}")
        if not name.isidentifier() or iskeyword(name) or not is_normalized("NFKC", name):
            fix = "parse_dim reads expressions"
            raise ValueError(f"a symbol's name is an identifier such as 'n', not {name!r} ({fix})")

    def __repr__(self) -> str:
        return f"SymbolicDim({self.name!r})"

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True, init=False)
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

    def __repr__(self) -> str:
        return f"AlgebraicDim({str(self)!r})"

    def __str__(self) -> str:
        return _text(dict(self.terms))


_Dim = int | SymbolicDim | AlgebraicDim
DimLike = int | str | SymbolicDim | AlgebraicDim


def Dim(value: DimLike) -> _Dim:
    """The dim that `value` says: a size, the name of a symbol, or a dim already.

    >>> Dim(4), Dim("n"), Dim(Dim("n") + 1)
    (4, SymbolicDim('n'), AlgebraicDim('n + 1'))
    >>> Dim(-1)
    Traceback (most recent call last):
    ValueError: a dim is 0 or more, not -1
    >>> Dim(True)
    Traceback (most recent call last):
    TypeError: a dim is an int, the name of a symbol or a symbolic dim, not True
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
    return _names(_polynomial(dim))


def substitute(dim: DimLike, bindings: Mapping[str, DimLike]) -> _Dim:
    """`dim` with symbols bound, all at once, to sizes or to other dims. Names that it doesn't use are ignored.

    >>> n, m = Dim("n"), Dim("m")
    >>> substitute((n + 3) // 4, {"n": 9, "k": 1}), substitute(n * m, {"n": 4}), substitute(n - m, {"n": m, "m": n})
    (3, AlgebraicDim('4*m'), AlgebraicDim('m - n'))
    >>> substitute(n // m, {"m": 0})
    Traceback (most recent call last):
    ZeroDivisionError: n divided by 0
    """
    return _dim(_bind(_polynomial(dim), {name: _polynomial(Dim(value)) for name, value in bindings.items()}))


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
    found = (n for i in (-1, 0) for n in _undivided(parts[i], len(parts)) if _is_split(n, parts))
    total = sum(parts)
    return total if is_static(total) else next(found, total)


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


def _is_split(n: _Dim, parts: Sequence[_Dim]) -> bool:
    k = len(parts)
    return all(part == (n + (k - 1 - i)) // k for i, part in enumerate(parts))


def _shard_count(k: int) -> int:
    if not _is_int(k):
        raise TypeError(f"a number of shards is an int, not {k!r}")
    if k < 1:
        raise ValueError(f"a dim is split into 1 shard or more, not {k}")
    return int(k)


def _is_int(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _how_to_bind(dim: Any) -> str:
    names = sorted(free_symbols(dim))
    return f"bind {', '.join(names)} first, by substitute(dim, {{{', '.join(f'{name!r}: ...' for name in names)}}})"


# The normal form: a polynomial maps monomials to coefficients, none of them 0; a monomial is a sorted tuple of atoms;
# an atom is the name of a symbol or a quotient, rounded down.


class _Quotient(NamedTuple):
    numerator: _Terms
    divisor: _Terms


_Atom = str | _Quotient
_Monomial = tuple[_Atom, ...]
_Terms = tuple[tuple[_Monomial, int], ...]  # a polynomial's items, in order
_Polynomial = dict[_Monomial, int]


def _atom_order(atom: _Atom) -> tuple[Any, ...]:
    return (0, atom) if isinstance(atom, str) else (1, *([(_order(m), c) for m, c in terms] for terms in atom))


def _order(monomial: _Monomial) -> tuple[Any, ...]:
    """Higher degrees first, then by name: a graded order, as the long division in `_divide` needs it."""
    return -len(monomial), [_atom_order(atom) for atom in monomial]


def _terms(polynomial: _Polynomial) -> _Terms:
    return tuple(sorted(polynomial.items(), key=lambda term: _order(term[0])))


def _polynomial(dim: DimLike) -> _Polynomial:
    if _is_int(dim):
        return _lift(times=int(dim))
    dim = Dim(dim)
    return dict(dim.terms) if isinstance(dim, AlgebraicDim) else _lift(str(dim))


def _dim(polynomial: _Polynomial) -> _Dim:
    match _terms(polynomial):
        case ():
            return 0
        case (((), constant),):
            return constant
        case (((str(name),), 1),):
            return SymbolicDim(name)
        case terms:
            dim = object.__new__(AlgebraicDim)
            object.__setattr__(dim, "terms", terms)
            return dim


def _operate(rule: Callable[[_Polynomial, _Polynomial], _Polynomial], left: Any, right: Any) -> Any:
    if all(isinstance(side, _Expression) or _is_int(side) for side in (left, right)):
        return _dim(rule(_polynomial(left), _polynomial(right)))
    return NotImplemented


def _compare(sign: str, relation: Callable[[int, int], bool], left: Any, right: Any) -> Any:
    difference = _operate(_subtract, left, right)
    if isinstance(difference, _Expression):
        raise TypeError(f"{left} {sign} {right} is not decided: {_how_to_bind(difference)}")
    return difference if difference is NotImplemented else relation(difference, 0)


def _names(polynomial: _Polynomial) -> frozenset[str]:
    atoms = {atom for monomial in polynomial for atom in monomial}
    inner = (_names(dict(terms)) for atom in atoms if not isinstance(atom, str) for terms in atom)
    return frozenset(atom for atom in atoms if isinstance(atom, str)).union(*inner)


def _bind(polynomial: _Polynomial, bindings: Mapping[str, _Polynomial]) -> _Polynomial:
    def value(atom: _Atom) -> _Polynomial:
        if isinstance(atom, str):
            return bindings.get(atom, _lift(atom))
        return _floor_divide(*(_bind(dict(terms), bindings) for terms in atom))

    return _sum(reduce(_multiply, map(value, monomial), _lift(times=c)) for monomial, c in polynomial.items())


def _lift(*atoms: _Atom, times: int = 1) -> _Polynomial:
    return {atoms: times} if times else {}


def _sum(polynomials: Iterable[_Polynomial]) -> _Polynomial:
    return reduce(_add, polynomials, _lift(times=0))


def _add(a: _Polynomial, b: _Polynomial, times: int = 1) -> _Polynomial:
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + times * coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def _subtract(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    return _add(a, b, -1)


def _multiply(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    return _sum(_lift(*sorted(x + y, key=_atom_order), times=c * d) for x, c in a.items() for y, d in b.items())


def _modulo(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    return _subtract(a, _multiply(b, _floor_divide(a, b)))


def _floor_divide(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    if not b:
        raise ZeroDivisionError(f"{_text(a)} divided by 0")
    if _terms(b)[0][1] < 0:
        a, b = _subtract({}, a), _subtract({}, b)
    if (lowest := _cancel(a, b)) != (a, b):
        return _floor_divide(*lowest)
    if (flat := _flatten(a, b)) is not None:
        return flat
    exact, rest = _divide(a, b)
    if exact:
        return _add(exact, _floor_divide(rest, b))
    if not rest:
        return rest
    if _is_positive(b):
        # rest // b is also its negative, rounded up, negated: -((b - 1 - rest) // b). The lighter is the normal form.
        exact, mirror = _divide(_subtract(_subtract(b, _lift()), rest), b)
        if _flatten(mirror, b) is not None or _weight(mirror) < _weight(rest):
            return _subtract({}, _add(exact, _floor_divide(mirror, b)))
    return _lift(_Quotient(_terms(rest), _terms(b)))


def _is_positive(b: _Polynomial) -> bool:
    """Whether a divisor surely is: a constant or a product of symbols. Its leading coefficient is positive."""
    return len(b) == 1 and all(isinstance(atom, str) for monomial in b for atom in monomial)


def _weight(polynomial: _Polynomial) -> tuple[Any, ...]:
    terms = _terms(polynomial)
    return sum(c < 0 for _, c in terms), [(_order(monomial), c < 0, abs(c)) for monomial, c in terms]


def _cancel(a: _Polynomial, b: _Polynomial) -> tuple[_Polynomial, _Polynomial]:
    """Drop common factors. With a positive divisor the constant may round down: (4*n + 3) // 6 is (2*n + 1) // 3."""
    common = gcd(*b.values(), *(c for monomial, c in a.items() if monomial or not _is_positive(b)))
    a, b = ({monomial: c // common for monomial, c in x.items() if c // common} for x in (a, b))
    first, *others = [*b, *a]
    shared = tuple(x for i, x in enumerate(first) if all(other.count(x) > first[:i].count(x) for other in others))
    a, b = ({_without(monomial, shared) or (): c for monomial, c in x.items()} for x in (a, b))
    return a, b


def _without(monomial: _Monomial, factor: _Monomial) -> _Monomial | None:
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _divide(a: _Polynomial, b: _Polynomial) -> tuple[_Polynomial, _Polynomial]:
    """Long division: the exact part, and a rest that is the same for all `a` that differ by multiples of `b`."""
    lead, unit = _terms(b)[0]
    exact: _Polynomial = {}
    rest: _Polynomial = {}
    while a:
        monomial, coefficient = _terms(a)[0]
        cofactor = _without(monomial, lead)
        if cofactor is not None and (times := coefficient // unit):
            exact[cofactor] = times
            a = _subtract(a, _multiply({cofactor: times}, b))
        if left := a.get(monomial):
            rest[monomial] = left
            a = _subtract(a, {monomial: left})
    return exact, rest


def _flatten(a: _Polynomial, b: _Polynomial) -> _Polynomial | None:
    """(x // y + z) // b as (x + y*z) // (y*b), and the same for -(x // y), which is (y - 1 - x) // y; else None."""
    match list(_quotients(a)):
        case [(monomial, (), (numerator, divisor))] if _is_positive(b) and abs(a[monomial]) == 1:
            x, y, z = dict(numerator), dict(divisor), _subtract(a, {monomial: a[monomial]})
            if a[monomial] == 1:
                return _floor_divide(_add(x, _multiply(y, z)), _multiply(y, b))
            if _is_positive(y):
                mirror = _subtract(_subtract(y, _lift()), x)
                return _floor_divide(_add(mirror, _multiply(y, z)), _multiply(y, b))
    return None


def _quotients(polynomial: _Polynomial) -> Iterator[tuple[_Monomial, _Monomial, _Quotient]]:
    for monomial, _ in _terms(polynomial):
        for i, atom in enumerate(monomial):
            if isinstance(atom, _Quotient):
                yield monomial, monomial[:i] + monomial[i + 1 :], atom


def _undivided(part: _Dim, k: int) -> Iterator[_Dim]:
    """Dims that may give `part` when divided by `k`: one that was (x // y) // k is now x // (k*y), in lowest terms."""
    polynomial = _polynomial(part)
    for monomial, _, (x, y) in _quotients(polynomial):
        others = _add(polynomial, _lift(*monomial), -polynomial[monomial])
        content = gcd(k, *(c for _, c in y))
        for cancelled in (d for d in range(1, k + 1) if k % d == 0 and content % (k // d) == 0):
            for constant in range(cancelled):
                numerator = _add(_lift(times=constant), dict(x), cancelled)
                whole = _floor_divide(numerator, {m: c * cancelled // k for m, c in y})
                yield _dim(_add(_multiply(_lift(times=k), others), whole, polynomial[monomial]))


# Text.

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


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


def _text(polynomial: _Polynomial) -> str:
    """The terms in order, what is added before what is subtracted."""
    terms: list[tuple[_Monomial, int, list[str]]] = []  # monomial (for the order), coefficient, factors
    for monomial, rest, quotient in _quotients(polynomial):
        for cofactor, times, text, meaning in _readings(rest, quotient, polynomial.get(monomial, 0)):
            if times and all(c * polynomial.get(m, 0) >= c * c for m, c in meaning.items()):
                polynomial = _subtract(polynomial, meaning)
                terms.append(((*cofactor, quotient), times, [*map(_atom_text, cofactor), text]))
                break
    terms += [(monomial, coefficient, [*map(_atom_text, monomial)]) for monomial, coefficient in polynomial.items()]
    text = ""
    for _, coefficient, factors in sorted(terms, key=lambda term: (term[1] < 0, _order(term[0]))):
        if abs(coefficient) != 1 or not factors:
            factors = [str(abs(coefficient)), *factors]
        bare = len(factors) == 1 and (text or coefficient > 0)
        term = factors[0] if bare else "*".join(f"({factor})" if " " in factor else factor for factor in factors)
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {term}" if text else f"{sign}{term}".removeprefix("+")
    return text or "0"


_Reading = tuple[_Monomial, int, str, _Polynomial]  # cofactor, its coefficient, text, what all this stands for


def _readings(rest: _Monomial, quotient: _Quotient, coefficient: int) -> Iterator[_Reading]:
    """How a quotient and the terms around it may read instead: rounded up, or with `%`."""
    x, y, z = dict(quotient.numerator), dict(quotient.divisor), _lift(quotient)
    if y == _lift(times=2):
        meaning = _multiply(_lift(*rest, times=-coefficient), _subtract(x, z))
        yield rest, -coefficient, f"{_operand(_add(x, _lift()))} // 2", meaning
    lead, unit = quotient.divisor[0]
    cofactor = _without(rest, lead)
    if cofactor is not None and coefficient % unit == 0:
        times = -coefficient // unit
        meaning = _multiply(_lift(*cofactor, times=times), _subtract(x, _multiply(y, z)))
        yield cofactor, times, f"{_operand(x)} % {_operand(y)}", meaning


def _atom_text(atom: _Atom) -> str:
    return atom if isinstance(atom, str) else " // ".join(_operand(dict(terms)) for terms in atom)


def _operand(polynomial: _Polynomial) -> str:
    text = _text(polynomial)
    return text if text.isidentifier() or text.isdecimal() else f"({text})"
