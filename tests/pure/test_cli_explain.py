"""`lamina explain`: what it prints, and that a wrong word is shown with a caret and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lamina.cli import main
from lamina.planning import Link, Topology, plan
from lamina.sharding import parse_layout

SOURCE = Path(__file__).parents[2] / "src"
GOOD = ["--mesh", "x=2,y=4", "--shape", "8192x8192", "--dtype", "bf16", "--from", "x,y", "--to", "-,(y,x)"]


def explain(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["explain", *arguments])
    except SystemExit as exit:  # argparse's own refusals
        code = exit.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def changed(**options: str) -> list[str]:
    """The good command line with some options replaced."""
    found = list(GOOD)
    for option, value in options.items():
        name = "--" + option.replace("_", "-").rstrip("-")
        found = [*found[: found.index(name) + 1], value, *found[found.index(name) + 2 :]]
    return found


def test_the_plan_as_a_table(capsys):
    code, out, _ = explain(capsys, *GOOD, "--topology", "h100")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "[x=2,y=4] x,y → [x=2,y=4] -,(y,x) 8192×8192, h100"
    assert "1 all-to-all over x from dim 0 to 2 8.39 MB 46.7 µs -,(y,x)" in lines
    assert "at least 8.39 MB ratio 1.00" in lines


def test_the_plan_as_json(capsys):
    code, out, _ = explain(capsys, *GOOD, "--json")
    found = plan(parse_layout("[x=2,y=4] x,y"), parse_layout("[x=2,y=4] -,(y,x)"), (8192, 8192), 2)
    assert (code, json.loads(out)) == (0, found.to_dict())


def test_hosts_and_what_they_must_receive(capsys):
    arguments = ["--mesh", "host=2,gpu=4", "--shape", "8192x8192", "--from", "host,-", "--to", "-,-"]
    code, out, _ = explain(capsys, *arguments, "--topology", "h100", "--between", "host=infiniband")
    assert code == 0 and out.splitlines()[-1] == "a host must receive at least 134 MB"


def test_to_another_mesh(capsys):
    code, out, _ = explain(capsys, *changed(to="a,-"), "--to-mesh", "a=8")
    assert code == 0 and "transfer to [a=8] a,-" in out


def test_a_topology_that_calibrate_saved(capsys, tmp_path):
    Topology("mine", Link(1e-3, 1e6)).save(tmp_path / "mine.json")
    code, out, _ = explain(capsys, *GOOD, "--topology", str(tmp_path / "mine.json"))
    assert code == 0 and "8192×8192, mine" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (changed(from_="x,,y"), "--from: expected an axis name, '-' or '('\n    x,,y\n      ^"),
        (changed(to="-,(y,x"), "--to: expected ')'\n    -,(y,x\n          ^"),
        (changed(to="-,(y,z)"), "--to: the mesh has no axis 'z', only x, y\n    -,(y,z)\n         ^"),
        (changed(to="x,x"), "--to: axis 'x' stands twice\n    x,x\n      ^"),
        (changed(from_="x?,-"), "--from: a layout has no open dims and no priorities\n    x?,-\n     ^"),
        (changed(from_="x,- +sun(y)"), "--from: expected one of sum, avg, min, max, prod\n    x,- +sun(y)\n         ^"),
        (changed(mesh="x=2,y"), "--mesh: expected '='\n    x=2,y\n         ^"),
        (changed(mesh="x=0"), "--mesh: a size must be >= 1\n    x=0\n      ^"),
        (changed(shape="8192xx"), "--shape: expected a size\n    8192xx\n         ^"),
        (changed(from_="x"), "--from x: the layout [x=2,y=4] x has 1 dims, but the shape (8192, 8192) has 2"),
        (changed(dtype="bf17"), "--dtype bf17: 'bf17' is not a dtype that Lamina knows"),
        ([*GOOD, "--topology", "dialup"], "--topology dialup: topology 'dialup' is unknown: use a Topology, or one of"),
        ([*GOOD, "--topology", "no/such.json"], "--topology no/such.json: No such file or directory"),
        ([*GOOD, "--between", "z=ethernet"], "--between z=ethernet: 'z' is not an axis of the mesh: x, y"),
        ([*GOOD, "--between", "x=string"], "--between string: 'string' is not a link: use a Link, or one of"),
        ([*GOOD, "--memory-limit", "100"], "no route from [x=2,y=4] x,y to [x=2,y=4] -,(y,x) keeps a device under 100"),
    ],
)
def test_what_is_wrong_is_shown(capsys, arguments, message):
    code, out, err = explain(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"lamina explain: {message}")


def test_without_a_command_there_is_help(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2 and "COMMAND" in capsys.readouterr().err


def test_it_needs_no_jax():
    code = f"import sys; from lamina.cli import main; main({['explain', *GOOD]!r}); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
