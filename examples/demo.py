"""A tour of Lamina on a mesh of 2×4 devices: `make demo`, or `python examples/demo.py`.

Every ✓ is a comparison with plain numpy; the first one that fails ends the tour with an error.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

import lamina
from lamina.viz import picture, plan_table

console = Console(highlight=False)
checks = 0


def main() -> None:
    started, rng = time.perf_counter(), np.random.default_rng(0)
    mesh = mesh_of_8()
    stop("A mesh", f"{mesh!r}", f"JAX {jax.__version__}.  Devices are counted row by row:", drawn("[dp=2,tp=4] dp,tp"))
    a, b = rng.permutation(64).reshape(8, 8).astype(np.float32), rng.permutation(30).reshape(10, 3)
    x = layouts(a, b, mesh)
    left, right = (rng.integers(-4, 5, shape).astype(np.float32) for shape in [(8, 12), (12, 6)])
    reductions(left, right, x, a, mesh)
    gradients(x, a, mesh)
    simulated(left, right, mesh)
    console.print(f"\n[bold green]All {checks} results matched numpy[/] in {time.perf_counter() - started:.1f} s.")


def mesh_of_8() -> lamina.DeviceMesh:
    """8 accelerators; or one that plays them all, where there are fewer; or 8 virtual CPU devices."""
    jax.config.update("jax_num_cpu_devices", 8)  # splits the CPU; only before anything uses JAX
    if 0 < lamina.accelerator_count() < 8:
        return lamina.DeviceMesh.simulated((2, 4), ("dp", "tp"), lamina.Accelerator(0))
    return lamina.DeviceMesh.create((2, 4), ("dp", "tp"))


def layouts(a: np.ndarray, b: np.ndarray, mesh: lamina.DeviceMesh) -> lamina.Tensor:
    x = lamina.shard(a, mesh, ["dp", None])
    stop("Shard", 'x = lamina.shard(a, mesh, ["dp", None])', "Rows are split over dp, copied along tp.", drawn(x))
    check("x == a", x, a)
    check("x.shards[5] == a[4:8]", x.shards[5], a[4:8])

    y = lamina.shard(x, mesh, [None, ("tp", "dp")])
    table = plan_table(lamina.explain(x, mesh, [None, ("tp", "dp")]))
    call = 'y = lamina.shard(x, mesh, [None, ("tp", "dp")])'
    stop("Reshard", call, "From rows to columns: the plan, and where it ends.", table, drawn(y))
    check("y == a", y, a)
    check("y.shards[4] == a[:, 1:2]", y.shards[4], a[:, 1:2])

    z = lamina.shard(b, mesh, ["tp", "dp"])
    stop("Uneven", 'z = lamina.shard(b, mesh, ["tp", "dp"])', "10 rows over 4 devices, 3 columns over 2.", drawn(z))
    check("z == b", z, b)
    check("z.shards[6] == b[6:8, 2:]", z.shards[6], b[6:8, 2:])
    return x


def product(left: np.ndarray, right: np.ndarray, mesh: lamina.DeviceMesh) -> lamina.Tensor:
    """left @ right, the inner dim split over tp: each device multiplies what it has, and the sum is left open."""
    ours, theirs = lamina.shard(left, mesh, ["dp", "tp"]), lamina.shard(right, mesh, ["tp", None])
    pieces = [mine @ yours for mine, yours in zip(ours.shards, theirs.shards, strict=True)]
    return lamina.from_shards(pieces, lamina.NamedMapping(mesh, ["dp", None], unreduced=["tp"]))


def reductions(left: np.ndarray, right: np.ndarray, x: lamina.Tensor, a: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    p = product(left, right, mesh)
    stop("Reduce", "p = product(left, right, mesh)", "A matmul over a split inner dim leaves pieces to sum.", drawn(p))
    check("p == left @ right", p, left @ right)
    total = lamina.all_reduce(p)
    check(f"all_reduce(p) == left @ right, lying as {total.layout}", total, left @ right)
    part = lamina.reduce_scatter(p, 1)
    check(f"reduce_scatter(p, 1) == left @ right, lying as {part.layout}", part, left @ right)
    top = lamina.all_reduce(x, reduce_op="max")
    check(f"all_reduce(x, max) == maximum(a[:4], a[4:]), lying as {top.layout}", top, np.maximum(a[:4], a[4:]))


def gradients(x: lamina.Tensor, a: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    def loss(x: lamina.Tensor) -> jax.Array:
        return jnp.sum(lamina.shard(x, mesh, [None, ("tp", "dp")]).jax() ** 3)

    g = jax.jit(jax.grad(loss))(x)
    h = jax.grad(lambda x: lamina.all_reduce(x, reduce_op="max").jax().sum())(x)
    stop("Differentiate", "g = jax.jit(jax.grad(loss))(x)", "loss(x) = Σ reshard(x)³.  Gradients lie as x does.")
    check(f"g == 3 a², lying as {g.layout}", g, 3 * a**2)
    check("g.shards[5] == 3 a[4:8]²", g.shards[5], 3 * a[4:8] ** 2)
    winners = a == np.tile(np.maximum(a[:4], a[4:]), (2, 1))
    check("the gradient of Σ all_reduce(x, max) == 1 for the winners, else 0", h, winners)


def simulated(left: np.ndarray, right: np.ndarray, mesh: lamina.DeviceMesh) -> None:
    big = lamina.DeviceMesh.simulated((4, 8), ("dp", "tp"), mesh.devices[0])
    q = product(left, right, big)
    call = 'big = lamina.DeviceMesh.simulated((4, 8), ("dp", "tp"), mesh.devices[0])'
    stop("Simulate", call, f"{mesh.devices[0]} plays 32 devices.  The product of before, on these:", drawn(q))
    check("q == p", q, product(left, right, mesh).numpy())
    check("reduce_scatter(q, 1) == left @ right", lamina.reduce_scatter(q, 1), left @ right)


def stop(title: str, call: str, why: str, *shown: object) -> None:
    console.print()
    console.rule(f"[bold]{title}[/]", align="left")
    console.print(f"\n  [green]{escape(call)}[/]\n  {why}\n")
    for each in shown:
        console.print(Padding(each, (0, 0, 1, 2), expand=False))


def drawn(x: lamina.Tensor | str) -> Text:
    text = Text(picture(x))
    text.highlight_regex(r"(?<=│)[^│]+(?=│)", "bold cyan")
    text.highlight_regex(r"[─│┌┬┐├┼┤└┴┘]", "dim")
    return text


def check(what: str, got: object, expected: np.ndarray) -> None:
    global checks
    np.testing.assert_array_equal(np.asarray(got), expected, err_msg=f"not so: {what}")
    checks += 1
    console.print(f"  [green]✓[/] {escape(what)}")


if __name__ == "__main__":
    main()
