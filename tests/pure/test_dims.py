"""Dims against Python's own integers: every expression is built twice, once over symbols and once over ints.

The numbers in the tests' names are those of the invariants in the module's docstring.
"""

from __future__ import annotations

import copy
import operator
import pickle
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lamina.sharding.dims import (
    AlgebraicDim,
    Dim,
    SymbolicDim,
    ceil_div,
    free_symbols,
    is_static,
    join_sizes,
    parse_dim,
    split_offset,
    split_sizes,
    substitute,
)

n, m, p = Dim("n"), Dim("m"), Dim("p")
MANY = settings(max_examples=8 * settings().max_examples)  # of what the chosen profile says
NAMES = ("n", "m", "p")
SYMBOLS = {name: SymbolicDim(name) for name in NAMES}
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}

# A tree is an int, a name, or (sign, tree, tree).
leaves = st.sampled_from(NAMES) | st.integers(-9, 9)


def trees(signs: str = "+ - * // %", max_leaves: int = 8) -> st.SearchStrategy:
    return st.recursive(leaves, lambda sub: st.tuples(st.sampled_from(signs.split()), sub, sub), max_leaves=max_leaves)


def evaluate(tree, values):
    """The tree over whatever the values are: ints, which makes it the oracle, or symbols."""
    match tree:
        case int():
            return tree
        case str():
            return values[tree]
        case sign, left, right:
            return OPERATORS[sign](evaluate(left, values), evaluate(right, values))


def dims(signs: str = "+ - * // %", max_leaves: int = 6) -> st.SearchStrategy:
    def built(tree):
        try:
            return [evaluate(tree, SYMBOLS)]
        except ZeroDivisionError:
            return []

    return trees(signs, max_leaves).map(built).filter(bool).map(lambda found: found[0])


polynomials = dims("+ - *")
sizes = st.integers(0, 9)
bindings = st.fixed_dictionaries({name: sizes for name in NAMES})
positive = st.integers(1, 12)


def value(dim, binding):
    found = substitute(dim, binding)
    assert type(found) is int
    return found


# 3: the same ints as Python's


@MANY
@given(trees(), bindings)
def test_3_expressions_mean_what_python_computes(tree, binding):
    try:
        expected = evaluate(tree, binding)
    except ZeroDivisionError:
        assume(False)
    assert value(evaluate(tree, SYMBOLS), binding) == expected


@given(trees(), bindings, st.sets(st.sampled_from(NAMES)))
def test_3_symbols_may_be_bound_in_steps_or_before_the_arithmetic(tree, binding, early):
    try:
        expected = evaluate(tree, binding)
    except ZeroDivisionError:
        assume(False)
    first = {name: binding[name] for name in early}
    assert value(substitute(evaluate(tree, SYMBOLS), first), binding) == expected
    assert value(evaluate(tree, SYMBOLS | first), binding) == expected


