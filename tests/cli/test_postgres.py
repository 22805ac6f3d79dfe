"""The same commands over PostgreSQL."""

import signal
from collections.abc import Callable

import pytest

from belay_testing.handles import StoresHandle
from tests.cli.commanding import Cli, Running, until


@pytest.fixture
def on_postgres(belay_postgres: StoresHandle, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command, with a database on a server set by the environment."""
    monkeypatch.setenv("BELAY_DATABASE", belay_postgres.url)
    cli.url = belay_postgres.url
    return cli


def test_a_run_goes_from_start_through_a_decision_to_its_end(on_postgres: Cli):
    cli = on_postgres
    cli.started("letter", "Dear Ada", run_id="r1")
    assert cli.json("runs")[0]["state"] == "approval"
    assert cli.json("approvals")[0]["subject"] == "Dear Ada"
    assert cli.json("approve", "r1")["outcome"] == "decided"
    cli.work()
    assert cli.json("show", "r1")["run"]["result"] == "sent Dear Ada"
    assert cli.json("explain", "r1")["state"] == "completed"


def test_an_operator_resolves_and_cancels(on_postgres: Cli):
    cli = on_postgres
    cli.started("charges", ["Ada"], run_id="r1")
    assert cli.json("resolve", "r1", "--happened", "1")["resolution"] == "happened"
    cli.started("nap", run_id="r2")
    assert cli.json("cancel", "r2")["outcome"] == "cancel_requested"
    cli.work()
    assert {run["run_id"]: run["status"] for run in cli.json("runs")} == {"r1": "completed", "r2": "cancelled"}


def test_a_worker_executes_and_leaves(on_postgres: Cli, worker: Callable[..., Running]):
    cli = on_postgres
    running = worker()
    run = cli.start("greet", "Ada")
    until(lambda: cli.json("show", run)["run"]["result"] == "ADA")
    running.send(signal.SIGTERM)
    assert running.ended().code == 0


def test_a_database_without_a_schema_names_the_command_and_is_migrated_by_it(
    on_postgres: Cli, belay_postgres_server, belay_postgres_names
):
    cli = on_postgres
    name = next(belay_postgres_names)
    url = belay_postgres_server.create_database(name)
    try:
        ended = cli("runs", "--database", url)
        assert (ended.code, ended.err) == (1, "belay: the database has no belay schema; run `belay migrate`\n")
        script = cli("migrate", "--sql", "--database", url).out
        assert "CREATE TABLE" in script
        assert cli.json("migrate", "--database", url)["applied"][0]["id"] == 1
        assert cli.json("migrate", "--database", url) == {"applied": []}
        assert cli.json("runs", "--database", url) == []
    finally:
        belay_postgres_server.drop_database(name)
