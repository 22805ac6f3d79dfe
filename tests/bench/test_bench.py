"""`make bench` measures what it says: real programs, a durable server, and verdicts that follow from the figures."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belay_core import Client, open_stores
from belay_core.ownership.identity import this_process
from belay_core.records import commands
from belay_testing.postgres_server import URL_VARIABLE
from tests.bench.apart import ROOT
from tests.bench.filling import finished, pending
from tests.bench.ground import Ground, Scale, counts
from tests.bench.measure import SECTIONS, Clock, medians, one_round
from tests.bench.metering import percentile, server_seconds
from tests.bench.page import BEGIN, END, PAGE, placed
from tests.bench.server import Server, started
from tests.bench.targets import judged, table, targets
from tests.bench.work import kept_steps

LOOP = {
    *("workflows_per_s", "steps_per_s", "step_p50_ms", "step_p99_ms", "workflow_p50_ms"),
    *("client_us_per_step", "rss_mib", "load"),
}


def ran(module: str, *arguments: object) -> Any:
    command = [sys.executable, "-m", f"tests.bench.{module}", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started() as server:
        yield server


# ---------------------------------------------------------------- programs


def test_a_loop_counts_whole_runs_and_every_step_of_them():
    reported = ran("loop", "--url", "sqlite://", "--concurrency", 3, "--steps", 4, "--seconds", 0.2, "--warm-up", 0.1)
    assert set(reported) >= LOOP
    assert reported["steps_in_all"] == 4 * reported["runs_in_all"]
    assert reported["steps_per_s"] == pytest.approx(4 * reported["workflows_per_s"], rel=0.4)
    assert 0 < reported["step_p50_ms"] <= reported["step_p99_ms"] < reported["workflow_p99_ms"]


def test_a_queue_ends_when_every_run_has_completed():
    reported = ran("queue", "--url", "sqlite://", "--runs", 60, "--steps", 1, "--non-idempotent")
    assert reported["runs_per_s"] < reported["starts_per_s"], "the last one was started before the last one ended"
    assert reported["seconds"] == pytest.approx(60 / reported["runs_per_s"], abs=0.001), "it is told to the millisecond"


@pytest.mark.parametrize("others", [(), ("--non-idempotent",)])
def test_the_engine_alone_ends_every_run(others: tuple[str, ...]):
    reported = ran("parts", "--engine", "--runs", 60, "--steps", 3, *others)
    assert reported["client_us_per_step"] > 0


async def test_the_store_alone_keeps_every_record(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/p.db"
    reported = ran("parts", "--url", url, "--runs", 100, "--steps", 3)
    assert reported["client_us_per_record"] > 0
    async with open_stores(url) as stores:
        runs = await Client(stores).list(limit=1000)
        histories = await stores.attempts.history(commands.History(tuple(run.run_id for run in runs)))
    assert [len(each.attempts) for each in histories] == [3 + 100 * 3 // 50] * 50


def test_the_floor_of_sqlite_is_a_durable_commit_for_each_write(tmp_path: Path):
    reported = ran("floor", "--sqlite", tmp_path / "floor.db", "--seconds", 0.1)
    assert reported["commits_per_s"] > 0
    assert 0 < reported["p50_ms"] <= reported["p99_ms"]


def test_a_random_load_stops_at_the_first_rate_that_is_not_carried():
    reported = ran("load", "--url", "sqlite://", "--rates", 20, 50_000, 60_000, "--seconds", 0.2)
    assert list(reported["rates"]) == ["20", "50000"]
    assert reported["most_carried"] == 20


def test_a_long_history_is_replayed_and_goes_on(tmp_path: Path):
    reported = ran("history", "--url", f"sqlite:///{tmp_path}/h.db", "--lengths", 5, 50, "--seconds", 0.1)["lengths"]
    assert 0 < reported["5"]["replay_ms"] < reported["50"]["replay_ms"]
    assert reported["50"]["step_p50_ms"] > 0


@pytest.mark.thorough
def test_a_killed_workers_runs_begin_again_in_another_process(tmp_path: Path):
    reported = ran("resuming", "--url", f"sqlite:///{tmp_path}/k.db", "--kills", 1, "--runs", 2)
    assert 0 < reported["resumed_p50_ms"] <= reported["resumed_p99_ms"] < 20_000


@pytest.mark.thorough
def test_a_decision_reaches_a_worker_of_another_process(tmp_path: Path):
    reported = ran("waiting", "--url", f"sqlite:///{tmp_path}/d.db", "--decisions", 2, "--elsewhere")
    assert 0 < reported["next_step_p50_ms"] <= reported["next_step_p99_ms"]


# ---------------------------------------------------------------- the server


def test_the_server_is_its_own_and_keeps_what_it_has_committed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(URL_VARIABLE, "postgresql://somebody@elsewhere/else")
    with started() as server:
        settings = dict(
            server.ask("SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit')")
        )
        assert settings == {"fsync": "on", "synchronous_commit": "on"}
        assert server_seconds(server.pid) is not None
    with pytest.raises(OSError, match="Connect"):
        server.ask("SELECT 1")


def test_what_a_worker_did_is_counted_for_its_database_alone(server: Server):
    url, other = server.database(), server.database()
    before, idle = counts(server, url), counts(server, other)
    reported = ran("loop", "--url", url, "--concurrency", 1, "--steps", 5, "--seconds", 0.1, "--warm-up", 0)
    made = counts(server, url).combined(before, lambda now, then: now - then)
    assert made.commits >= reported["steps_in_all"]
    assert made.wal_bytes > 100 * reported["steps_in_all"]
    if server.counts_statements:
        assert made.step_statements == reported["steps_in_all"]
    assert counts(server, other).commits == idle.commits


async def test_runs_that_were_filled_in_stand_there_as_runs_do(server: Server):
    url = server.database()
    server.do(finished(30), url)
    waiting = server.database()
    server.do(pending(20), waiting)
    async with open_stores(url) as stores:
        client = Client(stores)
        runs = await client.list(workflow=kept_steps.name, status="completed")
        assert len(runs) == 30
        [attempt] = (await client.history(runs[0].run_id)).attempts
        assert attempt.state.value == "succeeded"
        assert len(await client.journal(runs[0].run_id)) == 3
    async with open_stores(waiting) as stores:
        owner = this_process(stores.ids).owner(stores.ids)
        assert len(await stores.runs.acquire(commands.Acquire(owner, ("bench-endless",), 50))) == 20


# ---------------------------------------------------------------- figures


def test_percentiles_are_values_that_were_met():
    values = [float(each) for each in range(1, 101)]
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([3.0], 0.99) == 3
    assert percentile([], 0.5) is None


def test_a_figure_is_the_median_of_the_rounds_that_have_it():
    assert medians([{"a": 1, "b": 5}, {"a": 9}, {"a": 2}]) == {"a": 2, "b": 5}


def test_a_target_is_missed_on_the_wrong_side_of_its_bound_alone():
    figures = {
        "client_us_per_step_50": 50.1,
        "non_idempotent_client_us_per_step_50": 89.9,
        "pg_50_over_asyncpg_8": 1.19,
        "non_idempotent_pg_50_over_asyncpg_8": 0.71,
        "commits_per_step": 1.04,
        "commits_per_step_50": 0.12,
    }
    verdicts = {target.name: met for target, _, met in judged(figures)}
    assert verdicts == {
        "client_us_per_step_50": False,
        "non_idempotent_client_us_per_step_50": True,
        "pg_50_over_asyncpg_8": False,
        "non_idempotent_pg_50_over_asyncpg_8": True,
        "commits_per_step": True,
        "commits_per_step_50": False,
    }


def test_a_missed_target_is_shown_as_missed_beside_its_floor():
    shown = list(table({"pg_50_over_asyncpg_8": 0.5, "pg_50_steps_per_s": 512, "floor_pg_8_commits_per_s": 1024}))
    [line] = [each for each in shown if "at least 1.2" in each]
    assert line.startswith("MISSED")
    assert line.split()[-6:] == ["512", "1,024", "0.5", "at", "least", "1.2"]


def test_a_target_is_named_once():
    names = [target.name for target in targets()]
    assert len(names) == len(set(names))


def test_a_section_that_would_take_too_long_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, server: Server):
    measured: list[int] = []

    def section(ground: Ground) -> dict[str, float]:
        measured.append(ground.round)
        return {"figure": ground.round}

    monkeypatch.setitem(SECTIONS, "some", section)
    ground = Ground(server, Path(), Scale(0.05, 0.0, quick=True), 2)
    clock = Clock(longest=-1.0)
    first = one_round(ground, ["some"], clock)
    second = one_round(ground, ["some"], clock)
    assert (first, second) == ({"figure": 1}, {})
    assert (measured, clock.left_out) == ([1], 1)


@pytest.mark.thorough
@pytest.mark.timeout(200)
def test_a_quick_bench_writes_the_figures_it_promises(tmp_path: Path):
    file = tmp_path / "figures.json"
    command = ["tests.bench.measure", "--quick", "--only", "loop", "takeover", "--json", str(file)]
    done = subprocess.run([sys.executable, "-m", *command], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text())
    for kind in ("", "non_idempotent_"):
        for name in ("lone_step_p50_over_asyncpg", "pg_50_over_asyncpg_8", "step_p99_ms_50", "client_us_per_step_50"):
            assert figures[kind + name] > 0
        assert figures[f"{kind}pg_50_over_asyncpg_8"] == pytest.approx(
            figures[f"{kind}pg_50_steps_per_s"] / figures["floor_pg_8_commits_per_s"], rel=0.01
        )
    assert figures["takeover_100_ms"] > 0
    assert figures["missed"] <= figures["targets"] == 10
    assert figures["left_out"] == 0
    assert done.stdout.count("at least 1.2") == 1


def test_the_page_shows_the_figures_between_its_marks_and_keeps_its_words():
    figures = {"pg_50_steps_per_s": 4321.0, "step_p99_ms_50": 9.5, "rounds": 3, "seconds": 600, "load_before": 0.1}
    page = placed(PAGE.read_text(), figures | {"load_most": 2.5})
    assert "| PostgreSQL, 50 runs | 4,321 |" in page
    assert "| step p99 at 50 runs, ms | 9.5 | at most 5 | **missed** |" in page
    assert page.partition(BEGIN)[0] == PAGE.read_text().partition(BEGIN)[0]
    assert page.partition(END)[2] == PAGE.read_text().partition(END)[2]
    assert placed(page, figures | {"load_most": 2.5}) == page
    with pytest.raises(ValueError, match="bench: begin"):
        placed("a page without marks", figures)


@pytest.mark.thorough
def test_a_worker_apart_ends_with_the_process_that_started_it(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/e.db"
    command = [sys.executable, "-m", "tests.bench.resuming", "--url", url, "--work"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert "ready" in worker.stdout.readline()
        assert worker.poll() is None
        worker.stdin.close()
        assert worker.wait(10) == 1
