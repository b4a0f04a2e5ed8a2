"""Pictures and tables: golden texts, and every label against the meaning of the layout."""

import io
import re
from dataclasses import dataclass
from itertools import product

import pytest
from rich.console import Console

from lamina.planning import AllToAll, Plan, ReduceScatter, Slice, plan
from lamina.sharding import DeviceMesh, Layout, NamedMapping, PlacementMapping, ReduceOp, TensorLayout, parse_layout
from lamina.sharding.mesh import positions
from lamina.viz import picture, plan_table
from lamina.viz.holders import label

# layout, shape (None: unknown), what is drawn
GOLDEN = [
    (
        "[dp=2,tp=4] dp,-",
        (8, 8),
        """
8×8 as [dp=2,tp=4] dp,-
                       8
   ┌────────────────────────────────────────┐
 4 │                  0-3                   │
   │                                        │
   ├────────────────────────────────────────┤
 4 │                  4-7                   │
   │                                        │
   └────────────────────────────────────────┘
""",
    ),
    (  # the order of the axes on a dim is seen
        "[dp=2,tp=4] -,(tp,dp)",
        (2, 8),
        """
2×8 as [dp=2,tp=4] -,(tp,dp)
      1     1     1     1     1     1     1     1
   ┌─────┬─────┬─────┬─────┬─────┬─────┬─────┬─────┐
 2 │  0  │  4  │  1  │  5  │  2  │  6  │  3  │  7  │
   └─────┴─────┴─────┴─────┴─────┴─────┴─────┴─────┘
""",
    ),
    (  # uneven: larger blocks are drawn larger; pieces
        "[dp=2,tp=4] tp,- +max(dp)",
        (10, 3),
        """
10×3 as [dp=2,tp=4] tp,- +max(dp)
         3
   ┌────────────┐
 3 │ max(0, 4)  │
   │            │
   ├────────────┤
 3 │ max(1, 5)  │
   │            │
   ├────────────┤
 2 │ max(2, 6)  │
   ├────────────┤
 2 │ max(3, 7)  │
   └────────────┘
  max(…): the value is the maximum of the pieces on these devices
""",
    ),
    (
        "[dp=2,tp=4] (dp,tp)",
        (10,),
        """
10 as [dp=2,tp=4] (dp,tp)
      2        2      1    1    1    1    1    1
  ┌────────┬────────┬────┬────┬────┬────┬────┬────┐
  │   0    │   1    │ 2  │ 3  │ 4  │ 5  │ 6  │ 7  │
  └────────┴────────┴────┴────┴────┴────┴────┴────┘
""",
    ),
    (  # fewer entries than shards
        "[dp=2,tp=4] (dp,tp)",
        (3,),
        """
3 as [dp=2,tp=4] (dp,tp)
         1             1             1
  ┌─────────────┬─────────────┬─────────────┐
  │      0      │      1      │      2      │
  └─────────────┴─────────────┴─────────────┘
  devices 3-7 hold nothing: more shards than entries
""",
    ),
    (  # reductions that don't commute: the first axis stands outside
        "[x=2,y=2,z=2] () +sum(x) +max(y)",
        (),
        """
scalar as [x=2,y=2,z=2] () +sum(x) +max(y)
  ┌─────────────────────────────────┐
  │ Σ(max(0 1, 2 3), max(4 5, 6 7)) │
  └─────────────────────────────────┘
  Σ(max(…)): the value is the sum of the maxima of the pieces on these devices
""",
    ),
    (  # dims before the last two: one grid per block
        "[x=2,y=2,z=2] x,y,z",
        (3, 2, 2),
        """
3×2×2 as [x=2,y=2,z=2] x,y,z
  [0:2, :, :]
             1                    1
   ┌────────────────────┬────────────────────┐
 1 │         0          │         1          │
   │                    │                    │
   ├────────────────────┼────────────────────┤
 1 │         2          │         3          │
   │                    │                    │
   └────────────────────┴────────────────────┘
  [2:3, :, :]
             1                    1
   ┌────────────────────┬────────────────────┐
 1 │         4          │         5          │
   │                    │                    │
   ├────────────────────┼────────────────────┤
 1 │         6          │         7          │
   │                    │                    │
   └────────────────────┴────────────────────┘
""",
    ),
    (  # no shape
        "[dp=2,tp=3] dp,tp",
        None,
        """
[dp=2,tp=3] dp,tp
  ┌─────────────┬─────────────┬─────────────┐
  │      0      │      1      │      2      │
  │             │             │             │
  ├─────────────┼─────────────┼─────────────┤
  │      3      │      4      │      5      │
  │             │             │             │
  └─────────────┴─────────────┴─────────────┘
""",
    ),
    ("[x=2] -,x", (0, 8), "\n0×8 as [x=2] -,x\n  empty: every device holds 0 entries\n"),
    (  # a pod: what doesn't fit is left out
        "[dp=64,tp=64] -,tp +sum(dp)",
        (1, 4096),
        """
1×4096 as [dp=64,tp=64] -,tp +sum(dp)
           64               64               64               …                64
   ┌────────────────┬────────────────┬────────────────┬────────────────┬────────────────┐
 1 │ Σ(0, …, 4032)  │ Σ(1, …, 4033)  │ Σ(2, …, 4034)  │       …        │ Σ(63, …, 4095) │
   └────────────────┴────────────────┴────────────────┴────────────────┴────────────────┘
  Σ(…): the value is the sum of the pieces on these devices
""",
    ),
]


