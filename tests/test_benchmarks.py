"""The pages of the benchmarks say what the results say; the suites run, and count right."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

import benchmarks
from benchmarks import answers, planning, report
from benchmarks.__main__ import main
from benchmarks.compiling import Answer, Job
from benchmarks.layouts import Family
from benchmarks.pair import Measured
from benchmarks.pair_tables import result_of
from benchmarks.plot import plot
from benchmarks.results import load, save
from benchmarks.settings import Curve, Result, Settings, Table
from benchmarks.suites import SUITES
from lamina.sharding import parse_layout

ROOT = Path(__file__).parent.parent
MODULES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name != "__main__"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    if name == "process_worker":
        pytest.skip("it needs the devices of its own process")
    found = doctest.testmod(importlib.import_module(f"benchmarks.{name}"), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_results_say():
    for name, text in report.pages(load()).items():
        path = report.DOCS / name
        assert path.exists() and path.read_text(encoding="utf-8") == text, (
            f"docs/{name} isn't what benchmarks/results/*.json say\n  fix: python -m benchmarks report"
        )


def test_every_plot_on_disk_belongs_to_the_page():
    written = {path.name for path in (report.DOCS / report.PLOTS).glob("*.svg")}
    assert written == {Path(name).name for name in report.pages(load()) if name.endswith(".svg")}


def test_every_result_says_how_it_was_made():
    for name, result in load().items():
        assert result["command"].startswith("python -m benchmarks"), name
        assert {"python", "lamina", "jax", "jaxlib", "numpy"} <= set(result["versions"]), name
        assert result["machine"]["cpu"] and result["date"], name
        assert "--quick" not in result["command"], f"{name}: a quick run shows that a suite works, and nothing else"


@pytest.fixture
def example() -> Result:
    result = Result(axis="ratio", notes=["Because."])
    result.limit("bytes", "≤ 1.02", "1.00", True)
    result.limit("time", "≥ 2", "1.8", False)
    result.tables = [Table("Worst", ("pair", "ratio"), (("x,- → -,x | y", 1.5),), "All of them.")]
    result.curves = [Curve("Lamina", (1.0, 1.5, 3.0)), Curve("JAX <best>", (1.0, 21.0))]
    result.failures = ["x,- → -,x: moves more than JAX"]
    return result


def test_all_of_a_result_is_on_the_page(example, tmp_path):
    save("example", "what it measures", example, ["example", "--full"], tmp_path)
    found = report.pages(load(tmp_path))
    assert list(found) == ["benchmarks.md", "plots/example.svg"]
    page = found["benchmarks.md"]
    for line in (
        "## example: what it measures",
        "`python -m benchmarks example --full`",
        "| bytes | ≤ 1.02 | 1.00 | yes |",
        "| time | ≥ 2 | 1.8 | **no** |",
        "Because.",
        "![ratio](plots/example.svg)",
        "### Worst",
        "| `x,- → -,x \\| y` | 1.5 |",
        "All of them.",
        "- `x,- → -,x: moves more than JAX`",
    ):
        assert line in page.splitlines(), line


def test_a_page_that_is_out_of_date_is_noticed(example, tmp_path, monkeypatch, capsys):
    save("example", "what it measures", example, [], tmp_path / "results")
    monkeypatch.setattr(report, "load", lambda: load(tmp_path / "results"))
    monkeypatch.setattr(report, "DOCS", tmp_path / "docs")
    assert main(["report", "--check"]) == 1
    assert "docs/benchmarks.md isn't what the results say: run `python -m benchmarks report`" in capsys.readouterr().out
    assert main(["report"]) == 0
    assert main(["report", "--check"]) == 0
    example.limit("more", "0", "0", True)
    save("example", "what it measures", example, [], tmp_path / "results")
    assert main(["report", "--check"]) == 1


def test_curves_rise_from_left_to_right(example):
    drawing = ElementTree.fromstring(plot(example.curves, example.axis))
    lines = [part for part in drawing if part.tag.endswith("polyline")]
    assert len(lines) == 2
    for line, curve in zip(lines, example.curves, strict=True):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) == 2 * len(curve.values)
        assert points == sorted(points, key=lambda point: (point[0], -point[1]))  # SVG's y goes down
    texts = {part.text for part in drawing if part.tag.endswith("text")}
    assert {"Lamina", "JAX <best>", "ratio", "1.00×", "10.0×", "50 %"} <= texts


# -- the suites -------------------------------------------------------------------------------------------------------

FAMILY = Family((2, 2), 1, True, False)
X, Y = parse_layout("[x=2,y=2] x"), parse_layout("[x=2,y=2] y")


def measured(received: float, peak: float = 0.0, **answers: Answer) -> Measured:
    return Measured(FAMILY, X, Y, received, 16.0, 16.0, peak, "exchange", **answers)


@pytest.mark.parametrize(
    ("one", "failure"),
    [
        (measured(32.0, jax=Answer(mean=16.0)), "moves more than JAX: [x=2,y=2] x → y [32]: 32 B, JAX 16 B"),
        (measured(8.0), "below the bound: [x=2,y=2] x → y [32]: 8.0 B < 16.0 B"),
        (measured(16.0, compiled=Answer(mean=24.0)), "plan 16.0 B, program 24.0 B {}: [x=2,y=2] x → y [32]: exchange"),
        (measured(16.0, compiled=Answer(crash="abort")), "crashed: [x=2,y=2] x → y [32]: abort"),
    ],
)
def test_a_pair_that_is_worse_than_it_may_be_fails_the_bench(one, failure):
    assert result_of([one]).failures == [failure]


def test_a_pair_at_the_bound_passes_also_where_jax_dies_of_it():
    fine = measured(16.0, jax=Answer(crash="Check failed"), compiled=Answer(mean=16.0))
    assert result_of([fine]).failures == []


def test_what_xla_answered_is_kept(tmp_path, monkeypatch):
    asked = []

    def compile_all(jobs, workers, answered):
        asked.extend(job.who for job in jobs)
        found = [Answer(mean=float(len(asked)), kinds={"all-gather": 1}) for _ in jobs]
        for job, answer in zip(jobs, found, strict=True):
            answered(job, answer)
        return found

    monkeypatch.setattr(answers, "compile_all", compile_all)
    jobs = [Job("jax", X, Y, (8,)), Job("lamina", X, Y, (8,))]
    first = answers.answers_to(jobs, 1, folder=tmp_path)
    second = answers.answers_to(jobs, 1, folder=tmp_path)
    assert asked == ["jax", "lamina", "lamina"]  # Lamina's programs are new each time
    assert asdict(first[0]) == asdict(second[0])


def test_a_plan_is_cold_when_caches_are_empty():
    from lamina.planning.search import _plan, plan

    plan(X, Y, (8,))
    assert _plan.cache_info().currsize
    planning.forget()
    assert not _plan.cache_info().currsize


def test_every_suite_has_its_module():
    for name in SUITES:
        assert callable(importlib.import_module(SUITES[name].module or f"benchmarks.{name}").run)
    assert main(["no such suite"]) == 2


@pytest.mark.processes
def test_the_suite_of_all_pairs_runs(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "pairs", "--quick", "--mesh", "2,3"]
    done = subprocess.run(command, cwd=ROOT, env=benchmarks_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("Lamina's plans over the bound", "Beside JAX", "pairs where Lamina moves more than JAX"):
        assert line in done.stdout


def benchmarks_environment() -> dict[str, str]:
    from benchmarks.compiling import environment

    return environment()


def test_settings_choose_by_how_much_is_asked():
    assert [Settings(*flags).choose(1, 2, 3) for flags in ((True, False), (False, False), (False, True))] == [1, 2, 3]


def test_results_are_read_back(example, tmp_path):
    path = save("example", "what", example, [], tmp_path)
    assert load(tmp_path)["example"] == json.loads(path.read_text(encoding="utf-8"))
