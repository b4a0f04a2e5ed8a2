"""Every Python example in README.md and docs/ runs."""

import traceback
from pathlib import Path

import pytest

from tests.markdown_examples import python_blocks, run_page

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page: Path) -> None:
    run_page(page)


def test_readme_has_examples() -> None:
    assert list(python_blocks(ROOT / "README.md"))


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return page

    return write


def test_blocks_share_a_namespace(write) -> None:
    page = write(
        "# Title\n```python\na = 2\n```\n```bash\nexit 1\n```\n- item\n  ```python\n  assert a == 2\n  ```\n"
        "```python\n>>> a + 1\n3\n>>> b = 5\n```\n```python\nassert b == 5\n```\n"
    )
    assert run_page(page) == 4


def test_a_failing_block_names_file_and_line(write) -> None:
    page = write("text\n\n```python\nok = 1\n```\n\n```python\nfine = 2\nok / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(page)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (str(page), 9)
    assert caught.value.__notes__ == [f"in the example at {page}:8"]


def test_a_wrong_printed_result_fails(write) -> None:
    page = write("```python\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(AssertionError, match=r"(?s)page\.md.*line 2.*Expected:\n +3\nGot:\n +2"):
        run_page(page)


def test_an_open_block_is_an_error(write) -> None:
    with pytest.raises(SyntaxError, match="page.md:2: this block is never closed"):
        run_page(write("text\n```python\na = 1\n"))
