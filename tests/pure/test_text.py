"""Layouts written down and read back, and where the parser points when it can't."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import LayoutError, SpecSyntaxError
from lamina.sharding import (
    DeviceMesh,
    DimSpec,
    Layout,
    NamedMapping,
    ReduceOp,
    parse_layout,
    parse_mapping,
    parse_mesh,
    parse_spec,
)
from lamina.sharding.text import axes_text, layout_text, spec_text
from tests.strategies import layouts, mesh_axes

names = st.from_regex(r"[a-zA-Z_é][a-zA-Z0-9_é]{0,5}", fullmatch=True)


@st.composite
def any_layout(draw) -> Layout:
    return draw(layouts(draw(mesh_axes()), draw(st.integers(0, 3))))


@st.composite
def written_spec(draw):
    axes = draw(st.lists(names, unique=True, max_size=6))
    dims = []
    for _ in range(draw(st.integers(0, 3))):
        mine = [axes.pop() for _ in range(draw(st.integers(0, len(axes))))]
        dims.append(DimSpec(mine, draw(st.booleans()), draw(st.integers(0, 12))))
    return tuple(dims), tuple((axis, draw(st.sampled_from(ReduceOp))) for axis in axes)


# -- there and back ---------------------------------------------------------------------------------------------------


@given(any_layout())
def test_every_layout_is_read_back(layout):
    assert parse_layout(str(layout)) == layout
    assert parse_layout(repr(layout)) == eval(repr(layout), {"Layout": parse_layout}) == layout
    assert str(parse_layout(str(layout))) == str(layout) == layout_text(layout)


@given(written_spec())
def test_every_spec_is_read_back(spec):
    dims, partial = spec
    found_dims, found_partial = parse_spec(spec_text(dims, partial))
    assert found_dims == dims
    assert dict(found_partial) == dict(partial)


@given(written_spec(), st.sampled_from([None, "pinned_host", "device"]))
def test_every_mapping_is_read_back(spec, memory_kind):
    dims, partial = spec
    axes = [*(axis for dim in dims for axis in dim.axes), *(axis for axis, _ in partial), "other"]
    mesh = DeviceMesh.simulated([2 + i % 3 for i in range(len(axes))], axes)
    mapping = NamedMapping(mesh, dims, unreduced=dict(partial), memory_kind=memory_kind)
    assert parse_mapping(str(mapping), mesh) == parse_mapping(repr(mapping), mesh) == mapping
    assert parse_mapping(repr(mapping)) == NamedMapping(
        DeviceMesh.abstract(mesh.mesh_shape, mesh.axis_names), dims, unreduced=dict(partial), memory_kind=memory_kind
    )


@given(mesh_axes())
def test_every_mesh_is_read_back(sizes):
    text = axes_text(sizes.items())
    assert parse_mesh(text) == parse_mesh(text[1:-1]) == tuple(sizes.items())


@given(any_layout(), st.randoms(use_true_random=False))
def test_spaces_between_tokens_do_not_matter(layout, random):
    one_token = str(layout).replace("()", "∅")
    spaced = "".join(c + " " * random.randint(0, 2) if c in "[]=,()+∅" else c for c in one_token)
    assert parse_layout(spaced.replace("∅", "()")) == layout


@pytest.mark.parametrize(
    "text, layout",
    [
        ("[x=2] x", Layout({"x": 2}, [("x",)])),
        ("[x=2] ()", Layout({"x": 2}, [])),
        ("[x=2] -", Layout({"x": 2}, [()])),
        ("[x=2,y=3] -,(y,x)", Layout({"x": 2, "y": 3}, [(), ("y", "x")])),
        ("[x=2,y=3] y +max(x)", Layout({"x": 2, "y": 3}, [("y",)], {"x": ReduceOp.MAX})),
        ("[x=2,y=3] () +sum(x) +avg(y)", Layout({"x": 2, "y": 3}, [], {"x": ReduceOp.SUM, "y": ReduceOp.AVG})),
        ("[x=2,y=3] () +sum(x,y)", Layout({"x": 2, "y": 3}, [], {"x": ReduceOp.SUM, "y": ReduceOp.SUM})),
    ],
)
def test_by_hand(text, layout):
    assert parse_layout(text) == layout and str(layout) == text


# -- what can't be read -----------------------------------------------------------------------------------------------

# (read, text with a caret below the place, what is said)
MISTAKES = [
    (parse_layout, "x,-", "^", "expected '['"),
    (parse_layout, "[=2] -", " ^", "expected an axis name"),
    (parse_layout, "[x] -", "  ^", "expected '='"),
    (parse_layout, "[x=a] -", "   ^", "expected a size"),
    (parse_layout, "[x=0] -", "   ^", "a size must be >= 1"),
    (parse_layout, "[x=2,x=3] -", "     ^", "axis 'x' stands twice"),
    (parse_layout, "[x=2", "    ^", "expected ']'"),
    (parse_layout, "[x=2,] -", "     ^", "expected an axis name"),
    (parse_layout, "[x=2]", "     ^", "expected an axis name, '-' or '('"),
    (parse_layout, "[x=2] x,,y", "        ^", "expected an axis name, '-' or '('"),
    (parse_layout, "[x=2] x y", "        ^", "did not expect 'y'"),
    (parse_layout, "[x=2] (),x", "        ^", "did not expect ','"),
    (parse_layout, "[x=2] x +foo(x)", "         ^", "expected one of sum, avg, min, max, prod"),
    (parse_layout, "[x=2] - +sum x", "             ^", "expected '('"),
    (parse_layout, "[x=2] - +sum()", "             ^", "expected an axis name"),
    (parse_spec, "x,(y", "    ^", "expected ')'"),
    (parse_spec, "x!", "  ^", "expected a priority"),
    (parse_spec, "x!?", "  ^", "expected a priority"),
    (parse_spec, "", "^", "expected an axis name, '-' or '('"),
    (parse_spec, "3", "^", "expected an axis name, '-' or '('"),
    (parse_layout, "Layout('[x=2] x", "               ^", 'expected "\')"'),
    (parse_layout, "NamedMapping('[x=2] x')", "^", "expected '['"),
    (parse_mapping, "[x=2] x @", "         ^", "expected a memory kind"),
    (parse_mapping, "[x=2] x @device y", "                ^", "did not expect 'y'"),
    (parse_mesh, "x=2,y", "     ^", "expected '='"),
    (parse_mesh, "[x=2] -", "      ^", "did not expect '-'"),
]


@pytest.mark.parametrize("read, text, caret, fact", MISTAKES, ids=[repr(case[1]) for case in MISTAKES])
def test_the_caret_points_at_the_mistake(read, text, caret, fact):
    with pytest.raises(SpecSyntaxError) as caught:
        read(text)
    error = caught.value
    assert error.pointer() == f"{text}\n{caret}"
    assert (error.fact, error.text, error.column) == (fact, text, len(caret) - 1)
    assert str(error) == f"{fact} at column {len(caret)} of {text!r}"
    assert isinstance(error, LayoutError)


def test_a_syntax_error_travels_between_processes():
    twin = pickle.loads(pickle.dumps(SpecSyntaxError("expected ')'", "(x", 2)))
    assert twin.pointer() == "(x\n  ^" and str(twin) == "expected ')' at column 3 of '(x'"


@pytest.mark.parametrize(
    "text, fact",
    [
        ("[x=2] y", "'y' is not an axis of the mesh [x=2]"),
        ("[x=2] x,x", "axis 'x' is used twice: by dim 0 and by dim 1"),
        ("[x=2] x +sum(x)", "axis 'x' is used twice: by dim 0 and as Partial"),
        ("[x=2] - +sum(x) +max(x)", "axis 'x' is used twice"),
        ("[x=2] - +sum(x,x)", "axis 'x' is used twice"),
    ],
)
def test_what_reads_well_but_cannot_be(text, fact):
    with pytest.raises(LayoutError) as caught:
        parse_layout(text)
    assert fact in str(caught.value)


@pytest.mark.parametrize("text", ["[x=2] x?", "[x=2] x!2"])
def test_a_layout_has_no_open_dims_and_no_priorities(text):
    """They belong to mappings; dropping them in silence would lose information."""
    with pytest.raises(LayoutError):
        parse_layout(text)


@given(st.text(alphabet="[]xy=2,-()?!+sumax 0", max_size=20))
def test_any_text_is_read_or_refused_with_a_place(text):
    try:
        parse_layout(text)
    except SpecSyntaxError as error:
        assert 0 <= error.column <= len(text)
    except LayoutError:
        pass
