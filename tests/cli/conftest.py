"""The command over a fresh SQLite file, and workers that do not outlive their test."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.commanding import APP, APPS, Cli, Running


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests, and the app's folder as the current one."""
    for name in ("BELAY_DATABASE", "BELAY_APP", "BELAY_APPROVER", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(APPS)
    monkeypatch.syspath_prepend(str(APPS))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/belay.db"


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command, with the database and the app set by the environment."""
    monkeypatch.setenv("BELAY_DATABASE", url)
    monkeypatch.setenv("BELAY_APP", APP)
    monkeypatch.setenv("BELAY_APPROVER", "ana")
    return Cli(url, capsys)


@pytest.fixture
def worker() -> Iterator[Callable[..., Running]]:
    """Starts workers, and kills those that a test leaves behind."""
    with ExitStack() as stack:

        def begin(*arguments: str) -> Running:
            running = Running(*arguments)
            stack.callback(_end, running.process)
            return running

        yield begin


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()
