"""A tour of Lamina on a mesh of 2×4 devices: `make demo`, or `python examples/demo.py`.

Every result is compared with plain numpy as the tour goes; the first one that differs ends it with an error.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import lamina
from lamina.planning import plan
from lamina.viz import picture, plan_table

console = Console(highlight=False)
checks: list[str] = []


def main() -> None:
    started = time.perf_counter()
    mesh = mesh_of_8()
    hello(mesh)
    rng = np.random.default_rng(0)
    a = rng.permutation(64).reshape(8, 8).astype(np.float32)
    x = sharding(a, mesh)
    resharding(x, a, mesh)
    uneven(np.arange(30, dtype=np.float32).reshape(10, 3), mesh)
    left, right = (rng.integers(-4, 5, shape).astype(np.float32) for shape in [(8, 12), (12, 6)])
    reductions(left, right, x, a, mesh)
    gradients(x, a, mesh)
    simulated(left, right, mesh)
    seconds = time.perf_counter() - started
    console.print(f"\n[bold green]✓ all {len(checks)} results matched numpy[/], in {seconds:.1f} s\n")


def mesh_of_8() -> lamina.DeviceMesh:
    """8 accelerators where there are so many, one that plays all 8 where there are fewer, else 8 virtual CPU devices."""
    jax.config.update("jax_num_cpu_devices", 8)  # splits the CPU; must come before JAX is used
    if 0 < lamina.accelerator_count() < 8:
        return lamina.DeviceMesh.simulated((2, 4), ("dp", "tp"), lamina.Accelerator(0))
    return lamina.DeviceMesh.create((2, 4), ("dp", "tp"))


def hello(mesh: lamina.DeviceMesh) -> None:
    grid = Table.grid(padding=(0, 2))
    for row in np.arange(8).reshape(mesh.mesh_shape):
        grid.add_row(*(f"{i}: {mesh.devices[i]}" for i in row))
    title = f"lamina {lamina.__version__} on JAX {jax.__version__}: {mesh!r}"
    console.print(Panel(grid, title=title, title_align="left", padding=(1, 2)))


def sharding(a: np.ndarray, mesh: lamina.DeviceMesh) -> lamina.Tensor:
    stop("Shard", 'x = lamina.shard(a, mesh, ["dp", None])', "Rows go over dp; along tp are copies.")
    x = lamina.shard(a, mesh, ["dp", None])
    draw(x)
    matches("x", x, a)
    matches("the shard of device 5", x.shards[5], a[4:8])
    return x


def resharding(x: lamina.Tensor, a: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    stop(
        "Reshard", 'y = lamina.shard(x, mesh, [None, ("tp", "dp")])', "From any layout to any other; the order counts."
    )
    y = lamina.shard(x, mesh, [None, ("tp", "dp")])
    console.print(plan_table(plan(x.layout, y.layout, x.shape, x.dtype.itemsize)), "")
    draw(y)
    matches("y", y, a)
    matches("the shard of device 4", y.shards[4], a[:, 1:2])


def uneven(b: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    stop("Uneven", 'z = lamina.shard(b, mesh, ["tp", "dp"])', "10 rows over 4, 3 columns over 2: nothing is padded.")
    z = lamina.shard(b, mesh, ["tp", "dp"])
    draw(z)
    matches("z", z, b)
    matches("the shard of device 6", z.shards[6], b[6:8, 2:])


def product(left: np.ndarray, right: np.ndarray, mesh: lamina.DeviceMesh) -> lamina.Tensor:
    """left @ right with the contracted dim split over tp: each device multiplies what it has, the sum is left open."""
    parts = zip(lamina.shard(left, mesh, ["dp", "tp"]).shards, lamina.shard(right, mesh, ["tp"]).shards, strict=True)
    return lamina.from_shards([l @ r for l, r in parts], lamina.NamedMapping(mesh, ["dp"], unreduced=["tp"]))


def reductions(left: np.ndarray, right: np.ndarray, x: lamina.Tensor, a: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    stop("Reduce", "p = product(left, right, mesh)", "A matmul whose contracted dim is split leaves pieces to sum.")
    p = product(left, right, mesh)
    draw(p)
    results = Table("call", "layout after", "value", box=None, header_style="dim", padding=(0, 3, 0, 0))
    for call, result, value, expected in [
        ("p", p, "left @ right", left @ right),
        ("all_reduce(p)", lamina.all_reduce(p), "the same", left @ right),
        ("reduce_scatter(p, 0)", lamina.reduce_scatter(p, 0), "the same", left @ right),
        ("reduce_scatter(p, 1)", lamina.reduce_scatter(p, 1), "the same", left @ right),
        (
            'all_reduce(x, reduce_op="max")',
            lamina.all_reduce(x, reduce_op="max"),
            "max of the two shards",
            np.maximum(a[:4], a[4:]),
        ),
    ]:
        results.add_row(call, str(result.layout), value)
        matches(call, result, expected)
    console.print(results)


def gradients(x: lamina.Tensor, a: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    stop("Differentiate", "g = jax.jit(jax.grad(loss))(x)", "The gradient travels back to the layout that x has.")

    def loss(x: lamina.Tensor) -> jax.Array:
        return jnp.sum(lamina.shard(x, mesh, [None, ("tp", "dp")]).jax() ** 3)

    g = jax.jit(jax.grad(loss))(x)
    console.print(f"  loss = Σ reshard(x)³    g = 3x²    g lies as [cyan]{g.layout}")
    matches("the gradient through a reshard", g, 3 * a**2)
    winners = jax.grad(lambda x: jnp.sum(lamina.all_reduce(x, reduce_op="max").jax()))(x)
    console.print("  loss = Σ max over dp    g = 1 for the winners, else 0")
    matches("the gradient of a max", winners, np.concatenate([a[:4] > a[4:], a[4:] > a[:4]]))
    if g.layout != x.layout:
        raise AssertionError(f"the gradient lies as {g.layout}, x as {x.layout}")


def simulated(left: np.ndarray, right: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    stop(
        "Simulate",
        'big = lamina.DeviceMesh.simulated((4, 8), ("dp", "tp"), mesh.devices[0])',
        "32 devices, played by one.",
    )
    big = lamina.DeviceMesh.simulated((4, 8), ("dp", "tp"), mesh.devices[0])
    q = product(left, right, big)
    draw(q)
    matches("the product on 4×8", q, left @ right)
    matches(
        "its reduce-scatter", lamina.reduce_scatter(q, 1), lamina.reduce_scatter(product(left, right, mesh), 1).numpy()
    )


def stop(title: str, code: str, why: str) -> None:
    console.print()
    console.rule(f"[bold]{title}", align="left")
    console.print(f"  [green]{code.replace('[', chr(92) + '[')}[/]\n  [dim]{why}[/]\n")


def draw(x: lamina.Tensor) -> None:
    drawing = Text(picture(x))
    drawing.highlight_regex(r"(?<=│)[^│]+(?=│)", "bold cyan")
    drawing.highlight_regex(r"[─│┌┬┐├┼┤└┴┘]", "dim")
    console.print(drawing)


def matches(what: str, got: object, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(got), expected, err_msg=f"{what} differs from numpy")
    checks.append(what)


if __name__ == "__main__":
    main()