@pytest.mark.parametrize(("layout", "shape", "expected"), GOLDEN, ids=[f"{case[0]} {case[1]}" for case in GOLDEN])
def test_the_picture_is(layout: str, shape: tuple[int, ...] | None, expected: str) -> None:
    assert picture(layout, shape) == expected.strip("\n")


@dataclass
class Tensorlike:
    """What a picture needs of a Tensor; the Tensor itself lives in a room with JAX."""

    layout: Layout
    shape: tuple[int, ...]


def test_every_way_to_name_a_layout_gives_the_same_picture() -> None:
    text, shape = "[x=2,y=3] y,-", (6, 4)
    mesh, layout = DeviceMesh.abstract((2, 3), ("x", "y")), parse_layout(text)
    mapping = NamedMapping(mesh, ["y"])
    pictures = {
        picture(text, shape),
        picture(layout, shape),
        picture(mapping, shape),
        picture(PlacementMapping(mesh, mapping.to_placements()), shape),
        picture(TensorLayout("float32", shape, mapping)),
        picture(Tensorlike(layout, shape)),
    }
    assert len(pictures) == 1


def test_what_can_not_be_drawn() -> None:
    mesh = DeviceMesh.abstract((2,), ("x",))
    with pytest.raises(TypeError, match="picture takes a Tensor, a layout or a mapping, not int"):
        picture(3)
    with pytest.raises(ValueError, match=r"picture\(x, shape\): .* fits tensors of several ranks: give a shape"):
        picture(NamedMapping(mesh, ["x"]))
    with pytest.raises(ValueError, match=r"has 1 dims, but the shape \(2, 2\) has 2"):
        picture("[x=2] x", (2, 2))
    with pytest.raises(TypeError, match="is no int yet: bind n first"):
        picture(TensorLayout("float32", ("n",), NamedMapping(mesh, ["x"])))


