"""``belay migrate``."""

import sqlite3
from pathlib import Path

from tests.cli.commanding import Cli


def tables(file: Path) -> set[str]:
    with sqlite3.connect(file) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    return names


def test_a_new_file_is_given_its_schema_once(cli: Cli, tmp_path: Path):
    ended = cli("migrate")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("applied 0001 ")
    assert "belay_runs" in tables(tmp_path / "belay.db")
    assert cli("migrate").out == "the schema is up to date\n"
    assert cli.json("migrate") == {"applied": []}


def test_what_was_applied_is_a_document(cli: Cli):
    first = cli.json("migrate")["applied"][0]
    assert first["id"] == 1
    assert isinstance(first["name"], str)


def test_the_script_changes_nothing_and_makes_the_same_schema(cli: Cli, tmp_path: Path):
    script = cli("migrate", "--sql").out
    assert not (tmp_path / "belay.db").exists()
    assert cli.json("migrate", "--sql")["sql"].rstrip() == script.rstrip()
    with sqlite3.connect(tmp_path / "belay.db") as connection:
        connection.executescript(script)
    connection.close()
    assert cli.json("migrate") == {"applied": []}
    assert cli.json("runs") == []


def test_an_older_schema_names_the_command_to_run(cli: Cli, tmp_path: Path):
    with sqlite3.connect(tmp_path / "belay.db") as connection:
        connection.execute("CREATE TABLE somebody_elses (id INTEGER)")
    connection.close()
    for name in (["runs"], ["start", "ping"], ["worker"]):
        ended = cli(*name)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == "belay: the database has no belay schema; run `belay migrate`\n"
    assert cli.json("runs", code=1)["error"]["type"] == "SchemaMismatch"
    assert cli.json("migrate")["applied"]
    assert cli.json("runs") == []
