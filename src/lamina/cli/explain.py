"""`lamina explain`: the plan from one layout to another, from the shell; no devices and no JAX needed."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import NoReturn

from lamina.errors import LaminaError, SpecSyntaxError
from lamina.planning import Plan, homes_between, plan, plan_across
from lamina.planning.topology import LINKS, PRESETS, Topology, topology
from lamina.sharding import DeviceMesh, Layout, parse_mesh, parse_spec
from lamina.sharding.dtypes import dtype_name, itemsize
from lamina.sharding.layout import check_rank

SUMMARY = "show the plan from one layout to another: steps, bytes, lower bound, memory, time"

Axes = tuple[tuple[str, int], ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mesh", required=True, metavar="x=2,y=4", help="the mesh: axes and sizes, major to minor")
    parser.add_argument("--to-mesh", metavar="x=2,y=4", help="the mesh to go to, if it is another one")
    parser.add_argument("--shape", required=True, metavar="8192x8192", help="the global shape; () for a scalar")
    parser.add_argument("--dtype", default="float32", help="the element type (float32)")
    parser.add_argument("--from", dest="source", required=True, metavar="SPEC", help='as in "x,(y,z)" or "-,x +sum(y)"')
    parser.add_argument("--to", dest="target", required=True, metavar="SPEC", help="the layout to reach")
    parser.add_argument(
        "--topology", default="bytes", metavar="NAME", help=f"{', '.join(PRESETS)}, or a file that calibrate saved"
    )
    parser.add_argument(
        "--between",
        action="append",
        default=[],
        metavar="AXIS=LINK",
        help=f"an axis between hosts, and its link: {', '.join(LINKS)}; may be repeated",
    )
    parser.add_argument("--memory-limit", type=float, metavar="BYTES", help="what a device may hold on the way")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(arguments: argparse.Namespace) -> int:
    try:
        found = _plan(arguments)
    except _BadArgument as error:
        print(f"lamina explain: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        _show(found)
    return 0


class _BadArgument(Exception):
    """What is wrong with one argument, with a caret under the fault where it is known."""


def _plan(arguments: argparse.Namespace) -> Plan:
    here = _read("--mesh", arguments.mesh, parse_mesh)
    there = here if arguments.to_mesh is None else _read("--to-mesh", arguments.to_mesh, parse_mesh)
    shape = _read("--shape", arguments.shape, _shape)
    source = _layout("--from", arguments.source, here, shape)
    target = _layout("--to", arguments.target, there, shape)
    size = itemsize(_read("--dtype", arguments.dtype, dtype_name))
    links = _links(arguments, there)
    try:
        if arguments.to_mesh is None:
            return plan(source, target, shape, size, arguments.memory_limit, links)
        meshes = [DeviceMesh.abstract([n for _, n in axes], [name for name, _ in axes]) for axes in (here, there)]
        homes = homes_between(meshes[0], meshes[1])
        return plan_across(source, target, shape, homes, size, arguments.memory_limit, links)
    except LaminaError as error:
        raise _BadArgument(error) from None


def _read(option: str, text: str, reader):  # type: ignore[no-untyped-def]  # returns what the reader does
    try:
        return reader(text)
    except SpecSyntaxError as error:
        _point(option, error)
    except (LaminaError, TypeError) as error:
        raise _BadArgument(f"{option} {text}: {error}") from None


def _point(option: str, error: SpecSyntaxError) -> NoReturn:
    drawn = "\n".join(f"    {line}" for line in error.pointer().splitlines())
    raise _BadArgument(f"{option}: {error.fact}\n{drawn}") from None


def _layout(option: str, text: str, axes: Axes, shape: tuple[int, ...]) -> Layout:
    def read(text: str) -> Layout:
        dims, partial = parse_spec(text)
        _check_names(text, axes)
        found = Layout(axes, [dim.axes for dim in dims], partial)
        check_rank(found, shape)
        return found

    return _read(option, text, read)


def _check_names(text: str, axes: Axes) -> None:
    """What the parser lets through and a layout can't be, with the place where it stands."""
    names, seen = [name for name, _ in axes], set()
    for found in re.finditer(r"[?!]|\+\w+|[^\W\d]\w*", text):
        word = found[0]
        if word in "?!":
            raise SpecSyntaxError("a layout has no open dims and no priorities", text, found.start())
        if word.startswith("+"):
            continue
        if word not in names:
            raise SpecSyntaxError(f"the mesh has no axis {word!r}, only {', '.join(names)}", text, found.start())
        if word in seen:
            raise SpecSyntaxError(f"axis {word!r} stands twice", text, found.start())
        seen.add(word)


def _shape(text: str) -> tuple[int, ...]:
    """`8192x8192` as (8192, 8192); `()` is a scalar's."""
    if text.strip() in ("()", ""):
        return ()
    column, sizes = 0, []
    for part in text.split("x"):
        if not part.strip().isdecimal():
            raise SpecSyntaxError("expected a size", text, min(column, len(text)))
        sizes.append(int(part))
        column += len(part) + 1
    return tuple(sizes)


def _links(arguments: argparse.Namespace, axes: Axes) -> Topology:
    def read(name: str) -> Topology:
        return Topology.load(name) if name.endswith(".json") else topology(name)

    try:
        links = _read("--topology", arguments.topology, read)
    except OSError as error:
        raise _BadArgument(f"--topology {arguments.topology}: {error.strerror}") from None
    for text in arguments.between:
        axis, _, link = text.partition("=")
        if axis not in dict(axes):
            raise _BadArgument(f"--between {text}: {axis!r} is not an axis of the mesh: {', '.join(dict(axes))}")
        links = _read("--between", link, lambda name, axis=axis, links=links: links.between(axis, name))
    return links


def _show(found: Plan) -> None:
    from rich.console import Console

    from lamina.viz import plan_table

    console = Console(highlight=False)
    shape = "×".join(map(str, found.shape)) or "scalar"
    console.print(f"{found.source}  →  {found.target}   {shape}, {found.links.name}", markup=False)
    console.print(plan_table(found))
    if found.host_bound is not None:
        from lamina.planning.units import bytes_text

        console.print(f"a host must receive at least {bytes_text(found.host_bound.mean)}", markup=False)
