"""Opening and closing: what is given is understood, what was opened is closed."""

import asyncio
import gc
import threading
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url

from belay_core.clock import SystemClock
from belay_core.errors import DatabaseError, DatabaseUnreachable, DriverNotFound, InvalidInput, RunStoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import OwnerId
from belay_core.stores import find_migrations, open_stores
from belay_drivers.postgres import open_postgres
from belay_drivers.postgres.clock import FollowingClock
from belay_drivers.postgres.dialect import DIALECT as POSTGRES
from belay_drivers.postgres.open import migrate_postgres
from belay_drivers.sqlite import open_sqlite


def database_of(stores: Any) -> Any:
    return stores.runs._database


START = commands.Start(RunId("r"), "w", "1", "1")


def pragmas(stores, *names, engine="write"):
    async def read():
        made = getattr(database_of(stores)._engines, engine)
        return await made.run(lambda tx: [tx.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names])

    return read()


@pytest.mark.parametrize("url", [":memory:", "sqlite://", "sqlite:///:memory:", "sqlite+aiosqlite://"])
async def test_every_spelling_of_memory_opens_a_database_of_its_own(url):
    async with open_sqlite(url) as one, open_sqlite(url) as other:
        await one.runs.start(START)
        assert await one.runs.find(RunId("r")) is not None
        assert await other.runs.find(RunId("r")) is None


@pytest.mark.parametrize("spelled", ["{path}", "sqlite:///{path}", "sqlite+aiosqlite:///{path}"])
async def test_every_spelling_of_a_file_opens_the_file(tmp_path, spelled):
    path = tmp_path / "a file?.db" if spelled == "{path}" else tmp_path / "belay.db"
    async with open_sqlite(spelled.format(path=path)) as stores:
        await stores.runs.start(START)
    assert path.exists()
    async with open_sqlite(path) as stores:
        assert await stores.runs.find(RunId("r")) is not None


async def test_a_relative_url_names_a_file_beside_the_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_sqlite("sqlite:///here.db"):
        assert (tmp_path / "here.db").exists()


@pytest.mark.parametrize(
    "url", ["sqlite://here.db", "sqlite://folder/here.db", "sqlite+aiosqlite://here.db", "sqlite:here.db"]
)
async def test_a_url_that_names_a_host_is_refused_with_the_right_spelling(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="path_or_url: a URL of SQLite names no host: write sqlite:///relative"):
        async with open_sqlite(url):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_a_url_with_parameters_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="path_or_url: a URL of SQLite takes no parameters"):
        async with open_sqlite(f"sqlite:///{tmp_path}/here.db?mode=ro"):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_the_log_of_a_large_write_is_given_back(tmp_path):
    log, size = tmp_path / "belay.db-wal", 24 * 2**20
    async with open_sqlite(tmp_path / "belay.db") as stores:
        await stores.runs.start(replace(START, input=f'"{"x" * size}"'))
        assert log.stat().st_size > size
        await stores.runs.start(replace(START, run_id=RunId("next")))
        assert log.stat().st_size <= 16 * 2**20


async def test_drivers_are_found_by_the_scheme_of_the_url(belay_postgres):
    async with open_stores("sqlite://") as stores:
        await stores.runs.start(START)
    for url in (belay_postgres.url, belay_postgres.url.replace("postgresql", "postgresql+asyncpg")):
        async with open_stores(url) as stores:
            await stores.runs.start(START)
    for url in ("mysql://user:secret@host/db",):
        for find in (open_stores, find_migrations):
            with pytest.raises(DriverNotFound, match="installed: postgresql, sqlite") as failure:
                find(url)
            assert "secret" not in str(failure.value)


async def test_a_file_is_kept_as_durably_as_sqlite_can(tmp_path):
    async with open_sqlite(tmp_path / "belay.db") as stores:
        for engine in ("write", "read"):
            names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            assert await pragmas(stores, *names, engine=engine) == ["wal", 2, 1, 5_000]


async def test_memory_checks_foreign_keys_too():
    async with open_sqlite(":memory:") as stores:
        assert await pragmas(stores, "foreign_keys") == [1]


async def test_postgres_sessions_say_who_they_are_and_cannot_hang(belay_postgres):
    wanted = {
        "application_name": "belay",
        "jit": "off",
        "statement_timeout": "5s",
        "idle_in_transaction_session_timeout": "1min",
        "default_transaction_isolation": "read committed",
    }
    async with open_postgres(belay_postgres.url) as stores:

        def read(tx):
            return {name: tx.exec_driver_sql(f"SHOW {name}").scalar_one() for name in wanted}

        assert await database_of(stores).read(read) == wanted
        assert await database_of(stores).write(read) == wanted


