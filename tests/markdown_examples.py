"""Runs the examples of a Markdown page, so that the documentation can't promise what the code doesn't do.

The ```python blocks of one page run in order and share one namespace, as a reader would type them. A block that starts
with `>>>` is a doctest: what it prints is compared too. Blocks in any other language are left alone.
"""

import doctest
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^[ \t]*```(?P<language>[^`]*)$")


@dataclass(frozen=True)
class Block:
    path: Path
    line: int  # of the block's first line of code, counted from 1
    code: str


def python_blocks(path: Path) -> Iterator[Block]:
    language: str | None = None  # None: outside of any block
    start = 0
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if language is None:
            language, start = fence["language"].strip(), number
        else:
            if language == "python":
                yield Block(path, start + 1, textwrap.dedent("\n".join(lines[start : number - 1])) + "\n")
            language = None
    if language is not None:
        raise SyntaxError(f"{path}:{start}: this block is never closed")


def run_page(path: Path) -> int:
    """Run the page's blocks and return how many there were. What fails carries the page's file name and line."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for block in python_blocks(path):
        count += 1
        try:
            run_block(block, namespace)
        except BaseException as error:
            error.add_note(f"in the example at {block.path}:{block.line}")
            raise
    return count


def run_block(block: Block, namespace: dict[str, object]) -> None:
    if block.code.startswith(">>>"):
        example = doctest.DocTestParser().get_doctest(
            block.code, namespace, f"{block.path.name}:{block.line}", str(block.path), block.line - 1
        )
        report: list[str] = []
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        result = runner.run(example, out=report.append, clear_globs=False)
        namespace.update(example.globs)  # the doctest ran in a copy
        assert result.failed == 0, "".join(report)
    else:
        # Empty lines in front give the traceback the line numbers of the page.
        exec(compile("\n" * (block.line - 1) + block.code, str(block.path), "exec"), namespace)
