"""`python -m benchmarks [SUITE ...]`: measures, prints, saves.  See the package's docstring."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks.compiling import ROOT, environment
from benchmarks.results import save
from benchmarks.settings import Settings
from benchmarks.show import show
from benchmarks.suites import SUITES, runner


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.suites == ["report"]:
        from benchmarks.report import main as report

        return report(["--check"] if options.check else [])
    names = options.suites or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        print(f"unknown suites {unknown}; there are {', '.join(SUITES)}, and report", file=sys.stderr)
        return 2
    if len(names) > 1:  # each in a process of its own: JAX's devices are chosen once per process
        return max(_in_its_own_process(name, arguments or sys.argv[1:], names) for name in names)
    return _run(names[0], options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures Lamina beside JAX.")
    suites = "; ".join(f"{name}: {suite.what}" for name, suite in SUITES.items())
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"{suites}; report: write docs/benchmarks.md")
    parser.add_argument("--quick", action="store_true", help="a few cases of each, seconds in all")
    parser.add_argument("--full", action="store_true", help="every case, where the default takes a sample")
    parser.add_argument("--mesh", action="append", help="only this mesh, such as 2,2,2; may be given again")
    parser.add_argument("--topology", default="bytes", help="the links to plan for (default: only bytes count)")
    parser.add_argument("--jobs", type=int, default=1, help="compiling processes at once (default 1)")
    parser.add_argument("--no-save", action="store_true", help="print only; --quick implies it")
    parser.add_argument("--check", action="store_true", help="with report: only compare the page with the results")
    return parser


def _in_its_own_process(name: str, arguments: list[str], names: list[str]) -> int:
    flags = [argument for argument in arguments if argument not in names]
    return subprocess.call([sys.executable, "-m", "benchmarks", name, *flags], cwd=ROOT, env=environment())


def _run(name: str, options: argparse.Namespace) -> int:
    meshes = options.mesh and tuple(tuple(int(size) for size in mesh.split(",")) for mesh in options.mesh)
    settings = Settings(options.quick, options.full, meshes or None, options.topology, options.jobs)
    if SUITES[name].devices:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA warns of what these suites make it do on purpose
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", SUITES[name].devices)
    result = runner(name)(settings)
    show(name, result)
    if not (options.quick or options.no_save):
        save(name, SUITES[name].what, result, sys.argv[1:])
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
