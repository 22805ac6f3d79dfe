"""``belay show`` and ``belay explain``."""

import sqlite3
from pathlib import Path

from belay_core.ids import RunId
from tests.cli.commanding import Cli


def test_a_run_is_shown_with_its_attempts_approvals_and_journal(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    cli.json("approve", "r1", "--reason", "well put")
    cli.work()
    out = cli("show", "r1").out
    blocks = [block.splitlines() for block in out.split("\n\n")]
    run, attempts, approval, journal = blocks
    assert run[:3] == ["run       r1", "workflow  letter", "state     completed"]
    assert 'input     "Dear Ada"' in run
    assert 'result    "sent Dear Ada"' in run
    assert attempts[0].split() == ["STEP", "ATTEMPT", "STATE", "TOOK", "RESULT", "OR", "ERROR"]
    assert attempts[1].split()[:3] == ["editor#1", "1", "succeeded"]
    assert 'subject   "Dear Ada"' in approval
    assert "decision  approved by ana" in approval
    assert "reason    well put" in approval
    assert journal[0].split() == ["ENTRY", "AT", "EVENT", "FACTS"]
    assert [line.split()[2] for line in journal[1:]] == ["created", "asked", "suspended", "decided", "settled"]


def test_an_attempt_is_shown_with_its_error(cli: Cli):
    cli.started("broken", "no rope", run_id="r1")
    shown = cli("show", "r1").out
    assert any(line.startswith("spoil#1") and line.endswith("ValueError: no rope") for line in shown.splitlines())
    blocks = shown.split("\n\n")
    [step] = [each for each in blocks if each.startswith("traceback of spoil#1\n  Traceback (most recent call last):")]
    assert step.splitlines()[-1] == "  ValueError: no rope"
    assert "traceback of the run\n" in shown
    assert "error     StepFailed: step spoil failed: ValueError: no rope" in shown


def test_results_and_what_an_operator_said_are_shown(cli: Cli):
    cli.started("charges", ["Ada"], run_id="r1")
    cli("resolve", "r1", "--happened", "7", "--by", "bob")
    [line] = [each for each in cli("show", "r1").out.splitlines() if "charge#1  " in each]
    assert "orphaned, happened by bob" in line


def test_a_shown_run_is_a_document(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    document = cli.json("show", "r1")
    assert set(document) == {"run", "attempts", "approvals", "journal"}
    assert document["run"]["input"] == "Dear Ada"
    (attempt,) = document["attempts"]
    assert (attempt["step_key"], attempt["kind"], attempt["state"]) == ("editor#1", "gate", "waiting")
    (approval,) = document["approvals"]
    assert (approval["subject"], approval["subject_text"]) == ("Dear Ada", '"Dear Ada"')
    assert [entry["kind"] for entry in document["journal"]] == ["created", "asked", "suspended"]


def test_a_long_payload_is_cut_with_a_count_and_whole_in_json(cli: Cli):
    cli.start("greet", "x" * 5_000, run_id="r1")
    line = next(line for line in cli("show", "r1").out.splitlines() if line.startswith("input"))
    assert line == f'input     "{"x" * 1_999} .. and 3002 more characters'
    assert cli.json("show", "r1")["run"]["input"] == "x" * 5_000


def test_an_unknown_run_is_reported(cli: Cli):
    cli.json("migrate")
    for name in ("show", "explain", "approve", "reject", "cancel", "approvals"):
        ended = cli(name, "nix")
        assert (ended.code, ended.out, ended.err) == (1, "", "belay: there is no run nix\n")
        assert cli.json(name, "nix", code=1) == {
            "error": {"type": "RunNotFoundError", "message": "there is no run nix"}
        }


def test_a_run_without_a_workflow_is_shown_as_well(cli: Cli):
    cli.with_stores(lambda stores: stores.runs.create(RunId("r1"), '{"kept": true}'))
    assert cli("runs").out.splitlines()[1].split()[2:] == ["-", "r1"]
    assert cli("show", "r1").out.splitlines()[:2] == ["run      r1", "state    pending"]
    assert cli.json("show", "r1")["run"]["workflow"] is None
    assert cli.json("explain", "r1")["because"] == "it has no workflow, so no worker takes it"


def test_what_cannot_be_read_is_shown_as_it_is(cli: Cli, tmp_path: Path):
    cli.started("broken", "no rope", run_id="r1")
    with sqlite3.connect(tmp_path / "belay.db") as connection:
        connection.execute("UPDATE belay_run_values SET input = '{broken', result = '\x1b[2J'")
        connection.execute("UPDATE belay_attempts SET error = 'torn'")
    connection.close()
    ended = cli("show", "r1")
    assert ended.code == 0
    assert "{broken" in ended.out
    assert "<U+001B>[2J" in ended.out
    shown = cli.json("show", "r1")
    assert shown["run"]["input"] == {"undecodable": "{broken"}
    assert shown["attempts"][0]["error"] == {"undecodable": "torn"}


def test_an_explanation_says_why_since_when_and_what_helps(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    lines = cli("explain", "r1").out.splitlines()
    assert lines[:4] == [
        "run       r1",
        "workflow  letter",
        "state     approval",
        "because   it waits for somebody to decide at editor",
    ]
    assert lines[4].startswith("since     2")
    assert lines[5:] == ["ways out  belay approve r1 --gate editor", "          belay reject r1 --gate editor"]


def test_an_explanation_says_when_a_run_wakes(cli: Cli):
    cli.started("nap", run_id="r1")
    out = cli("explain", "r1").out
    assert "wakes     " in out
    assert "(in 2d)" in out
    document = cli.json("explain", "r1")
    assert document["state"] == "timer"
    assert document["wakes_at"] > document["since"]
    assert document["ways_out"] == ["belay cancel r1"]
