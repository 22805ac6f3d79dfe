"""What cannot be done is told in one line, about a parameter and its rule, and never with a password in it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commanding import Cli, command, shell

URL = "must be a URL, such as sqlite:///belay.db or postgresql://host/name"
NO_HOST = "a URL of SQLite names no host: write sqlite:///relative.db (three slashes) or "
KEPT = "must be kept: one in memory ends with this command; name a file, sqlite:///belay.db"
QUOTES = "must be valid JSON text; a text is written with its quotes: '\"like this\"'"

TWO_FIELDS = (
    "workflow order: item: Input should be a valid string; "
    "amount: Input should be a valid integer, unable to parse string as an integer"
)

NO_WORKFLOW = "definitions: int is no workflow; give what @workflow made, a subclass of Workflow, or an instance of one"

WRONG: list[tuple[list[str], str, str]] = [
    (["start", "nix"], "workflow", "shop:app has none of this name; it has broken, charges, chatty, contract, greet, "),
    (["start", "greet"], "input", "must be given: workflow greet takes str"),
    (["start", "greet", "5"], "input", "workflow greet: a value of type int is not str"),
    (["start", "greet", "Ada"], "input", QUOTES),
    (["start", "greet", '{"a":1,"a":2}'], "input", "contains the same object key twice"),
    (["start", "greet", "1e999"], "input", "contains a non-finite number"),
    (["start", "ping", "1"], "input", "workflow ping takes none"),
    (["start", "order", '{"item":"rope"}'], "input", "workflow order: amount: Field required"),
    (
        ["start", "order", '{"item":1,"amount":"x"}'],
        "input",
        TWO_FIELDS,
    ),
    (["start", "order", '{"item":"rope","item":"axe","amount":1}'], "input", "contains the same object key twice"),
    (["start", "order"], "input", "must be given: workflow order takes Order"),
    (["start", "greet", "@nowhere.json"], "input", "the file cannot be read: No such file or directory"),
    (["start", "ping", "--at", "tomorrow"], "at", "must be a moment by ISO 8601, such as 2031-01-31T09:00:00+01:00"),
    (
        ["start", "ping", "--at", "2031-01-31T09:00:00"],
        "at",
        "must say its time zone: +01:00 or Z in text, tzinfo in code",
    ),
    (["start", "ping", "--at", "1931-01-31T09:00:00Z"], "at", "must not be before 1970"),
    (["start", "ping", "--key", ""], "key", "must be 1 to 512 bytes of well-formed text without NUL"),
    (["start", "ping", "--run-id", ""], "run-id", "must be 1 to 512 bytes of well-formed text without NUL"),
    (["start", "ping", "--priority", "high"], "priority", "'high' is not a valid integer"),
    (["start", "ping", "--priority", "99999999999"], "priority", "must be a whole number of 32 bits"),
    (["start", "ping", "--app", "shop"], "app", "must be MODULE:ATTRIBUTE, such as shop.flows:workflows"),
    (["start", "ping", "--app", "shop:"], "app", "must be MODULE:ATTRIBUTE, such as shop.flows:workflows"),
    (["start", "ping", "--app", "./shop:app"], "app", "must be MODULE:ATTRIBUTE, such as shop.flows:workflows"),
    (["start", "ping", "--app", "nowhere:app"], "app", "there is no module nowhere here or on the module path"),
    (["start", "ping", "--app", "shop.py:app"], "app", "there is no module shop.py here or on the module path"),
    (["start", "ping", "--app", "shop:gone"], "app", "module shop has no attribute gone"),
    (["start", "ping", "--app", "shop:nothing"], "app", "shop:nothing holds no workflow"),
    (
        ["start", "ping", "--app", "shop:number"],
        "app",
        f"shop:number: {NO_WORKFLOW}",
    ),
    (["start", "ping", "--app", "shop:twice"], "app", "shop:twice: workflow greet: registered twice"),
    (
        ["start", "ping", "--app", "needy_app:app"],
        "app",
        "importing needy_app failed: ModuleNotFoundError: No module named 'a_package_nobody_has' (",
    ),
    (
        ["start", "ping", "--app", "broken_app:app"],
        "app",
        "importing broken_app failed: NameError: name 'undefined_workflow' is not defined (",
    ),
    (["worker", "--concurrency", "0"], "concurrency", "must be a whole number from 1 to 100000"),
    (["worker", "--grace", "-1"], "grace", "must be from 0 to 86400 seconds"),
    (["worker", "--grace", "nan"], "grace", "must be from 0 to 86400 seconds"),
    (["runs", "--status", "stuck"], "status", "must be one of pending, running, suspended, completed, failed, "),
    (["runs", "--limit", "0"], "limit", "must be a whole number from 1 to 1000"),
    (["runs", "--limit", "many"], "limit", "'many' is not a valid integer"),
    (["approvals", "--limit", "0"], "limit", "must be a whole number from 1 to 1000"),
    (["show"], "run", "must be given"),
    (["show", ""], "run", "must be 1 to 1024 units of well-formed text without NUL"),
    (["resolve", "r"], "resolution", "must be exactly one of --happened JSON, --retry and --give-up"),
    (["resolve", "r", "--retry", "--give-up"], "resolution", "must be exactly one of --happened JSON, --retry and "),
    (["resolve", "r", "--happened", "yes"], "happened", QUOTES),
    (["approve", "r", "--edit", "better"], "edit", QUOTES),
    (["approve", "r", "--edit", '{"a":1,"a":2}'], "edit", "contains the same object key twice"),
    (["approve", "r", "--edit", "9007199254740992"], "edit", "a value of type int contains an integer beyond 2^53 - 1"),
    (["runs", "--database", "belay.db"], "database", URL),
    (["runs", "--database", "mysql://eve:hunter2@h/b"], "database", "no driver is installed for this scheme; "),
    (["migrate", "--database", "mysql://eve:hunter2@h/b"], "database", "no driver is installed for this scheme; "),
    (["start", "ping", "--database", "sqlite://belay.db"], "database", NO_HOST),
    (["runs", "--database", "sqlite://belay.db"], "database", NO_HOST),
    (["migrate", "--database", "sqlite://belay.db"], "database", NO_HOST),
    (["start", "ping", "--database", "sqlite://"], "database", KEPT),
    (["start", "ping", "--database", "sqlite:///:memory:"], "database", KEPT),
    (["worker", "--database", "sqlite://"], "database", KEPT),
    (["migrate", "--database", "sqlite://"], "database", KEPT),
    (["runs", "--database", "sqlite:///nowhere.db"], "database", "there is no file nowhere.db"),
]


@pytest.mark.parametrize(("arguments", "parameter", "rule"), WRONG, ids=[" ".join(wrong[0]) for wrong in WRONG])
def test_a_wrong_parameter_is_named_with_its_rule(cli: Cli, arguments: list[str], parameter: str, rule: str):
    cli.json("migrate")
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(f"belay: {parameter}: {rule}")
    if not rule.endswith((" ", " (", "of")):
        assert ended.err == f"belay: {parameter}: {rule}\n"
    reported = cli.json(*arguments, code=2)["error"]
    assert reported["parameter"] == parameter
    assert reported["rule"].startswith(rule)
    assert set(reported) == {"type", "parameter", "rule"}


USAGE: list[tuple[list[str], str]] = [
    (["fly"], "no such command 'fly'"),
    (["runs", "--fast"], "no such option"),
    (["runs", "extra"], "got unexpected extra argument (extra)"),
    (["show", "r", "--database"], "option '--database' requires an argument"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_what_is_not_understood_is_reported_in_one_line(cli: Cli, arguments: list[str], message: str):
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"belay: {message}")
    assert ended.err.count("\n") == 1
    if arguments[-1] != "--database":
        assert cli.json(*arguments, code=2)["error"]["message"].startswith(message)


def test_a_database_has_to_be_named(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BELAY_DATABASE")
    rule = "must be given, by --database URL or BELAY_DATABASE"
    assert cli("runs").err == f"belay: database: {rule}\n"
    assert cli.json("runs", code=2) == {"error": {"type": "InvalidInput", "parameter": "database", "rule": rule}}


def test_an_app_has_to_be_named(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BELAY_APP")
    for name in (["worker"], ["start", "ping"]):
        assert cli(*name).err == "belay: app: must be given, by --app MODULE:ATTRIBUTE or BELAY_APP\n"


def test_what_a_shell_cannot_spell_is_refused():
    ended = shell("runs", "--workflow", os.fsdecode(b"\xff"))
    assert (ended.code, ended.err) == (2, "belay: argument 3: must be well-formed text\n")


def test_a_file_that_is_not_there_is_not_made_by_looking(cli: Cli, tmp_path: Path):
    for name in (["runs"], ["show", "r"], ["approvals"], ["cancel", "r"], ["explain", "r"], ["approve", "r"]):
        assert cli(*name).code == 2
    assert list(tmp_path.iterdir()) == []


UNREACHABLE = [
    "postgresql://eve:hunter2@127.0.0.1:1/belay",
    "postgresql://eve:hunter2@no-such-host.invalid/belay",
    "postgresql://eve:hunter2@127.0.0.1:port/belay",
    "postgresql://eve:hunter2@[::1/belay",
    "postgresql+hunter2://eve:hunter2@127.0.0.1:1/belay",
    "postgresql://eve:hunter2@127.0.0.1:1/belay?sslmode=hunter2",
    "postgresql://eve:hunter2@127.0.0.1:1/belay?nonsense=hunter2",
]


@pytest.mark.parametrize("url", UNREACHABLE)
@pytest.mark.parametrize("name", [["runs"], ["migrate"]], ids=["runs", "migrate"])
def test_a_database_that_cannot_be_opened_is_reported_without_its_password(cli: Cli, url: str, name: list[str]):
    ended = cli(*name, "--database", url)
    assert ended.code in (1, 2)
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("belay: ")
    assert "hunter2" not in ended.err
    assert "hunter2" not in json.dumps(cli.json(*name, "--database", url, code=ended.code))


def test_a_database_that_is_not_there_is_refused_not_misused(cli: Cli):
    ended = cli("runs", "--database", "postgresql://eve:hunter2@127.0.0.1:1/belay")
    assert ended.code == 1
    assert ended.err.startswith("belay: the database cannot be ")


def test_a_folder_is_no_database(cli: Cli, tmp_path: Path):
    ended = cli("runs", "--database", f"sqlite:///{tmp_path}")
    assert ended.code == 1
    assert ended.err.startswith("belay: the database cannot be opened: ")
    assert ended.err.count("\n") == 1


def test_a_file_of_another_program_is_refused(cli: Cli, tmp_path: Path):
    file = tmp_path / "letter.txt"
    file.write_text("Dear Ada, this is no database. " * 100)
    ended = cli("runs", "--database", f"sqlite:///{file}")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert ended.err.startswith("belay: the database cannot be opened: ")


def test_a_defect_shows_its_traceback_harmlessly(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    async def fail(*_: Any, **__: Any) -> None:
        raise KeyError("\x1b[2J\nstored")

    cli.json("migrate")
    monkeypatch.setattr("belay_core.client.client.Client.list", fail)
    ended = cli("runs")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("Traceback (most recent call last):\n")
    assert "\x1b" not in ended.err
    reported = cli("runs", "--json")
    assert json.loads(reported.out)["error"]["type"] == "KeyError"


def test_an_interrupted_command_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    async def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    cli.json("migrate")
    monkeypatch.setattr("belay_core.client.client.Client.list", interrupt)
    ended = cli("runs")
    assert (ended.code, ended.err.strip()) == (130, "belay: interrupted")


def test_a_reader_that_goes_away_is_no_error(cli: Cli):
    cli.start("ping")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command("runs"), stdout=write, stderr=subprocess.PIPE, check=False, timeout=30)
    os.close(write)
    assert b"Traceback" not in done.stderr