async def test_nothing_is_left_open_when_the_block_is_left(belay_each_store):
    before = set(threading.enumerate())
    async with belay_each_store as stores:
        await asyncio.gather(*(stores.runs.find(RunId("r")) for _ in range(20)))
        await stores.runs.start(START)
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(2)
        assert not thread.is_alive(), thread


async def test_what_goes_wrong_in_the_block_goes_on(belay_each_store):
    with pytest.raises(KeyError):
        async with belay_each_store:
            raise KeyError
    assert belay_each_store._open == []


@pytest.mark.parametrize("path", ["/nowhere/belay.db", "sqlite:////nowhere/belay.db"])
async def test_a_file_that_cannot_be_opened_is_reported_in_one_error(path):
    with pytest.raises(DatabaseUnreachable, match=r"SQLite file /nowhere/belay\.db: it cannot be opened"):
        async with open_sqlite(path):
            pass


async def test_a_server_that_is_not_there_is_reported_in_one_error_without_the_password():
    with pytest.raises(DatabaseUnreachable, match="nothing accepts connections there") as failure:
        async with open_postgres("postgresql://user:secret@127.0.0.1:1/db"):
            pass
    assert "secret" not in repr(failure.value) + repr(failure.value.__cause__) + repr(failure.value.__context__)


async def test_without_a_clock_the_stores_follow_the_databases(belay_postgres):
    async with open_postgres(belay_postgres.url) as stores:
        await stores.runs.start(START)
        [acquired] = await stores.runs.acquire(commands.Acquire(OwnerId("h", 1, "n"), ("w",), 1))
        await stores.runs.renew(commands.Renew((acquired.lease,)))
        assert abs(stores.clock.now() - SystemClock().now()) < 2_000
        assert isinstance(stores.clock, FollowingClock)
        assert stores.clock.settled()


@pytest.mark.parametrize("pooler", ["session", "statement", "TRANSACTION", "True"])
async def test_a_pooler_is_one_by_transaction(belay_postgres, pooler):
    with pytest.raises(InvalidInput, match="pooler: must be 'transaction'"):
        async with open_stores(f"{belay_postgres.url}?pooler={pooler}"):
            pass
    with pytest.raises(InvalidInput, match="pooler"):
        async with open_postgres(belay_postgres.url, pooler=pooler):
            pass


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("?sslmode=require&sslmode=disable", "url"),
        ("?sslmode=hunter2", "sslmode"),
        ("?application_name=hunter2", "url"),
        ("?statement_cache_size=100&pooler=transaction", "url"),
        ("?pooler=transaction&pooler=transaction", "url"),
    ],
)
async def test_what_a_url_says_twice_or_nobody_understands_is_refused_before_anybody_connects(query, parameter):
    with pytest.raises(InvalidInput, match=f"^{parameter}: ") as refused:
        async with open_stores(f"postgresql://tester@127.0.0.1:1/db{query}"):
            pass
    assert "hunter2" not in str(refused.value)


async def test_a_url_that_is_none_is_refused_without_repeating_it():
    with pytest.raises(InvalidInput, match=r"^url: must be postgresql://") as refused:
        async with open_stores("postgresql://tester@127.0.0.1:hunter2/db"):
            pass
    assert refused.value.__context__ is None


async def test_for_a_pooler_by_transaction_nothing_is_kept_in_a_session(belay_postgres):
    async with open_stores(f"{belay_postgres.url}?pooler=transaction") as stores:
        await stores.runs.start(START)
        [acquired] = await stores.runs.acquire(commands.Acquire(OwnerId("h", 1, "n"), ("w",), 1))
        await stores.runs.renew(commands.Renew((acquired.lease,)))

        def look(tx):
            prepared = tx.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''").scalar_one()
            kept = tx.exec_driver_sql(
                "SELECT count(*) FROM pg_settings WHERE source = 'client' AND name IN "
                "('statement_timeout', 'jit', 'application_name')"
            ).scalar_one()
            return prepared, kept, tx.exec_driver_sql("SHOW statement_timeout").scalar_one()

        assert await database_of(stores).read(look) == (0, 0, "5s")


async def test_a_database_of_another_encoding_is_refused(belay_postgres_server, belay_postgres_names):
    name = next(belay_postgres_names)
    connection = await asyncpg.connect(belay_postgres_server.database_url("postgres").replace("+asyncpg", ""))
    await connection.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    await connection.close()
    url = belay_postgres_server.database_url(name)
    words = "url: its database has the encoding LATIN1; create one WITH ENCODING 'UTF8'"
    with pytest.raises(InvalidInput, match=words):
        await migrate_postgres(url)
    with pytest.raises(InvalidInput, match=words):
        async with open_postgres(url):
            pass
    belay_postgres_server.drop_database(name)