@given(trees("+ - * //"), bindings)
def test_3_symbols_may_be_bound_to_expressions(tree, binding):
    shapes = {"n": 2 * m + p, "m": m // 2 + 1, "p": n}
    inner = {name: value(dim, binding) for name, dim in shapes.items()}
    try:
        expected = evaluate(tree, inner)
    except ZeroDivisionError:
        assume(False)
    assert value(substitute(evaluate(tree, SYMBOLS), shapes), binding) == expected


def test_3_substitution_is_simultaneous_and_ignores_other_names():
    assert substitute(n - 2 * m, {"n": m, "m": n, "other": 3}) == m - 2 * n
    assert substitute(7, {"n": 1}) == 7
    assert substitute("n", {"n": "m"}) == m
    assert substitute(n + 1, {}) == n + 1


# 1: equal form, equal object


def same(a, b):
    return a == b and hash(a) == hash(b) and str(a) == str(b) and type(a) is type(b)


@given(dims(), dims(), dims())
def test_1_the_laws_of_a_ring(a, b, c):
    assert same(a + b, b + a)
    assert same(a * b, b * a)
    assert same((a + b) + c, a + (b + c))
    assert same((a * b) * c, a * (b * c))
    assert same(a * (b + c), a * b + a * c)
    assert same(a + b - b, a)
    assert same(-(a - b), b - a)
    assert same(a + a, 2 * a)
    assert same(a - a, 0)
    assert same(a * 1, a)
    assert same(a * 0, 0)


@given(dims(), dims("+ - *", 3), dims("+ - *", 3))
def test_1_the_exact_part_comes_out_of_a_quotient(a, b, divisor):
    assume(divisor != 0)
    assert same((a + b * divisor) // divisor, a // divisor + b)
    assert same((a + b * divisor) % divisor, a % divisor)
    assert same((b * divisor) // divisor, b)


@given(dims(), dims())
def test_4_quotient_and_remainder(a, b):
    assume(b != 0)
    assert same(a // b * b + a % b, a)
    assert same(a // -b, -a // b)


@given(polynomials, positive, positive)
def test_1_nesting_and_common_factors(a, j, k):
    assert same(a // j // k, a // (j * k))
    assert same((a * j) // (k * j), a // k)
    assert same((a * j + j - 1) // (k * j), a // k)
    assert same(a % k % k, a % k)
    assert same(a % k // k, 0)


@given(polynomials, positive)
def test_1_rounding_up(a, k):
    assert same(-(-a // k), (a + k - 1) // k)
    assert same(-(-a // n), (a + n - 1) // n)


@given(dims(), dims())
def test_1_equality_is_decided_by_the_form_and_is_sound(a, b):
    if a == b:
        assert hash(a) == hash(b) and str(a) == str(b)
    assert (a == b) == (a - b == 0)


@pytest.mark.parametrize(
    "one, other",
    [
        (n + n, 2 * n),
        ((4 * n) // 4, n),
        ((n + 1) * 2, 2 * n + 2),
        (n - n, 0),
        ((4 * n + 3) // 4, n),
        ((4 * n + 5) // 4, n + 1),
        ((4 * n + m) // 4, n + m // 4),
        (n // 2 // 3, n // 6),
        (n // m // 3, n // (3 * m)),
        (n * m // m, n),
        ((n * m + p) // m, n + p // m),
        ((2 * n * m) // (4 * m * p), n // (2 * p)),
        ((n * n - 1) // (n - 1), n + 1),
        ((4 * n + m) % 4, m % 4),
        ((4 * n + 7) % 4, 3),
        (n % 1, 0),
        (n % n, 0),
        (n - n // 2, (n + 1) // 2),
        (-(-n // m), (n + m - 1) // m),
        (((n + 1) // 2 + 1) // 2, (n + 3) // 4),
        (((n + 1) // 2 + 2) // 3, (n + 5) // 6),
        (n // -4, -n // 4),
    ],
)
def test_1_equal_meaning_equal_object(one, other):
    assert same(one, other)


@pytest.mark.parametrize(
    "one, other",
    [
        (n, m),
        (n, "n"),
        (n, 4),
        (n + 1, n + 2),
        (n // 4 * 4, n),
        (n // 2, (n + 1) // 2),
        (n // m, m // n),
        (n % 4, n % 8),
        (n // 3 + (n + 1) // 3 + (n + 2) // 3, n),  # not found, as the module says; join_sizes does
    ],
)
def test_1_unequal(one, other):
    assert one != other


# 2: the smallest kind


@given(dims(), bindings)
def test_2_the_smallest_kind(a, binding):
    match a:
        case int():
            assert is_static(a) and free_symbols(a) == frozenset()
        case SymbolicDim(name):
            assert not is_static(a) and free_symbols(a) == {name}
        case AlgebraicDim():
            assert not is_static(a) and free_symbols(a) and free_symbols(a) <= set(NAMES)
    used = {name: binding[name] for name in free_symbols(a)}
    try:
        assert type(substitute(a, used)) is int
    except ZeroDivisionError:
        assert "//" in str(a) or "%" in str(a)


def test_2_types():
    assert type(n + 1 - n) is int and type(n * 0) is int and type(n // n) is int
    assert type(n + 1 - 1) is SymbolicDim and type(2 * n // 2) is SymbolicDim
    assert type(n + 1) is AlgebraicDim
    assert Dim(4) == 4 and Dim("n") is not None and Dim(n) is n and Dim(n + 1) == n + 1
    assert is_static(4) and is_static(-4) and not is_static(n) and not is_static("n")


# 5: text


@MANY
@given(dims(max_leaves=10))
def test_5_text_reads_back(a):
    assert same(parse_dim(str(a)), a)
    assert same(eval(repr(a), {"AlgebraicDim": AlgebraicDim, "SymbolicDim": SymbolicDim}), a)
    assert same(pickle.loads(pickle.dumps(a)), a)
    assert same(copy.deepcopy(a), a)


@pytest.mark.parametrize(
    "text",
    [
        "0", "7", "-7", "n", "-n", "2*n", "-2*n", "m + n", "n - m", "n - 1", "1 - n", "2*n + 1", "n*n", "m*n + m + n",
        "n // 4", "(n + 3) // 4", "(2*n) // 5", "-(n // 4)", "4*((n + 3) // 4)", "n + m // 4", "n // (m*p)", "5 // n",
        "n // (m + 1)", "n - n // 3", "(n // 2)*(n // 3)", "n*(m // 2)", "(n // 2 + n // 3) // 5",
        "n % 4", "(n + 3) % 4", "n % m", "n % (m + 1)", "2*(n % 2) + 1", "n + n % 4", "m*(n % 4) + 3", "-(n % 4)",
        "7 % n", "n % 2", "(n + 1) // 2", "2*((n + 1) // 2)", "-((n + 1) // 2)", "4*((n + 3) // 4) - n",
    ],
)  # fmt: skip
def test_5_text_as_on_paper(text):
    assert str(parse_dim(text)) == text


@pytest.mark.parametrize(
    "text, dim",
    [(" n ", n), ("(n)", n), ("n+1", n + 1), ("1 + n", n + 1), ("--n", n), ("n - (m - 1)", n - m + 1), ("7 // 2", 3)],
)
def test_5_other_spellings(text, dim):
    assert parse_dim(text) == dim


def test_the_order_of_terms_does_not_depend_on_how_they_came():
    one, other = (n + m) * (p + 1) + n // 2, n // 2 + p * n + m + (p * m + n)
    assert str(one) == str(other) == "m*p + n*p + m + n + n // 2"
    assert repr(one) == "AlgebraicDim('m*p + n*p + m + n + n // 2')"
    assert repr(n) == "SymbolicDim('n')" and f"{n}" == "n"


def test_frozen():
    with pytest.raises(AttributeError):
        n.name = "m"
    with pytest.raises(AttributeError):
        (n + 1).terms = ()
    assert {n: 1, n + 1: 2}[1 + n] == 2 and len({n, m, n + n, 2 * n}) == 3


# 6: the layout rule


@given(st.integers(0, 200), st.integers(1, 40))
def test_6_static_sizes(size, k):
    found = split_sizes(size, k)
    assert len(found) == k and sum(found) == size == join_sizes(found)
    assert max(found) - min(found) <= 1 and list(found) == sorted(found, reverse=True)
    assert [split_offset(size, k, i) for i in range(k + 1)] == [sum(found[:i]) for i in range(k + 1)]
    assert found[0] == ceil_div(size, k)
    assert split_sizes(n, k)[0] == ceil_div(n, k)
    assert tuple(substitute(each, {"n": size}) for each in split_sizes("n", k)) == found


@MANY
@given(dims(), st.integers(1, 9), bindings)
def test_6_symbolic_sizes_are_the_static_ones(a, k, binding):
    assume(is_static(a) is False)
    try:
        size = value(a, binding)
    except ZeroDivisionError:
        assume(False)
    assume(size >= 0)
    assert tuple(value(each, binding) for each in split_sizes(a, k)) == split_sizes(size, k)
    assert value(join_sizes(split_sizes(a, k)), binding) == size


@given(polynomials.filter(lambda a: not is_static(a)), st.integers(1, 12), st.integers(1, 8))
def test_6_join_undoes_split(a, k, j):
    assert same(join_sizes(split_sizes(a, k)), a)
    assert same(join_sizes(split_sizes(ceil_div(a, j), k)), ceil_div(a, j))


@given(st.lists(dims("+ * //"), max_size=5), bindings)
def test_6_join_is_a_sum(parts, binding):
    parts = [part for part in parts if not isinstance(part, int) or part >= 0]
    try:
        expected = sum(value(part, binding) for part in parts)
    except ZeroDivisionError:
        assume(False)
    assert value(join_sizes(parts), binding) == expected


def test_6_examples():
    assert split_sizes(10, 4) == (3, 3, 2, 2)
    assert split_sizes(3, 8) == (1, 1, 1, 0, 0, 0, 0, 0)
    assert list(map(str, split_sizes("n", 4))) == ["(n + 3) // 4", "(n + 2) // 4", "(n + 1) // 4", "n // 4"]
    assert split_sizes(n, 1) == (n,) and split_sizes(8 * n, 4) == (2 * n,) * 4
    assert join_sizes([]) == 0


@given(st.integers(0, 99), st.integers(1, 99))
def test_ceil_div(a, b):
    assert ceil_div(a, b) == ceil(Fraction(a, b))
    assert substitute(ceil_div("n", "m"), {"n": a, "m": b}) == ceil(Fraction(a, b))


# Comparisons


@given(dims(), st.integers(-9, 9))
def test_comparisons_of_dims_that_differ_by_a_constant(a, c):
    for relation in (operator.lt, operator.le, operator.gt, operator.ge):
        assert relation(a, a + c) is relation(0, c)
        assert relation(a + c, a) is relation(c, 0)


def test_comparisons():
    assert n < n + 1 and n <= n and n + 1 > n and n >= n and not n > n and not n + 1 <= n
    assert max(n, n + 2, n + 1) == n + 2


# Errors

HOW = "bind n first, by substitute(dim, {'n': ...})"


@pytest.mark.parametrize(
    "action, error, message",
    [
        (lambda: n < 4, TypeError, f"n < 4 is not decided: {HOW}"),
        (lambda: operator.lt(4, n), TypeError, f"n > 4 is not decided: {HOW}"),
        (lambda: n <= 2 * n, TypeError, f"n <= 2*n is not decided: {HOW}"),
        (lambda: n >= 0, TypeError, f"n >= 0 is not decided: {HOW}"),
        (
            lambda: n + 1 > m,
            TypeError,
            "n + 1 > m is not decided: bind m, n first, by substitute(dim, {'m': ..., 'n': ...})",
        ),
        (lambda: n < "m", TypeError, "'<' not supported between instances of 'SymbolicDim' and 'str'"),
        (lambda: bool(n), TypeError, f"SymbolicDim('n') has no truth value yet: {HOW}"),
        (lambda: bool(n + 1), TypeError, f"AlgebraicDim('n + 1') has no truth value yet: {HOW}"),
        (lambda: int(n), TypeError, f"SymbolicDim('n') is no int yet: {HOW}"),
        (lambda: float(n), TypeError, f"SymbolicDim('n') is no int yet: {HOW}"),
        (lambda: range(n + 1), TypeError, f"AlgebraicDim('n + 1') is no int yet: {HOW}"),
        (lambda: [1, 2][n], TypeError, f"SymbolicDim('n') is no int yet: {HOW}"),
        (lambda: n + 0.5, TypeError, "unsupported operand type(s) for +: 'SymbolicDim' and 'float'"),
        (lambda: True * n, TypeError, "unsupported operand type(s) for *: 'bool' and 'SymbolicDim'"),
        (lambda: n + "m", TypeError, "unsupported operand type(s) for +: 'SymbolicDim' and 'str'"),
        (lambda: n / 2, TypeError, "unsupported operand type(s) for /: 'SymbolicDim' and 'int'"),
        (lambda: n // 0, ZeroDivisionError, "n divided by 0"),
        (lambda: (n + 1) % (n - n), ZeroDivisionError, "n + 1 divided by 0"),
        (lambda: 0 // (n - n), ZeroDivisionError, "integer division or modulo by zero"),
        (lambda: substitute(n // m, {"m": 0}), ZeroDivisionError, "n // m: m is 0"),
        (lambda: substitute((n + 1) % (m - p), {"m": 4, "p": 4}), ZeroDivisionError, "(n + 1) // (m - p): m - p is 0"),
        (lambda: ceil_div("n", 0), ZeroDivisionError, "-n divided by 0"),
        (lambda: SymbolicDim(4), TypeError, "a symbol's name is a str, not 4"),
        *(
            (
                lambda name=name: SymbolicDim(name),
                ValueError,
                f"a symbol's name is an identifier like 'n', not {name!r} (parse_dim reads expressions)",
            )
            for name in ("", "n + 1", "4n", "n-1", " n", "in", "None", "ﬁ")
        ),
        (lambda: AlgebraicDim("n"), ValueError, "'n' is no composed expression but SymbolicDim('n')"),
        (lambda: AlgebraicDim("n - n"), ValueError, "'n - n' is no composed expression but 0"),
        (lambda: Dim(-1), ValueError, "a dim is 0 or more, not -1"),
        *(
            (
                lambda wrong=wrong: Dim(wrong),
                TypeError,
                f"a dim is an int, the name of a symbol or a symbolic dim, not {wrong!r}",
            )
            for wrong in (True, 2.0, None, (4,))
        ),
        (
            lambda: Dim("n + 1"),
            ValueError,
            "a symbol's name is an identifier like 'n', not 'n + 1' (parse_dim reads expressions)",
        ),
        (
            lambda: substitute(n, {"n": True}),
            TypeError,
            "a dim is an int, the name of a symbol or a symbolic dim, not True",
        ),
        (lambda: substitute(n, {"n": -1}), ValueError, "a dim is 0 or more, not -1"),
        (lambda: is_static(2.5), TypeError, "a dim is an int, the name of a symbol or a symbolic dim, not 2.5"),
        (lambda: parse_dim(7), TypeError, "parse_dim reads a str, not 7"),
        *(
            (
                lambda text=text: parse_dim(text),
                ValueError,
                f"a dim is written like '4*n + 1' or '(n + 3) // 4', not {text!r}",
            )
            for text in (
                "",
                "n / 4",
                "n +",
                "2n",
                "n ** 2",
                "1.5*n",
                "f(n)",
                "n.m",
                "n, m",
                "True",
                "n < m",
                "'n'",
                "n\0",
            )
        ),
        (lambda: parse_dim("n // 0"), ZeroDivisionError, "n divided by 0"),
        (lambda: split_sizes(4, 0), ValueError, "a dim is split into 1 shard or more, not 0"),
        (lambda: split_sizes("n", -2), ValueError, "a dim is split into 1 shard or more, not -2"),
        (lambda: split_sizes(4, 2.0), TypeError, "a number of shards is an int, not 2.0"),
        (lambda: split_sizes(4, True), TypeError, "a number of shards is an int, not True"),
        (lambda: split_sizes(4, n), TypeError, "a number of shards is an int, not SymbolicDim('n')"),
        (lambda: split_sizes(-4, 2), ValueError, "a dim is 0 or more, not -4"),
        (lambda: split_offset(n, 2, 0), TypeError, f"SymbolicDim('n') is no int yet: {HOW}"),
        (lambda: split_offset(4, 2, 3), ValueError, "2 shards have offsets 0 to 2, not 3"),
        (lambda: split_offset(4, 2, -1), ValueError, "2 shards have offsets 0 to 2, not -1"),
        (lambda: split_offset(4, 0, 0), ValueError, "a dim is split into 1 shard or more, not 0"),
        (lambda: join_sizes([2, -1]), ValueError, "a dim is 0 or more, not -1"),
    ],
)
def test_errors_say_what_was_wrong(action, error, message):
    with pytest.raises(error) as caught:
        action()
    assert str(caught.value) == message


def test_a_missing_zero_check_is_the_documented_exception_to_3():
    assert substitute(m * n // n, {"m": 5, "n": 0}) == 5
    assert n // n == 1


def test_integers_of_other_libraries():
    np = pytest.importorskip("numpy")
    four = np.int64(4)
    assert type(Dim(four)) is int and type(split_sizes(four, four)[0]) is int
    assert n + four == n + 4 == four + n and n // four == n // 4 and four * n == 4 * n
    with pytest.raises(TypeError):
        Dim(np.bool_(True))
    with pytest.raises(TypeError):
        Dim(np.float64(4))
