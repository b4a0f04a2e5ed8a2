"""The device mesh: an N-D grid of devices with named axes.

Invariants, checked by the constructor in this order:

1. Axis names are distinct identifiers, one for each entry of the shape; there is at least one axis.
2. Axis sizes are integers >= 1.
3. The devices are as many as the product of the sizes, in row-major order; or there are none (an *abstract* mesh,
   for planning without hardware).
4. The devices are all distinct, or all the same (a *simulated* mesh: one device plays every position).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar

from lamina.errors import DeviceError, LayoutError, Problems, with_fix
from lamina.sharding.devices import CPU, Device, default_devices
from lamina.sharding.frozen import Frozen
from lamina.sharding.integers import as_integer
from lamina.sharding.mesh_checks import check_devices, grid_text, shape_and_names, shortened

_AMBIENT: ContextVar[tuple[DeviceMesh, ...]] = ContextVar("lamina_mesh", default=())


class DeviceMesh(Frozen):
    """A frozen N-D grid of devices, row-major.

    >>> mesh = DeviceMesh.simulated((2, 4), ("dp", "tp"))
    >>> mesh, mesh.ndim, mesh.num_devices, mesh.axis_size("tp"), mesh.is_simulated
    (DeviceMesh([dp=2,tp=4], simulated on CPU(0)), 2, 8, 4, True)
    >>> mesh.device_coord(6, "dp"), mesh.device_coord(6, "tp")
    (1, 2)
    >>> mesh["tp"], mesh["tp", "dp"].mesh_shape
    (DeviceMesh([tp=4], simulated on CPU(0)), (4, 2))
    >>> DeviceMesh((CPU(0), CPU(0), CPU(1)), (3,), ("x",))
    Traceback (most recent call last):
    lamina.errors.LayoutError: mesh [x=3]: CPU(0) stands at 2 positions; devices must be all distinct, or all ...
    """

    __slots__ = ("_by_name", "_hash", "axis_names", "devices", "mesh_shape")

    devices: tuple[Device, ...]
    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    _by_name: dict[str, int]
    _hash: int

    def __init__(self, devices: Sequence[Device], mesh_shape: Sequence[int], axis_names: Sequence[str]):
        shape, names = shape_and_names(mesh_shape, axis_names)
        if not isinstance(devices, Iterable):
            raise TypeError(f"devices must be a list of devices, as in [{devices!r}], not {devices!r}")
        devices = tuple(devices)
        check_devices(devices, shape, names)
        set_ = object.__setattr__
        set_(self, "devices", devices)
        set_(self, "mesh_shape", shape)
        set_(self, "axis_names", names)
        set_(self, "_by_name", dict(zip(names, self.mesh_shape, strict=True)))
        set_(self, "_hash", hash((devices[:1], len(devices), self.mesh_shape, names, devices[-1:])))

    # -- constructors -------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, shape: Sequence[int], axis_names: Sequence[str]) -> DeviceMesh:
        """A mesh over the first devices of JAX's default backend; of several processes the same number of each.

        >>> DeviceMesh.create((2, 4), ("dp", "tp")).num_devices
        8
        """
        sizes, names = shape_and_names(shape, axis_names)
        needed, there = math.prod(sizes), default_devices()
        if needed > len(there):
            fact = f"a mesh [{grid_text(sizes, names)}] needs {needed} devices, but there are {len(there)}: "
            fix = (
                f"DeviceMesh.simulated({sizes}, {names}) needs only one device; "
                f'or, on a CPU, jax.config.update("jax_num_cpu_devices", {needed}) before anything uses JAX'
            )
            raise DeviceError(with_fix(f"{fact}{shortened(there)}", fix))
        return cls(default_devices(needed), sizes, names)

    @classmethod
    def simulated(cls, shape: Sequence[int], axis_names: Sequence[str], device: Device | None = None) -> DeviceMesh:
        """A mesh of any size that one device plays: same ops, same numbers, same gradients."""
        sizes, names = shape_and_names(shape, axis_names)
        return cls((CPU() if device is None else device,) * math.prod(sizes), sizes, names)

    @classmethod
    def single(cls, device: Device) -> DeviceMesh:
        """A mesh of one device.

        >>> DeviceMesh.single(CPU(2)).is_single
        True
        """
        return cls((device,), (1,), ("device",))

    @classmethod
    def default(cls) -> DeviceMesh:
        """The innermost `with mesh:`, else one axis named "device" over all default devices."""
        if ambient := ambient_mesh():
            return ambient
        there = default_devices()
        return cls(there, (len(there),), ("device",))

    @classmethod
    def abstract(cls, shape: Sequence[int], axis_names: Sequence[str]) -> DeviceMesh:
        """A mesh with no devices: layouts and plans for a pod that isn't here.

        >>> DeviceMesh.abstract((64, 64), ("dp", "tp"))
        DeviceMesh([dp=64,tp=64], abstract)
        """
        return cls((), shape, axis_names)

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        return len(self.mesh_shape)

    @property
    def num_devices(self) -> int:
        return math.prod(self.mesh_shape)

    @property
    def is_single(self) -> bool:
        return self.num_devices == 1

    @property
    def is_abstract(self) -> bool:
        return not self.devices

    @property
    def is_simulated(self) -> bool:
        return len(self.devices) > 1 and self.devices[0] == self.devices[1]

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """The axes as (name, size) pairs, major to minor."""
        return tuple(self._by_name.items())

    def axis_size(self, axis: str | int) -> int:
        """The size of an axis, by name or by index (negative indices too).

        >>> DeviceMesh.abstract((2, 3), ("x", "y")).axis_size(-1)
        3
        """
        return self.mesh_shape[self.axis_index(axis)]

    def axis_index(self, axis: str | int) -> int:
        """Which axis it is, counted from the major one, by name or by index.

        >>> DeviceMesh.abstract((2, 3), ("x", "y")).axis_index("y")
        1
        """
        if (number := as_integer(axis)) is not None:
            if not -self.ndim <= number < self.ndim:
                fact = f"mesh axis {axis} is out of range for {self} with {self.ndim} axes"
                raise LayoutError(
                    with_fix(fact, f"count from {-self.ndim} to {self.ndim - 1}, or {self._names_to_use}")
                )
            return number % self.ndim
        if not isinstance(axis, str) or axis not in self.axis_names:
            raise LayoutError(with_fix(f"{axis!r} is not an axis of the mesh {self}", self._names_to_use))
        return self.axis_names.index(axis)

    @property
    def _names_to_use(self) -> str:
        return f"name one of {', '.join(self.axis_names)}"

    def coordinates(self, device: int) -> tuple[int, ...]:
        """Where the device with this flat index stands.

        >>> DeviceMesh.abstract((2, 3), ("x", "y")).coordinates(4)
        (1, 1)
        """
        if (rest := as_integer(device)) is None:
            raise TypeError(f"device must be an integer, the position in the mesh, not {device!r}")
        if not 0 <= rest < self.num_devices:
            fact = f"device {device} is out of range for {self} with {self.num_devices} devices"
            raise LayoutError(with_fix(fact, f"count from 0 to {self.num_devices - 1}, row-major"))
        place = []
        for size in reversed(self.mesh_shape):
            rest, coordinate = divmod(rest, size)
            place.append(coordinate)
        return tuple(reversed(place))

    def device_coord(self, device: int, axis: str | int) -> int:
        """The coordinate of a device (flat index) along one axis."""
        return self.coordinates(device)[self.axis_index(axis)]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The sub-mesh over these axes, in this order, at coordinate 0 of all the others."""
        names = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
        problems = Problems()
        for name in names:
            if name not in self.axis_names:
                problems.add(f"{name!r} is not an axis of the mesh {self}", self._names_to_use)
        problems.check()
        shape = tuple(self._by_name[name] for name in names)
        if self.is_abstract:
            return DeviceMesh((), shape, names)
        where = {name: 0 for name in self.axis_names}
        chosen = []
        for flat in range(math.prod(shape)):
            where.update(zip(names, DeviceMesh.abstract(shape, names).coordinates(flat), strict=True))
            position = 0
            for name, size in self.axes:
                position = position * size + where[name]
            chosen.append(self.devices[position])
        return DeviceMesh(chosen, shape, names)

    # -- the ambient mesh ---------------------------------------------------------------------------------------

    def __enter__(self) -> DeviceMesh:
        _AMBIENT.set((*_AMBIENT.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _AMBIENT.set(_AMBIENT.get()[:-1])

    # -- a value ------------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple:
        return DeviceMesh, (self.devices, self.mesh_shape, self.axis_names)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DeviceMesh) or self._hash != other._hash:
            return False
        return (self.mesh_shape, self.axis_names, self.devices) == (other.mesh_shape, other.axis_names, other.devices)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"[{grid_text(self.mesh_shape, self.axis_names)}]"

    def __repr__(self) -> str:
        if self.is_abstract:
            who = "abstract"
        elif self.is_simulated:
            who = f"simulated on {self.devices[0]}"
        elif self.is_single:
            who = f"on {self.devices[0]}"
        else:
            who = f"on {self.devices[0]}..{self.devices[-1]}"
        return f"DeviceMesh({self}, {who})"


def ambient_mesh() -> DeviceMesh | None:
    """The mesh of the innermost `with mesh:`, if any."""
    stack = _AMBIENT.get()
    return stack[-1] if stack else None


def as_mesh(mesh: object) -> DeviceMesh:
    """The mesh itself; None means the ambient one."""
    if mesh is None:
        if (ambient := ambient_mesh()) is None:
            fact = "no mesh was given, and there is no `with mesh:` around this call"
            raise LayoutError(with_fix(fact, "give a lamina.DeviceMesh, or call this inside of `with mesh:`"))
        return ambient
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh must be a lamina.DeviceMesh, not {type(mesh).__name__} {mesh!r}")
    return mesh


def holding(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh itself, if it has devices that can hold a tensor."""
    if mesh.is_abstract:
        raise LayoutError(
            with_fix(
                f"{mesh!r} has no devices: it can be planned for, but can't hold a tensor",
                f"DeviceMesh.simulated({mesh.mesh_shape}, {mesh.axis_names}) needs only one device, "
                "DeviceMesh.create(...) takes those that are there",
            )
        )
    return mesh


def positions(mesh: DeviceMesh) -> Iterator[dict[str, int]]:
    """The coordinates of every mesh position, row-major, by axis name.

    >>> list(positions(DeviceMesh.abstract((1, 2), ("x", "y"))))
    [{'x': 0, 'y': 0}, {'x': 0, 'y': 1}]
    """
    for flat in range(mesh.num_devices):
        yield dict(zip(mesh.axis_names, mesh.coordinates(flat), strict=True))
