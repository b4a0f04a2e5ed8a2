"""Stages as programs: what a Segment, a Region and a Move do with the values that are there.

`env` maps the numbers of values to what they are now (see `held`).  With `placed` every value is on its device and
programs run there; without, all of it is traced into one program of somebody else's `jax.jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import compat, families, inventory, transfer, watching
from lamina.engine.programs import guarded
from lamina.engine.storage import whole
from lamina.graph.held import Member, absent, in_program, on_device, part_of, result_family, tensor_family
from lamina.graph.lower import Instruction, Lowered
from lamina.graph.nodes import Collective, Local
from lamina.graph.stages import Move, Region, Segment, Stage
from lamina.sharding import CPU, DeviceMesh

Env = dict[int, Any]


def computed(body: Sequence[Instruction], env: Env, axes: tuple[str, ...] = (), sizes: Any = None) -> None:
    """Carries out the instructions of one device; collectives by what they are in lock-step."""
    for one in body:
        operands = [env[number] for number in one.inputs]
        with jax.named_scope(one.name):
            if isinstance(one.op, Collective):
                assert one.op.across is not None
                found = (one.op.across(one.attributes, operands[0], axes, sizes),)
            else:
                assert isinstance(one.op, Local)
                found = one.op.compute(one.attributes, *operands)
        env.update(zip(one.outputs, found if isinstance(found, tuple) else (found,), strict=True))


def logical(lowered: Lowered, env: Env) -> None:
    """Carries out everything as if all devices were one."""
    for one in lowered.instructions:
        if not isinstance(one.op, Collective):
            computed([one], env)
            continue
        types = [lowered.types[number] for number in one.inputs]
        for i, number in enumerate(one.outputs):
            sent = one.op.sends(types, one.attributes, i)
            parts = [env[one.inputs[j]] if box is None else env[one.inputs[j]][box] for j, box in sent]
            env[number] = one.op.arrive(one.attributes, parts, i)


class SegmentProgram:
    """One compiled program on one device."""

    def __init__(self, stage: Segment, lowered: Lowered, donated: frozenset[int]):
        self.stage, self.types = stage, lowered.types
        donate = tuple(i for i, number in enumerate(stage.inputs) if number in donated)
        self._run = jax.jit(self._body, donate_argnums=donate)
        self._plain = jax.jit(self._body) if donate else self._run

    def _body(self, *arrays: Any) -> list[Any]:
        env = dict(zip(self.stage.inputs, arrays, strict=True))
        computed(self.stage.body, env)
        return [env[number] for number in self.stage.outputs]

    def run(self, env: Env, placed: bool, donate: bool) -> None:
        device = self.stage.device
        if placed and not families.is_here(inventory.resolve(device)):
            env.update((n, absent(self.types[n])) for n in self.stage.outputs)
            return
        arrays = [
            on_device(env[n], self.types[n], device) if placed else in_program(env[n], self.types[n])
            for n in self.stage.inputs
        ]
        if not arrays and placed:  # nothing says where: constants alone
            with jax.default_device(inventory.resolve(device)):
                found = [families.at(x, inventory.resolve(device)) for x in self._plain()]
        else:
            found = (self._run if donate else self._plain)(*arrays)
        env.update(zip(self.stage.outputs, found, strict=True))


class RegionProgram:
    """One compiled program over all devices of a region; one per way in which its inputs may lie.

    `mesh` has the region's devices; `specs` says how results lie that leave the graph as Tensors.
    """

    def __init__(
        self, stage: Region, lowered: Lowered, mesh: DeviceMesh, specs: dict[int, Any], donated: frozenset[int]
    ):
        self.stage, self.types, self.mesh = stage, lowered.types, mesh
        self.there = inventory.jax_mesh(mesh)
        self.name = "a region of a graph: " + ", ".join(one.name for one in stage.body)
        self.stacked = families.family_sharding(self.there).spec
        self.out_specs = tuple(specs.get(row[0], self.stacked) for row in stage.outputs)
        self.donate = tuple(i for i, row in enumerate(stage.inputs) if set(row) <= donated)
        self._known: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def run(self, env: Env, placed: bool, donate: bool) -> None:
        if placed and not watching.is_here(self.mesh):
            env.update((n, absent(self.types[n])) for row in self.stage.outputs for n in row)
            return
        rows = [self._row(row, env, placed) for row in self.stage.inputs]
        specs = tuple(spec for _, spec in rows)
        program = self._program(specs, donate and bool(self.donate))
        found = watching.on(self.mesh, self.name, program, *(array for array, _ in rows))
        if placed and not compat.is_tracer(found[0]):
            guarded(found[0])
        for row, array, spec in zip(self.stage.outputs, found, self.out_specs, strict=True):
            family = result_family(array, self.mesh, spec, self.types[row[0]].shape)
            env.update((number, Member(family, i)) for i, number in enumerate(row))

    def _row(self, row: tuple[int, ...], env: Env, placed: bool) -> tuple[Any, Any]:
        """One array over the devices: the family that the values are already, or one that is made of them."""
        first = env[row[0]]
        if isinstance(first, Member):
            family = first.family
            members = (isinstance(held := env[n], Member) and held == (family, i) for i, n in enumerate(row))
            if family.mesh == self.mesh and all(members):
                return family.array, family.spec
        if not placed:
            parts = [in_program(env[n], self.types[n]) for n in row]
        else:
            parts = [on_device(env[n], self.types[n], d) for n, d in zip(row, self.stage.devices, strict=True)]
        return families.assemble(parts, self.there), self.stacked

    def _program(self, specs: tuple[Any, ...], donate: bool) -> Callable[..., Any]:
        if (known := self._known.get((specs, donate))) is None:
            body = compat.shard_map(self._body, self.there, specs, list(self.out_specs))
            known = self._known[specs, donate] = jax.jit(body, donate_argnums=self.donate if donate else ())
        return known

    def _body(self, *blocks: Any) -> list[Any]:
        """What one device does."""
        firsts = [row[0] for row in self.stage.inputs]
        env = {n: block.reshape(self.types[n].shape) for n, block in zip(firsts, blocks, strict=True)}
        computed(self.stage.body, env, self.mesh.axis_names, dict(self.mesh.axes))
        found = [env[row[0]] for row in self.stage.outputs]
        return [
            x.reshape(1) if x.ndim == 0 and spec == self.stacked else x
            for x, spec in zip(found, self.out_specs, strict=True)
        ]


class MoveProgram:
    """A collective part by part: cut where it lies, sent to its device, put together there."""

    def __init__(self, stage: Move, lowered: Lowered, mesh: DeviceMesh | None):
        self.one, self.types, self.mesh = stage.instruction, lowered.types, mesh
        assert isinstance(self.one.op, Collective)
        rule, kinds = self.one.op, [self.types[number] for number in self.one.inputs]
        self.sent = [rule.sends(kinds, self.one.attributes, i) for i in range(len(self.one.outputs))]
        self.arrive = [jax.jit(partial(self._arrived, i=i)) for i in range(len(self.one.outputs))]

    def _arrived(self, parts: list[Any], i: int) -> Any:
        assert isinstance(self.one.op, Collective)
        return self.one.op.arrive(self.one.attributes, parts, i)

    def run(self, env: Env, placed: bool, donate: bool) -> None:
        if placed and self.one.name == "shard_and_stack" and (host := self._in_host_memory(env)) is not None:
            devices = self.one.attributes["devices"]
            env.update(zip(self.one.outputs, transfer.place_stacked(host, devices, self._axis), strict=True))
            return
        if placed and self._is_broadcast and not compat.is_tracer(part_of(env[self.one.inputs[0]])):
            self._broadcast(env)
            return
        if placed and len(copied := self._copies_of_host(env)) == len(self.one.outputs):
            kinds = [self.types[number] for number in self.one.outputs]
            copies = transfer.place_each(copied, [kind.dtype for kind in kinds], [kind.device for kind in kinds])  # type: ignore[misc]
            env.update(zip(self.one.outputs, copies, strict=True))
            return
        for i, number in enumerate(self.one.outputs):
            device = self.types[number].device
            assert device is not None
            parts = [self._part(env, j, box, device, placed) for j, box in self.sent[i]]
            if placed and not families.is_here(inventory.resolve(device)):
                env[number] = absent(self.types[number])
                continue
            is_all = len(parts) == 1 and self.one.name != "shard_and_stack"
            env[number] = parts[0] if is_all else self.arrive[i](parts)

    @property
    def _is_broadcast(self) -> bool:
        """Is every result all of the one operand, on a mesh of this process?"""
        whole_of_one = all(sent == [(0, None)] for sent in self.sent)
        return whole_of_one and self.mesh is not None and watching.is_whole_here(self.mesh)

    def _broadcast(self, env: Env) -> None:
        """All results as one array, replicated: a region takes it as it is."""
        assert self.mesh is not None
        x, kind = part_of(env[self.one.inputs[0]]), self.types[self.one.inputs[0]]
        held = whole(self.mesh, tuple(kind.shape))
        if isinstance(x, np.ndarray):
            array = transfer.place(x.astype(jnp.dtype(kind.dtype), copy=False), held)
        else:
            array = jax.device_put(x, held.sharding)
        family = tensor_family(array, held)
        env.update((number, Member(family, i)) for i, number in enumerate(self.one.outputs))

    def _copies_of_host(self, env: Env) -> list[np.ndarray]:
        """The host arrays that results are copies of: they are all sent at once."""
        whole = [sent[0][0] for sent in self.sent if len(sent) == 1 and sent[0][1] is None]
        values = [part_of(env[self.one.inputs[j]]) for j in whole]
        return [x for x in values if isinstance(x, np.ndarray)]

    @property
    def _axis(self) -> int:
        return self.one.attributes["axis"]

    def _in_host_memory(self, env: Env) -> list[np.ndarray] | None:
        """The inputs as numpy sees them, if it can without copying, in every process."""
        found = []
        alone = jax.process_count() == 1
        for number in self.one.inputs:
            x = part_of(env[number])
            is_host = isinstance(x, np.ndarray) or (alone and isinstance(self.types[number].device, CPU))
            if compat.is_tracer(x) or not is_host:
                return None
            found.append(np.asarray(x))
        return found

    def _part(self, env: Env, j: int, box: Any, device: Any, placed: bool) -> Any:
        number = self.one.inputs[j]
        kind = self.types[number]
        x = part_of(env[number])
        if not placed:
            x = in_program(x, kind)
            return x if box is None else x[box]
        if box is not None:
            x = x[box] if isinstance(x, np.ndarray) else _cut(on_device(x, kind, kind.device), box)  # type: ignore[arg-type]
        return on_device(x, kind, device)


def _cut(x: Any, box: tuple[slice, ...]) -> Any:
    at = tuple((s.start, s.stop) if s.start is not None else (0, x.shape[d]) for d, s in enumerate(box))
    at += tuple((0, size) for size in x.shape[len(box) :])
    if not compat.is_tracer(x) and not families.is_here(device := next(iter(x.devices()))):
        return families.elsewhere([stop - start for start, stop in at], x.dtype, device)
    return _sliced(x, tuple(start for start, _ in at), tuple(stop for _, stop in at))


@partial(jax.jit, static_argnums=(1, 2))
def _sliced(x: Any, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
    return jax.lax.slice(x, starts, stops)


Program = SegmentProgram | RegionProgram | MoveProgram


def stage_program(
    stage: Stage, lowered: Lowered, meshes: Sequence[DeviceMesh], specs: Any, donated: frozenset[int]
) -> Program:
    """`meshes` are those that Tensors come from or go to; a region runs on one of them where it can."""
    match stage:
        case Segment():
            return SegmentProgram(stage, lowered, donated)
        case Move(one):
            there = tuple(lowered.types[number].device for number in one.outputs)
            several = len(set(there)) == len(there) > 1 and len(set(map(type, there))) == 1
            return MoveProgram(stage, lowered, _mesh_of(there, meshes) if several else None)
        case Region(devices):
            mesh = _mesh_of(devices, meshes)
            wanted = {numbers[0]: spec for numbers, (its, spec) in specs.items() if its == mesh}
            return RegionProgram(stage, lowered, mesh, wanted, donated)


def _mesh_of(devices: tuple[Any, ...], meshes: Sequence[DeviceMesh]) -> DeviceMesh:
    """One of the meshes that has these devices, or a row of them."""
    row = DeviceMesh(devices, (len(devices),), ("device",))
    return next((mesh for mesh in meshes if mesh.devices == row.devices), row)
