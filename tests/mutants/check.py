"""Plants one defect after another in a copy of this project, and says whether its tests notice.

``make mutants`` runs it. A defect is caught when the tests named for it fail, and only where the same tests pass
without it. It fails where a defect goes unnoticed, or can no longer be planted.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from belay_testing.postgres_server import URL_VARIABLE, PostgresServer
from tests.crashes.shares import add_share, share_of
from tests.mutants.mutant import Mutant
from tests.mutants.planted_engine import CALLERS, KEYS, STEPS, WAITING
from tests.mutants.planted_stores import ANSWERS, CLAIMS, FENCES

PLANTED: Final[tuple[Mutant, ...]] = (*FENCES, *CLAIMS, *ANSWERS, *KEYS, *WAITING, *STEPS, *CALLERS)
"""Every defect there is."""

_PROJECT: Final = Path(__file__).parents[2]
_COPIED: Final = (
    "belay_core",
    "belay_drivers",
    "belay_integrations",
    "belay_testing",
    "tests",
    "pyproject.toml",
    "Makefile",
    "README.md",
    "docs",
)
_PATIENCE: Final = 300
"""Seconds after which tests that do not end count as having noticed."""
_PASSED: Final = 0
_FAILED: Final = 1


class Copy:
    """A copy of the project to plant defects in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _COPIED:
            source = _PROJECT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)

    def plant(self, mutant: Mutant) -> str | None:
        """Plant a defect; why that is not possible, or None where it was."""
        path = self._folder / mutant.file
        text = path.read_text()
        for old, new in mutant.swaps:
            if text.count(old) != 1:
                return f"the place stands in {mutant.file} {text.count(old)} times"
            text = text.replace(old, new)
        path.write_text(text)
        return None

    def restore(self, mutant: Mutant) -> None:
        """Take the defect away."""
        shutil.copy(_PROJECT / mutant.file, self._folder / mutant.file)

    def run(self, tests: Sequence[str], chosen: str) -> int | None:
        """Run the chosen tests up to the first failure: pytest's exit code, None where they do not end."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *tests, "-k", chosen]
        environment = {**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ended = subprocess.run(
                command, cwd=self._folder, env=environment, capture_output=True, check=False, timeout=_PATIENCE
            )
        except subprocess.TimeoutExpired:
            return None
        return ended.returncode


def verdict(copy: Copy, mutant: Mutant) -> str:
    """``caught``, or why not."""
    impossible = copy.plant(mutant)
    try:
        if impossible is not None:
            return f"cannot be planted: {impossible}"
        code = copy.run(mutant.tests, mutant.chosen)
    finally:
        copy.restore(mutant)
    if code in {_FAILED, None}:
        return "caught"
    return "MISSED" if code == _PASSED else f"its tests did not run (exit code {code})"


def main(arguments: list[str] | None = None) -> int:
    """Plant, run, print, and say whether all were caught."""
    given = _parser().parse_args(arguments)
    if given.json:
        # A run that breaks off must not leave the figures of an earlier one.
        given.json.unlink(missing_ok=True)
    share = share_of(given)
    planted = [mutant for mutant in PLANTED if (mutant.name in given.only if given.only else share.has())]
    began = time.monotonic()
    with PostgresServer() as server, tempfile.TemporaryDirectory() as folder:
        os.environ[URL_VARIABLE] = server.url
        copies = [Copy(Path(folder, str(number))) for number in range(given.workers)]
        caught, ailing = _judged(copies, planted)
    figures = {"planted": len(planted), "caught": caught, "seconds": round(time.monotonic() - began, 1)}
    _say(json.dumps(figures))
    if given.json:
        given.json.write_text(json.dumps(figures) + "\n")
    return int(caught < len(planted) or ailing > 0)


def _judged(copies: list[Copy], planted: Sequence[Mutant]) -> tuple[int, int]:
    """How many were caught, and how many groups of tests fail without any defect."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def judge(mutant: Mutant) -> bool:
        copy = free.get()
        try:
            found = verdict(copy, mutant)
        finally:
            free.put(copy)
        _say(f"{found:8} {mutant.name}")
        return found == "caught"

    def fails_unharmed(tests: tuple[str, ...]) -> bool:
        chosen = " or ".join(dict.fromkeys(mutant.chosen for mutant in planted if mutant.tests == tests))
        copy = free.get()
        try:
            code = copy.run(tests, chosen)
        finally:
            free.put(copy)
        if code != _PASSED:
            _say(f"BROKEN   {' '.join(tests)}: fails without any defect (exit code {code})")
        return code != _PASSED

    with ThreadPoolExecutor(len(copies)) as pool:
        ailing = pool.map(fails_unharmed, dict.fromkeys(mutant.tests for mutant in planted))
        caught = pool.map(judge, planted)
        return sum(caught), sum(ailing)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="plant these alone")
    parser.add_argument("--workers", type=int, default=2, help="copies worked on side by side")
    add_share(parser)
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
