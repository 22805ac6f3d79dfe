"""What the command refuses, and how it says so; and what it does where nobody looks on."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from belay_testing.postgres_server import PostgresServer
from tests.examples.invoices.demo_runs import cli, demo, large, small, with_client, write


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of whoever runs the tests, and no folder left behind elsewhere."""
    for name in ("BELAY_DATABASE", "BELAY_APPROVER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "made").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "made"))


def made(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "made").iterdir())


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and the one line that says why."""
    code = cli("demo", *arguments)
    out, err = capsys.readouterr()
    *_, last = err.splitlines()
    assert "Traceback" not in err
    assert out == "" or out.startswith("everything is in ")
    return code, last


def test_an_inbox_must_be_a_folder_with_documents(tmp_path: Path, capsys):
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    (tmp_path / "empty" / ".hidden").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    none = (2, "belay: inbox: there is no document in this folder")
    assert refused(capsys, "--inbox", str(tmp_path / "empty")) == none
    missing = (2, "belay: inbox: the folder cannot be read: No such file or directory")
    assert refused(capsys, "--inbox", str(tmp_path / "nowhere")) == missing
    wrong = (2, "belay: inbox: the folder cannot be read: Not a directory")
    assert refused(capsys, "--inbox", str(tmp_path / "file")) == wrong
    assert made(tmp_path) == []


def test_a_database_must_be_one_that_can_be_used(tmp_path: Path, capsys):
    inbox = ("--inbox", str(write(tmp_path / "in", [small(1)])))
    code, line = refused(capsys, *inbox, "--database", "belay.db")
    assert (code, line.startswith("belay: database: must be a URL")) == (2, True)
    code, line = refused(capsys, *inbox, "--database", "mysql://somewhere")
    assert (code, line.startswith("belay: database: no driver is installed for this scheme")) == (2, True)
    code, line = refused(capsys, *inbox, "--database", "sqlite:///:memory:", "--kill")
    assert (code, line) == (2, "belay: database: with --kill it must be one that several processes can open")
    code, line = refused(capsys, *inbox, "--database", "postgresql://u:secret@127.0.0.1:1/x")
    assert (code, line.startswith("belay: the database cannot be ")) == (1, True)
    assert "secret" not in line
    code, line = refused(capsys, *inbox, "--database", f"sqlite:///{tmp_path}/no/folder.db")
    assert (code, line.startswith("belay: the database cannot be ")) == (1, True)
    assert made(tmp_path) == []


def test_another_schema_is_refused_and_left_as_it_is(tmp_path: Path, capsys):
    inbox = ("--inbox", str(write(tmp_path / "in", [small(1)])))
    url = f"sqlite:///{tmp_path}/old.db"
    assert cli("migrate", "--database", url) == 0
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute("UPDATE belay_migrations SET migration_id = 77 WHERE migration_id = 1")
    capsys.readouterr()
    code, line = refused(capsys, *inbox, "--database", url)
    assert code == 1, line
    assert line.startswith("belay: migration 1 is not applied, but 77 is"), line
    assert made(tmp_path) == []


def test_errors_are_one_json_object_too(capsys):
    assert cli("demo", "--json", "--inbox", "/nowhere") == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["error"]["parameter"] == "inbox"
    assert cli("demo", "--json", "--approve", "maybe") == 2
    assert json.loads(capsys.readouterr().out)["error"]["parameter"] == "approve"


def test_the_same_database_takes_further_demos(tmp_path: Path, capsys):
    inbox = ("--inbox", str(write(tmp_path / "in", [small(1), large(2), b"junk"])))
    url = ("--database", f"sqlite:///{tmp_path}/belay.db")
    for approve, completed in (("none", 1), ("all", 2)):
        assert cli("demo", *inbox, *url, "--approve", approve, "--json", "--step-ms", "0") == 0
        out, err = capsys.readouterr()
        figures = json.loads(out)
        assert figures.pop("seconds") > 0
        assert figures == {
            "runs": 3,
            "completed": completed,
            "stopped": 3 - completed,
            "posted": completed,
            "posted_twice": 0,
            "kills": 0,
            "resumed": 0,
        }
        assert err.startswith(f"everything is in {tmp_path}/made/belay-demo-")
    assert len(made(tmp_path)) == 2


def test_the_database_that_somebody_works_with_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BELAY_DATABASE", f"sqlite:///{tmp_path}/work.db")
    assert cli("demo", "--inbox", str(write(tmp_path / "in", [small(1)])), "--step-ms", "0") == 0
    assert not (tmp_path / "work.db").exists()


def test_a_file_of_somebody_elses_gets_no_tables(tmp_path: Path, capsys):
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as file:
        file.execute("CREATE TABLE theirs (x)")
    inbox = ("--inbox", str(write(tmp_path / "in", [small(1)])))
    assert cli("demo", *inbox, "--database", f"sqlite:///{tmp_path}/theirs.db", "--step-ms", "0") == 1
    assert "run `belay migrate`" in capsys.readouterr().err
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as file:
        assert file.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_a_demo_in_memory_leaves_a_ledger(tmp_path: Path, capsys):
    inbox = ("--inbox", str(write(tmp_path / "in", [small(1)])))
    assert cli("demo", *inbox, "--database", "sqlite:///:memory:", "--step-ms", "0") == 0
    assert "1 run: 1 completed, 0 stopped" in capsys.readouterr().out


def test_a_password_is_not_shown_and_the_commands_still_hold(
    tmp_path: Path, belay_postgres_server: PostgresServer, belay_postgres_names
):
    inbox = write(tmp_path / "in", [large(1)])
    url = belay_postgres_server.create_database(next(belay_postgres_names)).replace("belay@", "belay:sesame@")
    ended = demo("--inbox", str(inbox), "--database", url)
    assert ended.code == 0, ended
    assert "sesame" not in ended.out + ended.err
    assert "expect BELAY_DATABASE to hold the database's URL" in ended.out
    (approve,) = ended.commands("approve")
    assert cli(*approve, "--by", "ana", "--database", url) == 0
    again = demo("--inbox", str(inbox), "--approve", "all", "--json", "--database", url)
    assert (again.figures["runs"], again.figures["completed"]) == (1, 1)
    # Its workers went on with the run that was decided in between as well.
    assert [run.status for run in with_client(url, lambda client: client.list())] == ["completed", "completed"]