LAYOUTS = [
    "[x=2,y=3,z=2] -,-",
    "[x=2,y=3,z=2] y,(z,x)",
    "[x=2,y=3,z=2] (z,y,x),-",
    "[x=2,y=3,z=2] z,- +sum(y)",
    "[x=2,y=3,z=2] -,y +sum(x,z)",
    "[x=2,y=3,z=2] -,- +sum(x) +max(y) +prod(z)",
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_labels_name_exactly_the_holders(text: str) -> None:
    """Each block's label, read back, is the set of the devices whose block it is, and each piece's the copies of it."""
    layout = parse_layout(text)
    mesh = DeviceMesh.abstract([size for _, size in layout.axes], [axis for axis, _ in layout.axes])
    for block in product(*map(range, layout.grid)):
        copies: dict[tuple[int, ...], set[int]] = {}
        for device, where in enumerate(positions(mesh)):
            if layout.block_index(where) == block:
                copies.setdefault(tuple(where[axis] for axis in layout.partial_axes), set()).add(device)
        written = re.findall(r"[\d -]*\d[\d -]*", label(layout, block, 1000))
        assert [numbers(group) for group in written] == list(copies.values())


def numbers(text: str) -> set[int]:
    ends = [tuple(map(int, part.split("-"))) for part in text.split()]
    return {number for end in ends for number in range(end[0], end[-1] + 1)}


@pytest.mark.parametrize("shape", [(4096, 4096), (1, 10**9), (10**9, 7), (3, 5000)])
@pytest.mark.parametrize(
    "layout",
    [
        "[a=16,b=16,c=16,d=16] (a,b),(c,d)",
        "[a=16,b=16,c=16,d=16] -,(d,c,b,a)",
        "[a=16,b=16,c=16,d=16] -,-",
        "[a=16,b=16,c=16,d=16] d,c +sum(a)",
        "[a=16,b=16,c=16,d=16] -,b +min(a) +sum(c) +max(d)",
        "[a=16,b=16,c=16,d=16] -,- +min(a) +max(b) +sum(c) +prod(d)",
    ],
)
def test_a_picture_of_65536_devices_fits_the_page(layout: str, shape: tuple[int, ...]) -> None:
    lines = picture(layout, shape).splitlines()
    drawn = [line for line in lines if line[-1] in "┐┤│┘"]
    assert max(map(len, lines)) <= 120 and max(map(len, drawn)) <= 100 and len(lines) <= 60
    assert len({len(line) for line in drawn}) == 1  # one rectangle


def test_a_plan_as_a_table() -> None:
    source, target = parse_layout("[dp=2,tp=4] dp,- +sum(tp)"), parse_layout("[dp=2,tp=4] -,(tp,dp)")
    steps = (ReduceScatter(("tp",), ReduceOp.SUM, 1), AllToAll.of(("dp",), 0, 1))
    expected = """
    step                                     group   receives   layout after
─────────────────────────────────────────────────────────────────────────────
0   from                                                        dp,- +sum(tp)
1   reduce-scatter sum over tp into dim 1        4     197 kB   dp,tp
2   all-to-all over dp from dim 0 to dim 1       2    32.8 kB   -,(tp,dp)
─────────────────────────────────────────────────────────────────────────────
    in all, per device                                 229 kB   peak 328 kB
    at least                                           229 kB   ratio 1.00
"""
    assert drawn(plan_table(Plan(source, target, (256, 512), 4, steps))) == expected.strip("\n")


def test_a_plan_with_nothing_to_do() -> None:
    layout = parse_layout("[x=2] x")
    table = drawn(plan_table(Plan(layout, layout, (8,), 4, ())))
    assert [line.split() for line in table.splitlines() if "─" not in line][1:] == [
        ["0", "from", "x"],
        ["in", "all,", "per", "device", "0", "B", "peak", "16", "B"],
        ["at", "least", "0", "B", "ratio", "1.00"],
    ]


def test_a_local_step_joins_no_group() -> None:
    source, target = parse_layout("[x=2] -"), parse_layout("[x=2] x")
    table = drawn(plan_table(Plan(source, target, (8,), 4, (Slice(0, ("x",)),))))
    assert " ".join(table.splitlines()[3].split()) == "1 slice dim 0 over x · · x"


def test_with_a_topology_the_table_has_times() -> None:
    source, target = parse_layout("[x=4] x"), parse_layout("[x=4] -")
    table = drawn(plan_table(plan(source, target, (2**20,), links="h100")))
    assert table.splitlines()[0].split() == ["step", "group", "receives", "time", "layout", "after"]
    assert " ".join(table.splitlines()[3].split()) == "1 all-gather dim 0 over x 4 3.15 MB 18.1 µs -"


def test_a_notebook_shows_a_plan_as_html() -> None:
    html = plan(parse_layout("[x=4] x"), parse_layout("[x=4] -"), (8,), links="h100")._repr_html_()
    assert html.startswith("<table><caption>[x=4] x → [x=4] -, shape 8</caption>") and html.endswith("</table>")
    assert "<td>all-gather dim 0 over x</td><td>4</td><td>24 B</td>" in html
    assert "bound 24 B, ratio 1.00; peak 40 B; 8 µs on h100" in html


def drawn(table: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
