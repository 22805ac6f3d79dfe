"""What all tests share: belay's own fixtures, and a count of the outcomes as a file."""

import json
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


def pytest_configure(config: pytest.Config) -> None:
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