@pytest.mark.parametrize(
    ("sqlstate", "code"),
    [
        ("22001", "content"), ("22P05", "content"), ("22021", "content"), ("42804", "content"), ("54000", "content"),
        ("42501", "unknown"), ("42P01", "unknown"), ("42703", "unknown"), ("3F000", "unknown"), ("23505", "constraint"),
        ("53300", "busy"), ("08006", "io"),
    ],
)  # fmt: skip
def test_a_value_that_is_refused_is_told_from_what_a_grant_or_a_migration_mends(sqlstate, code):
    error: Any = asyncpg.PostgresError()
    error.sqlstate = sqlstate
    failure: Any = POSTGRES.explain(error)
    assert (failure.code, failure.sqlstate) == (code, sqlstate)


async def unreachable(url: str) -> str:
    with pytest.raises(DatabaseUnreachable) as refused:
        async with open_stores(url):
            pass
    with pytest.raises(DatabaseUnreachable) as again:
        await find_migrations(url).check(url)
    assert str(again.value) == str(refused.value)
    assert isinstance(refused.value.__cause__, DatabaseError)
    assert "hunter2" not in str(refused.value)
    return str(refused.value)


async def test_a_database_that_cannot_be_connected_to_is_named_with_the_reason(belay_postgres_server):
    real = make_url(belay_postgres_server.database_url("postgres").replace("+asyncpg", ""))
    where = f"{real.host}:{real.port}"
    missing = real.set(database="nowhere").render_as_string(hide_password=False)
    name = "PostgreSQL database nowhere at"
    assert await unreachable(missing) == f"{name} {where}: the database does not exist (3D000)"
    tls = f"postgresql://eve:hunter2@{where}/nowhere?sslmode=require"
    assert await unreachable(tls) == f"{name} {where}: the server refuses TLS"
    for host, why in [
        ("127.0.0.1:1", "nothing accepts connections there"),
        ("nowhere.invalid:5", "there is no such host"),
    ]:
        assert await unreachable(f"postgresql://eve:hunter2@{host}/nowhere") == f"{name} {host}: {why}"


async def test_a_file_that_cannot_be_used_is_named_with_its_path(tmp_path):
    folder = tmp_path / "folder.db"
    folder.mkdir()
    torn = tmp_path / "torn.db"
    torn.write_bytes(b"no database at all" * 100)
    for path in (folder, torn):
        with pytest.raises(DatabaseUnreachable, match=f"SQLite file {path}: it cannot be opened, read or written"):
            async with open_stores(f"sqlite:///{path}"):
                pass


@pytest.mark.parametrize(("url", "what"), [(None, "nothing"), (5, "something else"), ("belay.db", "something else")])
def test_what_is_no_url_is_refused_with_an_example(url, what):
    for opens in (open_stores, find_migrations):
        with pytest.raises(InvalidInput, match=f"url: must be a URL, such as sqlite:///belay.db .*; {what} was given"):
            opens(url)


async def test_postgres_is_read_as_postgresql(belay_postgres):
    async with belay_postgres as stores:
        await stores.runs.start(START)
    async with open_stores(
        belay_postgres.url.replace("postgresql+asyncpg", "postgres").replace("postgresql", "postgres")
    ) as stores:
        assert await stores.runs.find(RunId("r")) is not None


async def test_sessions_of_a_server_that_takes_no_writes_are_dropped(belay_postgres):
    """The pool was filled while the database was read-only; its sessions stay so, new ones are not."""
    url = belay_postgres.url
    plain = url.replace("+asyncpg", "")
    name = make_url(url).database

    async def alter(what: str) -> None:
        connection = await asyncpg.connect(plain, server_settings={"default_transaction_read_only": "off"})
        await connection.execute(f'ALTER DATABASE "{name}" {what}')
        await connection.close()

    async with belay_postgres as stores:
        await stores.runs.start(START)
    await alter("SET default_transaction_read_only = on")
    async with open_postgres(url) as stores:
        await asyncio.gather(*(stores.runs.find(RunId("r")) for _ in range(20)))
        with pytest.raises(RunStoreError):
            await stores.runs.start(replace(START, run_id=RunId("s")))
        await alter("RESET default_transaction_read_only")
        for number in range(30):
            await stores.runs.start(replace(START, run_id=RunId(f"r{number}")))
        assert await stores.runs.find(RunId("r29")) is not None
