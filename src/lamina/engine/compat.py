"""Everything that differs between JAX versions (0.10 – 0.12), or that JAX calls internal.  Nothing else may.

What Lamina takes from outside JAX's documented API: `Primitive` and its rule tables (`jax.extend`,
`jax.interpreters`: semi-public, stable over these versions), `register_vmappable`, without which `jax.vmap` can't
know which array axis a tensor dim is, and `trace_state_clean`, which only makes eager ops faster.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AbstractMesh, AxisType, Mesh

try:
    from jax._src.core import trace_state_clean as nothing_is_traced
except ImportError:

    def nothing_is_traced() -> bool:
        """Is no transformation at work?  Unknown here: then every op asks JAX, by binding its primitive."""
        return False


__all__ = [
    "Primitive",
    "abstract_mesh",
    "ad",
    "at_once",
    "backends_are_used",
    "batching",
    "concrete",
    "coordination_client",
    "detect_cluster",
    "is_tracer",
    "join",
    "make_mesh",
    "mlir",
    "nothing_is_traced",
    "queue_is_unsafe",
    "shard_map",
    "single_arrays",
    "use_gloo",
    "varying",
    "wide_numbers",
]

_VERSION = tuple(int(part) for part in jax.__version__.split(".")[:2])

Tracer = jax.core.Tracer


def is_tracer(x: object) -> bool:
    return isinstance(x, Tracer)


def at_once(function: Callable) -> Callable:
    """Runs at once, inside jax.jit too: what it is given is known, so the result is a constant there."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        if nothing_is_traced():
            return function(*arguments, **options)
        with jax.ensure_compile_time_eval():
            return function(*arguments, **options)

    return run


def shard_map(body: Callable, mesh: Any, in_specs: Any, out_specs: Any, knows_varying: bool = False) -> Callable:
    """Runs `body` on every device's block.

    With `knows_varying` JAX tracks along which axes values differ, so that the transpose of what is the same everywhere
    sums nothing.  Without, Lamina answers for replication itself (see the tests).
    """
    return jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=knows_varying)


def make_mesh(devices: Any, names: tuple[str, ...]) -> Mesh:
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))


def varying(x: Any, axes: tuple[str, ...]) -> Any:
    """x as something that may differ along these axes of a `shard_map` that follows that."""
    for axis in axes:
        with suppress(ValueError):  # where it varies already; how to ask differs between versions
            x = jax.lax.pcast(x, axis, to="varying")
    return x


def abstract_mesh(axes: tuple[tuple[str, int], ...]) -> AbstractMesh:
    """A mesh without devices, to trace on."""
    names, sizes = tuple(name for name, _ in axes), tuple(size for _, size in axes)
    return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))


def queue_is_unsafe() -> bool:
    """Does this JAX deadlock when many programs with collectives are queued on virtual CPU devices?

    Seen on 0.10.2: 300 all-gathers on 8 devices without a wait hang on 2 cores and abort; 0.12 is not affected.
    """
    return _VERSION < (0, 12)


def concrete(x: Any) -> Any:
    """The array under eager `jax.grad` and `jax.vmap` tracers, or None where there is none (inside jax.jit).

    Only used to learn where a plain array lives, so that its gradient can return there.
    """
    while is_tracer(x):
        x = getattr(x, "primal", getattr(x, "val", None))
    return x if isinstance(x, jax.Array) else None


def single_arrays(array: Any) -> list[Any]:
    """What this process's devices hold of a concrete array: one `jax.Array` of one device each, nothing copied."""
    parts = getattr(array, "_arrays", None)  # `addressable_shards` says the same and works out every index, too
    return list(parts) if parts is not None else [shard.data for shard in array.addressable_shards]


def register_vmappable(kind: type, to_element: Callable, from_element: Callable) -> None:
    """Tells jax.vmap how to take one mapped dim out of a container, and how to put it back."""

    class _Spec:  # Lamina's containers are mapped by plain integers, so no value of this type ever exists
        pass

    from jax._src.interpreters import batching as internal

    internal.register_vmappable(kind, _Spec, int, to_element, from_element, None)


# -- several processes ------------------------------------------------------------------------------------------------


def backends_are_used() -> bool:
    """Has this process looked at its devices?  JAX can't join others after that."""
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


def use_gloo() -> None:
    """Collectives between the CPUs of several processes, unless the user chose another way (MPI)."""
    if jax.config.jax_cpu_collectives_implementation in (None, "none"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")


def detect_cluster() -> dict[str, Any]:
    """What SLURM, Kubernetes, Open MPI or a TPU pod say of this process, as JAX reads it; empty where there is none."""
    from jax._src import clusters

    found = clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, 60)
    return dict(zip(("coordinator", "num_processes", "process_id", "local_device_ids"), found, strict=True))


def join(coordinator: str, count: int, rank: int, local_device_ids: list[int] | None, timeout: float) -> None:
    """`jax.distributed.initialize` with a coordination service that is there already, in a process of its own.

    JAX has process 0 start the service; for the moment of the call it is given one that does nothing.  The heartbeats
    of JAX come last: they abort the process, where Lamina's watchdog raises an error long before.
    """
    from jax._src import distributed

    runtime: Any = distributed._jax
    start = runtime.get_distributed_runtime_service
    runtime.get_distributed_runtime_service = lambda *_, **__: _NoService()
    try:
        jax.distributed.initialize(
            coordinator,
            count,
            rank,
            local_device_ids,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, int(timeout)),
            heartbeat_timeout_seconds=max(10, int(10 * timeout)),
            shutdown_timeout_seconds=max(10, int(timeout)),
        )
    finally:
        runtime.get_distributed_runtime_service = start


class _NoService:
    """Stands where JAX keeps the service that it started."""

    def shutdown(self) -> None:
        """Nothing runs here."""


def coordination_client() -> Any:
    """The processes' common memory of short texts (`key_value_set`, `blocking_key_value_get`)."""
    from jax._src import distributed

    return distributed.global_state.client


def wide_numbers() -> Any:
    """Within this context JAX keeps 64-bit numbers."""
    return jax.enable_x64(True)
