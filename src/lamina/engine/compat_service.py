"""The part of `compat` that a process without `jax` needs: starting JAX's coordination service from jaxlib alone.

Importing jax costs 0.4 s of CPU, and the helper process that hosts the service needs nothing else of it.
"""

from __future__ import annotations

from typing import Any


def coordination_service(port: int, count: int, heartbeat_seconds: float) -> Any:
    """JAX's coordination service on this port, for so many processes; it runs as long as the result is kept."""
    from jaxlib import _jax

    seconds = int(heartbeat_seconds)
    return _jax.get_distributed_runtime_service(
        f"[::]:{port}", count, heartbeat_timeout=seconds, shutdown_timeout=seconds
    )
