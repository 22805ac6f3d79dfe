"""The tutorial's own workflow, killed and approved by the commands on its page."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commanding import Cli, Running, until

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "your-own-workflow.md").read_text()
PAUSE = "timedelta(seconds=5)"


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Cli:
    """The command in a folder with the page's ``papers.py``, whose last pause is over at once."""
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert PAUSE in program
    (tmp_path / "papers.py").write_text(program.replace(PAUSE, "timedelta(0)"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BELAY_APP", "papers:WORKFLOWS")
    return cli


def attempts(cli: Cli, step: str) -> list[str]:
    found: list[Any] = cli.json("show", "knots")["attempts"]
    return [each["state"] for each in found if each["step"] == step]


def test_the_workflow_of_the_tutorial_goes_on_after_its_kill(papers: Cli, worker: Callable[..., Running]):
    assert (
        papers("start", "papers", '{"title": "Knots", "pages": 4}', "--run-id", "knots").out == "run knots is started\n"
    )
    first = worker()
    until(lambda: "succeeded" in attempts(papers, "count"))
    first.send(signal.SIGKILL)
    worker()
    until(lambda: papers.json("approvals") != [])
    edited = '{"title": "Ten knots", "words": [9]}'
    assert papers("approve", "knots", "--yes", "--by", "ana", "--edit", edited).code == 0
    until(lambda: papers.json("show", "knots")["run"]["status"] == "completed")
    assert papers.json("show", "knots")["run"]["result"] == "Ten knots has 9 words"
    assert attempts(papers, "download") == ["failed", "succeeded"]
    assert attempts(papers, "count") == ["succeeded"] * 4
