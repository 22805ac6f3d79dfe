"""A share of ``make crashes``: real processes, really killed; and faults planted in the engine are found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crashes.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(200)


def enumerated(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, float], str]:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.crashes.enumerate", "--json", str(file), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert file.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(file.read_text()), done.stdout


def test_killed_at_a_statement_nothing_is_lost_and_nothing_doubled(tmp_path: Path):
    shares = ("--share", "1/48", "--scenarios", "steps", "takeover", "parallel", "lost")
    code, figures, output = enumerated(tmp_path, *shares)
    assert code == 0, output
    assert figures["points"] >= 10
    assert (figures["lost"], figures["double"]) == (0, 0)
    assert figures["recovered"] + figures["needs_review"] == figures["points"]
    assert {"sqlite_points", "postgres_points", "duplicates", "seconds"} <= set(figures)


def test_an_engine_that_acknowledges_before_it_commits_is_found(tmp_path: Path):
    plan = ("--planted", "acknowledges early", "--drivers", "sqlite", "--scenarios", "steps")
    code, figures, output = enumerated(tmp_path, *plan, "--share", "1/8", "--seed", "0")
    assert code == 1
    assert figures["double"] > 0
    assert "ran 2 times, and is not idempotent" in output


def test_there_are_the_seven_scenarios():
    assert set(SCENARIOS) == {"steps", "gate", "retry", "takeover", "parallel", "deciding", "lost"}
