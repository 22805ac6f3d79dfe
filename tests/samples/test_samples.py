"""Every Python sample of the README and the docs runs, page by page, its blocks in order."""

import ast
import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+?) -->\s*\n)?"
    r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)

NOT_RUN: dict[str, list[str]] = {}
"""Samples that cannot run here: the page, and the reasons its marks give, in order."""


@dataclass(frozen=True)
class Block:
    """One sample and the line of the page on which its code begins."""

    line: int
    code: str
    reason: str | None


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("code"))
        yield Block(line, textwrap.dedent(found["code"]), found["reason"])


def pages_that_run() -> list[Path]:
    return [page for page in PAGES if any(not block.reason for block in blocks(page.read_text()))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(page: Path) -> None:
    """The page's blocks as one program, in which ``await`` may stand outside a function."""
    program = ModuleType("__main__")
    sys.modules["__main__"] = program
    with asyncio.Runner() as runner:
        for block in blocks(page.read_text()):
            if block.reason:
                continue
            # Blank lines before it give every line the number it has on the page.
            code = compile(
                "\n" * block.line + block.code,
                str(page),
                "exec",
                flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                dont_inherit=True,
            )
            waiting = FunctionType(code, vars(program))()
            if waiting is not None:
                runner.run(waiting)


def run_tests(page: Path, folder: Path) -> None:
    """The page shows tests: its blocks are one test file, run the way a reader would."""
    file = folder / "test_page.py"
    file.write_text("\n".join(block.code for block in blocks(page.read_text()) if not block.reason))
    command = ["-m", "pytest", "-q", "-p", "belay_testing.plugin", "-o", "asyncio_mode=auto", str(file)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run([sys.executable, *command], check=False, capture_output=True, text=True, cwd=folder, env=kept)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", pages_that_run(), ids=name)
def test_the_samples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    if re.search(r"^ *(?:async )?def test_", page.read_text(), re.MULTILINE):
        run_tests(page, tmp_path)
    else:
        run(page)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs/index.md", ROOT / "docs/tutorial/your-own-workflow.md"]
)
def test_the_first_programs_can_be_kept_in_a_file(page: Path):
    """Without ``await`` outside of a function, which no file may have."""
    for block in blocks(page.read_text()):
        compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True)


def test_what_is_not_run_is_listed():
    marked = {name(page): [block.reason for block in blocks(page.read_text()) if block.reason] for page in PAGES}
    assert {page: reasons for page, reasons in marked.items() if reasons} == NOT_RUN


PAGE = """
```python
import asyncio
first = await asyncio.sleep(0, "first")
```

Between, in a list:

1. Then:

    ```python
    from dataclasses import dataclass

    @dataclass
    class Seen:
        text: str

    if __name__ == "__main__":
        seen.append(Seen(first))
    ```

<!-- not run: it costs money -->
```python
raise SystemExit
```
"""


def test_the_blocks_of_a_page_share_names_and_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    page.write_text("```python\nseen = []\n```\n" + PAGE)
    assert [(block.line, block.reason) for block in blocks(page.read_text())] == [
        (1, None),
        (5, None),
        (14, None),
        (26, "it costs money"),
    ]
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    run(page)
    assert [one.text for one in vars(sys.modules["__main__"])["seen"]] == ["first"]


def test_a_failing_block_names_its_line_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nfine = 1\nfine / 0\n```\n")
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    with pytest.raises(ZeroDivisionError) as caught:
        run(page)
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno + 1) == (page, 5)


def test_a_page_with_tests_is_run_as_tests(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```python\nasync def test_it(tmp_path):\n    assert tmp_path.exists()\n```\n")
    run_tests(page, tmp_path)
    page.write_text("```python\ndef test_it():\n    assert 1 == 2\n```\n")
    with pytest.raises(AssertionError, match="1 failed"):
        run_tests(page, tmp_path)
