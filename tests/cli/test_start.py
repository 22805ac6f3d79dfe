"""``belay start`` and ``belay runs``."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from belay_core.stores import open_stores
from belay_core.worker import Worker
from tests.cli.commanding import Cli, shell, shop


def test_a_started_run_is_kept(cli: Cli):
    ended = cli("start", "greet", '"Ada"', "--run-id", "r1")
    assert (ended.code, ended.out, ended.err) == (0, "run r1 is started\n", "")
    run = cli.json("show", "r1")["run"]
    assert (run["workflow"], run["state"], run["input"]) == ("greet", "pending", "Ada")


def test_a_known_key_finds_the_run_there_is(cli: Cli):
    first = cli.json("start", "greet", '"Ada"', "--key", "k")
    assert first["created"] is True
    assert cli.json("start", "greet", '"Bob"', "--key", "k") == first | {"created": False}
    assert cli("start", "greet", '"Bob"', "--key", "k").out == (
        f"run {first['run_id']} was there already, and is untouched\n"
    )
    assert cli.json("show", first["run_id"])["run"]["input"] == "Ada"


def test_a_known_key_finds_its_run_whatever_the_input_is(cli: Cli):
    first = cli.json("start", "order", '{"item": "rope", "amount": 3}', "--key", "k")
    for given in ('{"item": "rope"}', "[", '{"item": 1, "item": 2}'):
        assert cli.json("start", "order", given, "--key", "k") == first | {"created": False}
        assert cli("start", "order", given, "--key", "other").code == 2


def test_the_key_of_another_workflow_is_refused(cli: Cli):
    run = cli.json("start", "greet", '"Ada"', "--key", "k")["run_id"]
    assert cli("start", "ping", "--key", "k").err == f"belay: key: belongs to run {run} of workflow greet\n"


def test_the_id_of_another_run_is_refused(cli: Cli):
    cli.start("greet", "Ada", run_id="r1")
    ended = cli("start", "greet", '"Bob"', "--run-id", "r1")
    assert (ended.code, ended.err) == (2, "belay: run-id: belongs to a run with another workflow, key or input\n")


def test_priority_and_moment_are_kept(cli: Cli):
    run = cli.json("start", "ping", "--priority", "7", "--at", "2031-01-31T09:00:00+01:00")["run_id"]
    shown = cli.json("show", run)["run"]
    assert (shown["priority"], shown["ready_at"]) == (7, "2031-01-31T08:00:00.000Z")
    assert "it is to start at 2031-01-31T08:00:00.000Z" in cli("explain", run).out


def test_an_input_may_come_from_a_file(cli: Cli, tmp_path: Path):
    file = tmp_path / "order.json"
    file.write_text('{"item": "Seil für zwei", "amount": 3}')
    run = cli.json("start", "order", f"@{file}")["run_id"]
    assert cli.json("show", run)["run"]["input"] == {"item": "Seil für zwei", "amount": 3}
    file.write_bytes(b'"\xff"')
    assert cli("start", "order", f"@{file}").err == "belay: input: must be UTF-8 text\n"


def test_an_input_may_come_from_the_standard_input(cli: Cli):
    ended = shell("start", "greet", "-", "--json", stdin='"Zoë"'.encode())
    assert cli.json("show", ended.document["run_id"])["run"]["input"] == "Zoë"
    refused = shell("start", "greet", "-", stdin=b'{"a": 1, "a": 2}')
    assert (refused.code, refused.err) == (2, "belay: input: contains the same object key twice\n")


def test_one_workflow_is_an_app_as_well(cli: Cli):
    assert cli.json("start", "greet", '"Ada"', "--app", "shop:greet")["created"] is True


def work_until(cli: Cli, over: threading.Event) -> None:
    async def working() -> None:
        async with open_stores(cli.url) as stores, Worker(stores, shop().app, poll=0.01):
            await asyncio.to_thread(over.wait, 30)

    asyncio.run(working())


@pytest.fixture
def at_work(cli: Cli):
    """A worker in a thread of this process."""
    cli.json("migrate")
    over = threading.Event()
    thread = threading.Thread(target=work_until, args=(cli, over))
    thread.start()
    yield
    over.set()
    thread.join(30)


@pytest.mark.usefixtures("at_work")
def test_waiting_gives_the_result(cli: Cli):
    ended = cli("start", "greet", '"Ada"', "--run-id", "r1", "--wait")
    assert (ended.code, ended.out) == (0, 'run r1 is started\n"ADA"\n')
    assert cli.json("start", "greet", '"Ada"', "--run-id", "r2", "--wait") == {
        "run_id": "r2",
        "workflow": "greet",
        "created": True,
        "status": "completed",
        "result": "ADA",
    }


@pytest.mark.usefixtures("at_work")
def test_waiting_for_a_run_that_fails_is_no_success(cli: Cli):
    ended = cli("start", "broken", '"no rope"', "--run-id", "r1", "--wait")
    assert (ended.code, ended.out) == (1, "run r1 is started\n")
    assert ended.err == "belay: run r1 failed: StepFailed: step spoil failed: ValueError: no rope\n"
    reported = cli.json("start", "broken", '"no rope"', "--wait", code=1)
    assert reported["status"] == "failed"
    assert reported["error"] == {"type": "StepFailed", "message": "step spoil failed: ValueError: no rope"}


@pytest.mark.usefixtures("at_work")
def test_waiting_for_a_run_that_is_cancelled_is_no_success(cli: Cli):
    cli.json("start", "nap", "--key", "k", "--run-id", "r1")
    cli.json("cancel", "r1")
    ended = cli("start", "nap", "--key", "k", "--wait")
    assert (ended.code, ended.err) == (1, "belay: run r1 was cancelled\n")
    assert cli.json("start", "nap", "--key", "k", "--wait", code=1)["status"] == "cancelled"


def test_runs_are_listed_with_what_they_wait_for(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    cli.started("nap", run_id="r2")
    cli.start("greet", "Ada", run_id="r3")
    lines = [line.split() for line in cli("runs").out.splitlines()]
    assert lines[0] == ["STATE", "AGE", "WORKFLOW", "RUN"]
    assert [(state, workflow, run) for state, _, workflow, run in lines[1:]] == [
        ("pending", "greet", "r3"),
        ("timer", "nap", "r2"),
        ("approval", "letter", "r1"),
    ]
    assert all(age.endswith("s") for _, age, _, _ in lines[1:])


def listed(cli: Cli, *options: str) -> list[str]:
    return [run["run_id"] for run in cli.json("runs", *options)]


def test_a_list_is_narrowed_and_turned_page_by_page(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    cli.started("nap", run_id="r2")
    cli.started("ping", run_id="r3")
    cli.start("ping", run_id="r4")
    assert listed(cli) == ["r4", "r3", "r2", "r1"]
    assert listed(cli, "--workflow", "ping") == ["r4", "r3"]
    assert listed(cli, "--status", "suspended") == ["r2", "r1"]
    assert listed(cli, "--waiting-for", "approval") == ["r1"]
    assert listed(cli, "--limit", "2") == ["r4", "r3"]
    assert listed(cli, "--limit", "2", "--before", "r3") == ["r2", "r1"]
    assert cli("runs", "--before", "nix").err == "belay: there is no run nix\n"
    assert listed(cli, "--workflow", "nix") == []
    assert cli("runs", "--workflow", "nix").out == "no runs\n"


def test_a_listed_run_is_a_document(cli: Cli):
    cli.started("nap", run_id="r1")
    (run,) = cli.json("runs")
    assert run["state"] == "timer"
    assert run["status"] == "suspended"
    assert run["waiting"]["token"] == "sleep#1"
    assert run["waiting"]["wakes_at"] > run["created_at"]
    assert run["owner"] is None
    assert "input" not in run


def test_options_win_over_the_environment(cli: Cli, tmp_path: Path):
    other = f"sqlite:///{tmp_path}/other.db"
    cli.json("start", "ping", "--run-id", "elsewhere", "--database", other)
    cli.start("ping", run_id="here")
    assert [run["run_id"] for run in json.loads(cli("runs", "--json", "--database", other).out)] == ["elsewhere"]
    assert listed(cli) == ["here"]
