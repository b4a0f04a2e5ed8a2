"""The `lamina` command: one module per subcommand.

Each module of the table has `SUMMARY` (one line), `add_arguments(parser)` and `run(arguments) -> exit code`; it is
imported only when its name is on the command line, so that `lamina explain` starts without JAX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS: dict[str, str] = {
    "explain": "lamina.cli.explain",
    "doctor": "lamina.cli.doctor",
    "launch": "lamina.cli.launch",
}

# A layout may start with a dash: `--to -,x` is what argparse only takes as `--to=-,x`.
_MAY_START_WITH_A_DASH = ("--from", "--to")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the arguments name; returns its exit code."""
    given = _joined(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="lamina", description="Sharded tensors: layouts, plans, processes.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    wanted = [name for name in COMMANDS if name in given[:1]] or list(COMMANDS)
    for name in wanted:
        module = import_module(COMMANDS[name])
        module.add_arguments(commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY))
    chosen = parser.parse_args(given)
    return import_module(COMMANDS[chosen.command]).run(chosen)


def _joined(arguments: Sequence[str]) -> list[str]:
    found: list[str] = []
    for argument in arguments:
        if found and found[-1] in _MAY_START_WITH_A_DASH and argument.startswith("-") and argument[:2] != "--":
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return found
