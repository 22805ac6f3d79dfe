"""``belay worker``: real processes, and what they leave behind."""

import json
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from belay_core.cli.visible_text import visible
from tests.cli.commanding import Cli, Running, until

Begin = Callable[..., Running]


def show(cli: Cli, run: str) -> Any:
    return cli.json("show", run)


def began(folder: Path, pid: int) -> Callable[[], bool]:
    return (folder / f"began-{pid}").exists


def test_a_worker_says_when_it_is_ready_and_leaves_in_good_order(cli: Cli, worker: Begin):
    running = worker()
    assert running.ready.startswith(f"worker {running.pid} is ready for broken, charges, chatty, contract, greet, ")
    assert cli.json("start", "greet", '"Ada"', "--wait")["result"] == "ADA"
    running.send(signal.SIGTERM)
    ended = running.ended()
    assert (ended.code, ended.out, ended.err) == (0, f"worker {running.pid} has left\n", "")


def test_a_worker_has_the_collector_look_seldom(cli: Cli, worker: Begin):
    worker()
    assert cli.json("start", "tidy", "--wait")["result"] == [10_000, True]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_writes_a_json_object_a_line(cli: Cli, worker: Begin, number: signal.Signals):
    running = worker("--json", "--concurrency", "7", "--app", "shop:greet")
    assert json.loads(running.ready) == {
        "event": "ready",
        "pid": running.pid,
        "workflows": ["greet"],
        "concurrency": 7,
    }
    running.send(number)
    ended = running.ended()
    assert (ended.code, ended.err) == (0, "")
    assert [json.loads(line) for line in ended.out.splitlines()] == [
        {"event": "left", "pid": running.pid, "threads_running": 0}
    ]


def test_a_worker_that_leaves_releases_its_runs_to_others(cli: Cli, worker: Begin, tmp_path: Path):
    first = worker("--grace", "0")
    run = cli.start("held", str(tmp_path))
    until(began(tmp_path, first.pid))
    first.send(signal.SIGTERM)
    assert first.ended().code == 0
    assert cli.json("runs")[0]["state"] == "released"
    (tmp_path / "go").touch()
    second = worker()
    until(lambda: show(cli, run)["run"]["status"] == "completed")
    assert show(cli, run)["run"]["result"] == second.pid


def test_a_worker_lets_steps_end_within_its_grace(cli: Cli, worker: Begin, tmp_path: Path):
    running = worker("--grace", "20")
    run = cli.start("held", str(tmp_path))
    until(began(tmp_path, running.pid))
    running.send(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert running.ended().code == 0
    (attempt,) = show(cli, run)["attempts"]
    assert (attempt["state"], attempt["outcome"]) == ("succeeded", running.pid)


def test_the_runs_of_a_killed_worker_go_on_with_another_within_three_seconds(cli: Cli, worker: Begin, tmp_path: Path):
    first = worker()
    run = cli.start("held", str(tmp_path))
    until(began(tmp_path, first.pid))
    second = worker()
    assert second.ready
    first.send(signal.SIGKILL)
    killed_at = time.time()
    assert first.ended().code == -signal.SIGKILL
    (tmp_path / "go").touch()
    until(lambda: show(cli, run)["run"]["status"] == "completed")
    shown = show(cli, run)
    assert shown["run"]["result"] == second.pid
    finished_at = datetime.fromisoformat(shown["run"]["finished_at"]).timestamp()
    assert finished_at - killed_at < 3


def test_a_step_that_hangs_in_a_thread_keeps_no_process(cli: Cli, worker: Begin, tmp_path: Path):
    running = worker("--grace", "0.1", "--json")
    run = cli.start("stuck", str(tmp_path))
    until(began(tmp_path, running.pid))
    running.send(signal.SIGTERM)
    ended = running.ended()
    assert ended.code == 0
    assert json.loads(ended.out) == {"event": "left", "pid": running.pid, "threads_running": 1}
    worker()
    until(lambda: cli.json("runs")[0]["state"] == "needs_review")
    assert show(cli, run)["attempts"][0]["state"] in {"running", "orphaned"}


def test_what_a_worker_logs_does_nothing_to_a_terminal(cli: Cli, worker: Begin):
    running = worker()
    cli.json("start", "chatty", '"\\u001b[2J\\nfake: line \\u202e"', "--wait")
    running.send(signal.SIGTERM)
    err = running.ended().err
    assert "WARNING shop: got <U+001B>[2J<U+000A>fake: line <U+202E>\n" in err
    assert "\n| Traceback (most recent call last):\n" in err
    assert "\n| ValueError: <U+001B>[2J\n| fake: line <U+202E>\n" in err
    assert all(visible(line) == line for line in err.split("\n"))


def test_a_worker_that_cannot_begin_says_why_and_ends(worker: Begin, cli: Cli):
    running = worker("--database", "postgresql://eve:hunter2@127.0.0.1:1/belay")
    ended = running.ended()
    assert (running.ready, ended.code, ended.err.count("\n")) == ("", 1, 1)
    assert ended.err.startswith("belay: the database cannot be ")
    assert "hunter2" not in ended.err
