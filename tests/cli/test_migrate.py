"""``belay migrate``."""

import sqlite3
from pathlib import Path

import pytest

from belay_core.stores import find_migrations
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


def test_the_script_may_begin_above_an_id(cli: Cli):
    assert cli("migrate", "--sql", "--since", "0").out == cli("migrate", "--sql").out
    shortened = cli.json("migrate", "--sql", "--since", "1")["sql"]
    assert shortened == find_migrations(cli.url).sql(1)
    assert "CREATE TABLE belay_runs" not in shortened


def test_looking_changes_nothing_and_says_by_its_code_what_it_saw(cli: Cli, tmp_path: Path):
    ended = cli("migrate", "--check")
    assert (ended.code, ended.err) == (2, f"belay: database: there is no file {tmp_path / 'belay.db'}\n")
    assert not (tmp_path / "belay.db").exists()
    (tmp_path / "belay.db").touch()
    ended = cli("migrate", "--check")
    assert (ended.code, ended.err) == (1, "belay: the database has no belay schema; run `belay migrate`\n")
    assert tables(tmp_path / "belay.db") == set()
    cli("migrate")
    assert cli("migrate", "--check").out == "the schema is up to date\n"
    assert cli.json("migrate", "--check") == {"applied": []}


def test_roles_are_printed_for_postgresql_without_asking_it(cli: Cli):
    url = "postgresql://u:sesame@127.0.0.1:1/x"
    script = cli("migrate", "--roles", "--database", url).out
    assert script == find_migrations(url).roles()
    assert cli.json("migrate", "--roles", "--database", url) == {"sql": script}
    ended = cli("migrate", "--roles")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "belay: roles: are for PostgreSQL; a SQLite file has none\n"


@pytest.mark.parametrize(
    ("typed", "reported"),
    [
        (("--sql", "--check"), "only one of --sql, --check and --roles can be given"),
        (("--roles", "--check"), "only one of --sql, --check and --roles can be given"),
        (("--since", "1"), "--since belongs to --sql"),
    ],
)
def test_options_that_contradict_each_other_are_refused(cli: Cli, typed: tuple[str, ...], reported: str):
    ended = cli("migrate", *typed)
    assert (ended.code, ended.out, ended.err) == (2, "", f"belay: {reported}\n")


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
