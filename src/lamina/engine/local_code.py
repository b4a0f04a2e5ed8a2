"""The user's own local code (`lamina.spmd`) as a program: every axis of the mesh has its name, on any mesh.

What the code makes is learnt first, by tracing it once on a mesh without devices; that also proves, for simulated
meshes too, that a result which an out mapping calls the same along an axis is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import PartitionSpec

from lamina.engine import compat
from lamina.engine.local import Here, everywhere
from lamina.engine.storage import Storage
from lamina.errors import TransformError, with_fix
from lamina.sharding import DeviceMesh

Flat = Callable[..., list[Any]]  # the code on the blocks of flat operands


@dataclass(frozen=True)
class Running:
    """Where local code is being traced: its operands' blocks, and where they lie.

    `follows`: does JAX follow now which values differ between devices?
    """

    mesh: DeviceMesh
    here: Here
    blocks: tuple[Any, ...]
    follows: bool


_running: ContextVar[Running | None] = ContextVar("lamina_local_code", default=None)


def running() -> Running | None:
    """The local code that is being traced now."""
    return _running.get()


@contextmanager
def _traced(mesh: DeviceMesh, here: Here, blocks: tuple[Any, ...], follows: bool) -> Iterator[None]:
    token = _running.set(Running(mesh, here, blocks, follows))
    try:
        yield
    finally:
        _running.reset(token)


def blocks_made(code: Flat, mesh: DeviceMesh, operands: tuple[Storage, ...], dtypes: Sequence[Any]) -> list[Any]:
    """The shape and dtype of each block that the code makes."""
    names = mesh.axis_names

    def spread(*blocks: Any) -> list[Any]:
        made = _run(code, mesh, operands, blocks, False)
        return [x.reshape((1,) * len(names) + x.shape) for x in made]

    with _told():
        found = _on_no_devices(spread, mesh, operands, dtypes, PartitionSpec(*names), False)
    return [jax.ShapeDtypeStruct(x.shape[len(names) :], x.dtype) for x in found]


def check_copies(
    code: Flat, mesh: DeviceMesh, operands: tuple[Storage, ...], results: tuple[Storage, ...], dtypes: Sequence[Any]
) -> None:
    """TransformError if JAX can't tell that a result is the same where its mapping says so."""
    specs = [held.spec for held in results]

    def stored(*blocks: Any) -> list[Any]:
        made = _run(code, mesh, operands, blocks, True)
        return [x.reshape((1,) * len(held.lead) + x.shape) for x, held in zip(made, results, strict=True)]

    with _told():
        _on_no_devices(stored, mesh, operands, dtypes, specs, True)


def program(
    code: Flat, mesh: DeviceMesh, operands: tuple[Storage, ...], results: tuple[Storage, ...], checked: bool
) -> Callable[..., tuple]:
    """The code as a function of stored arrays that returns stored arrays, for JAX to trace."""

    def body(here: Here, *blocks: Any) -> tuple:
        with _traced(mesh, here, blocks, checked and not (mesh.is_single or mesh.is_simulated)):
            return tuple(code(*blocks))

    return everywhere(body, mesh, operands, results, mesh.axis_names, checked)


def _run(code: Flat, mesh: DeviceMesh, operands: tuple[Storage, ...], blocks: tuple[Any, ...], follows: bool) -> list:
    bare = tuple(x.reshape(x.shape[len(held.lead) :]) for x, held in zip(blocks, operands, strict=True))
    with _traced(mesh, Here(operands, ()), bare, follows):
        return code(*bare)


def _on_no_devices(
    body: Flat, mesh: DeviceMesh, operands: tuple[Storage, ...], dtypes: Sequence[Any], out: Any, checked: bool
) -> Any:
    given = [jax.ShapeDtypeStruct(held.array_shape, dtype) for held, dtype in zip(operands, dtypes, strict=True)]
    specs = tuple(held.spec for held in operands)
    return jax.eval_shape(compat.shard_map(body, compat.abstract_mesh(mesh.axes), specs, out, checked), *given)


@contextmanager
def _told() -> Iterator[None]:
    """What JAX says of values that differ between devices, with the ways out."""
    try:
        yield
    except (TypeError, ValueError) as error:
        text = str(error)
        if "out_specs which require replication" in text:
            end = text.partition("but it was inferred to be possibly varying over ")[2].partition("\n")[0]
            fact = f"spmd: a result whose out mapping doesn't name {end} may differ there between devices"
            fix = "name the axes in the mapping, or reduce over them (jax.lax.psum, pmean), or pass checked=False"
            raise TransformError(with_fix(fact, f"{fix} if you know better")) from error
        if "manual axis types do not match" in text or "varying" in text:
            fact = f"spmd: JAX can't follow which values differ between devices: {text.partition(chr(10))[0]}"
            fix = "lamina.here().varying(initial) for what differs later, or pass checked=False"
            raise TransformError(with_fix(fact, fix)) from error
        raise
