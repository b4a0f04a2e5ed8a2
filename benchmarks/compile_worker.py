"""A process that compiles reshards and says what they make the devices receive.  `compiling.Compiler` starts it.

It reads one JSON job a line and writes one JSON answer a line.  XLA aborts the whole process on some pairs; that is why
this is one of its own.

    python -m benchmarks.compile_worker DEVICES
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from benchmarks.hlo import traffic
from lamina.sharding import Layout
from lamina.sharding.text import parse_layout

# LLVM's optimisations take half of the time to compile, and no collective depends on them.
OPTIONS = {"xla_backend_optimization_level": 0}


def main() -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not come between the answers
    for line in sys.stdin:
        job = json.loads(line)
        compiled = COMPILERS[job["who"]](*map(parse_layout, job["layouts"]), tuple(job["shape"]), job["topology"])
        print(json.dumps(described(compiled)), file=answers, flush=True)


def described(compiled: Any) -> dict[str, Any]:
    """What a program makes its devices receive, and the memory that it takes on each."""
    received, memory = traffic(compiled.as_text()), compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return {"mean": received.mean, "max": received.max, "kinds": received.kinds, "memory": held}


def jax_program(source: Layout, target: Layout, shape: tuple[int, ...], topology: str) -> Any:
    """What a user of JAX writes: the identity between two shardings."""
    mesh = jax.make_mesh(
        tuple(source.sizes.values()), tuple(source.sizes), axis_types=(AxisType.Auto,) * len(source.sizes)
    )
    into, out = (NamedSharding(mesh, PartitionSpec(*(axes or None for axes in one.dims))) for one in (source, target))
    program = jax.jit(lambda x: x, in_shardings=into, out_shardings=out)
    return program.lower(jax.ShapeDtypeStruct(shape, np.float32)).compile(compiler_options=OPTIONS)


def lamina_program(source: Layout, target: Layout, shape: tuple[int, ...], topology: str) -> Any:
    """What a user of Lamina writes, under `jax.jit`."""
    import lamina

    mesh = lamina.DeviceMesh.create(tuple(source.sizes.values()), tuple(source.sizes))
    x = lamina.shard(np.zeros(shape, np.float32), mesh, source.dims, partial=dict(source.partial))
    program = jax.jit(lambda x: lamina.shard(x, mesh, target.dims, partial=dict(target.partial), topology=topology))
    return program.lower(x).compile(compiler_options=OPTIONS)


COMPILERS = {"jax": jax_program, "lamina": lamina_program}

if __name__ == "__main__":
    main()
