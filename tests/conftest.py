"""What all tests share: belay's own fixtures, and a count of the outcomes as a file."""

import json
import re
import time
from pathlib import Path

import pytest

pytest_plugins = ["belay_testing.plugin"]

_STARTED: pytest.StashKey[float] = pytest.StashKey()
_KINDS = {
    "passed": ("passed", "xpassed"),
    "failed": ("failed",),
    "errors": ("error",),
    "skipped": ("skipped",),
    "xfailed": ("xfailed",),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts", metavar="FILE", help="write how many tests passed, failed, ... as JSON")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a file the engine is what it is in memory, but for the writer, which the drivers' tests prove."""
    for item in items:
        on_a_file = "file" in re.split(r"[\[\]-]", item.name)
        if on_a_file and "/engine/" in item.path.as_posix():
            item.add_marker(pytest.mark.thorough)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: left out of a plain `make test`; CI and `make conformance` run it")
    config.stash[_STARTED] = time.monotonic()
    counts = config.getoption("--counts")
    if counts and not hasattr(config, "workerinput"):
        # A run that breaks off must not leave the figures of an earlier one.
        Path(counts).unlink(missing_ok=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = config.getoption("--counts")
    if not counts:
        return
    stats = terminalreporter.stats
    figures: dict[str, float] = {
        name: sum(len(stats.get(kind, ())) for kind in kinds) for name, kinds in _KINDS.items()
    }
    figures["seconds"] = round(time.monotonic() - config.stash[_STARTED], 2)
    Path(counts).write_text(json.dumps(figures) + "\n")
