"""The suite itself: what a gap is, that an answer nobody ever saw is found, and that every case has its proof."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from belay_testing.answers import possible
from belay_testing.cases import CASES, case
from belay_testing.conformance import (
    AuxiliaryConformance,
    EngineAuxiliaryConformance,
    EngineConformance,
    ProcessConformance,
    SchemaConformance,
    SharedAuxiliaryConformance,
    SharedConformance,
    StoreConformance,
)

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
SUITE = """
import pytest
from belay_core.stores.run_contract import CancelRequested, NotFound
from belay_testing.conformance import Gap, Harness
from belay_testing.conformance.chapter import Chapter
from tests.drivers.dictionary import open_dictionary
from tests.drivers.dictionary_shelf import Shelf
from functools import partial


class Short(Chapter):
    answering = frozenset({"attempts:contract"})

    async def test_one(self, runs):
        assert await runs.request_cancel("nowhere", 0) == NotFound()

    @pytest.mark.parametrize("right", [True, False])
    async def test_two(self, runs, right):
        assert right


class TestShort(Short):
    driver = "short"
    gaps = (GAPS)

    @pytest.fixture
    def harness(self):
        return Harness(partial(open_dictionary, Shelf()))
"""
CLOSED = "Gap('test_one', because='it was once so')"
NAMELESS = "Gap('test_three', because='nobody knows')"
HONEST = "Gap('test_two[False]', because='it is not right')"


WHOLE = (
    StoreConformance,
    EngineConformance,
    EngineAuxiliaryConformance,
    ProcessConformance,
    SharedAuxiliaryConformance,
    SchemaConformance,
)
"""The suites of a driver that has everything."""
OPTIONS = [
    *("-q", "-p", "belay_testing.plugin", "-p", "no:cacheprovider", "-W", "error", "--strict-markers"),
    *("-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function"),
]


def run(pytester: pytest.Pytester, gaps: str, *options: str) -> tuple[int, str]:
    """The exit code and the report of a short suite, in a folder of its own."""
    pytester.makepyfile(test_short=SUITE.replace("GAPS", gaps))
    result = pytester.runpytest_inprocess(*OPTIONS, *options)
    return int(result.ret), result.stdout.str()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_answer_that_was_never_given_fails_the_run_and_is_named(tmp_path: Path, workers: str):
    (tmp_path / "test_short.py").write_text(SUITE.replace("GAPS", f"{HONEST},"))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-n", workers, "--belay-conformance", "figures.json"]
    environment = {**kept, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "2 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
    assert "short: 0 of 17 answers seen, 1 gaps" in done.stdout
    assert "gap: test_two[False]: it is not right" in done.stdout
    assert "never answered: attempts.put Upserted" in done.stdout
    assert json.loads((tmp_path / "figures.json").read_text()) == {
        "tests": 3,
        "drivers": 1,
        "outcomes_possible": 17,
        "outcomes_seen": 0,
        "cases": 0,
        "lockstep_seeds": 0,
        "gaps": 1,
        "short_gaps": 1,
    }


def test_a_run_of_some_tests_says_so_and_fails_nobody(pytester: pytest.Pytester):
    code, reported = run(pytester, "", "-k", "test_one")
    assert (code, "(not every test was run)" in reported) == (0, True)
    assert "never answered" not in reported


def test_the_name_of_a_chapter_selects_its_tests(pytester: pytest.Pytester):
    chapter = SUITE.replace("Short(Chapter)", "Apart(Chapter)").replace("TestShort(Short)", "TestShort(Apart)")
    pytester.makepyfile(test_short=chapter.replace("GAPS", f"{HONEST},"))
    for name, reported in (("Apart and test_one", "1 passed, 2 deselected"), ("Elsewhere", "3 deselected")):
        assert reported in pytester.runpytest_inprocess(*OPTIONS, "-k", name).stdout.str()


def test_a_gap_that_has_closed_is_a_failure(pytester: pytest.Pytester):
    code, reported = run(pytester, f"{HONEST}, {CLOSED}")
    assert code == 1
    assert "XPASS(strict)" in reported
    assert "it was once so" in reported


def test_a_gap_that_names_no_test_is_a_failure(pytester: pytest.Pytester):
    code, reported = run(pytester, f"{HONEST}, {NAMELESS}")
    assert (code, "2 passed, 1 xfailed" in reported) == (1, True)
    assert "gap names no test: test_three" in reported


def test_a_promise_that_is_not_kept_is_a_failure(pytester: pytest.Pytester):
    code, reported = run(pytester, "")
    assert (code, "1 failed, 2 passed" in reported) == (1, True)


def test_the_answers_of_a_store_are_those_of_its_unions():
    assert ("runs.claim", "Claimed") in possible("runs")
    assert ("runs.acknowledge_cancel", "False") in possible("runs")
    assert {kind for operation, kind in possible("attempts") if operation == "attempts.put"} == {
        *("Inserted", "Upserted", "ExistingSame", "Conflict", "FenceLost", "RunNotFound"),
    }
    assert ("runs.acquire", "Acquired") in possible("runs:engine")
    assert {kind for operation, kind in possible("waiting") if operation == "waiting.wake"} == {
        *("Woken", "NotWaiting", "NotFound"),
    }
    assert ("changes.list_runs", "SourceChanged") in possible("changes")
    assert possible("clock") == frozenset()


def test_no_chapter_hides_a_test_of_another():
    for suite in (*WHOLE, AuxiliaryConformance, SharedConformance):
        inherited = [
            name for base in suite.__mro__ for name in vars(base) if name.startswith("test") and base is not suite
        ]
        assert len(inherited) == len(set(inherited)) > 0
    every = type("Every", WHOLE, {})
    names = [name for base in every.__mro__ for name in vars(base) if name.startswith("test")]
    assert sorted(names) == sorted(set(names))


def proven() -> set[int]:
    """The numbers that tests are marked with."""
    found: set[int] = set()
    for path in [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("belay_testing/conformance/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "case":
                        found |= set(map(ast.literal_eval, mark.args))
    return found


def test_every_case_has_a_test_that_proves_it():
    assert sorted(set(CASES) - proven()) == []


def test_a_number_that_is_no_case_is_refused():
    with pytest.raises(KeyError):
        case(3)


def test_the_suite_names_no_driver_but_the_one_it_compares_with():
    allowed = {"lockstep.py"}
    naming = {
        path.name
        for path in ROOT.glob("belay_testing/conformance/*.py")
        if re.search(r"belay_drivers|sqlalchemy|asyncpg", path.read_text())
    }
    assert naming == allowed
