"""What is known not to have happened is sent again, so often and no oftener."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from belay_core import Client, Context, workflow
from belay_core.errors import DatabaseUnreachable, RunStoreError, StoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.stores.attempts import Recorded
from belay_core.stores.runs import Started
from belay_drivers.sql.connection.database import ATTEMPTS
from belay_drivers.sqlite import open_sqlite
from belay_testing.jitter import FixedJitter


def cause_of(failure: pytest.ExceptionInfo[StoreError]) -> Any:
    assert failure.value.cause is not None
    return failure.value.cause["cause"]


def database_of(stores: Any) -> Any:
    return stores.runs._database


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Pauses between two sendings are short in these tests."""
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.001)


class Stubborn:
    """A trigger's worth of trouble: the first sendings fail as told, then all is well."""

    def __init__(self, stores, times, statement):
        self.left, self.sent = times, 0
        self.statement = statement
        database = database_of(stores)
        self._channel = stores.runs._parts.group_commit._channel
        self._transaction, database._transaction = database._transaction, self.transaction
        self._straight, database._send_whole = database._send_whole, self.straight

    async def transaction(self, engine, body):
        def failing(tx):
            tx.exec_driver_sql(self.statement)
            return body(tx)

        return await self._transaction(engine, failing if self.fails() else body)

    async def straight(self, send):
        return await self._straight((lambda: self._channel.ask(self.statement, ())) if self.fails() else send)

    def fails(self):
        self.sent += 1
        self.left -= 1
        return self.left >= 0


def raising(sqlstate):
    return f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{sqlstate}'; END $$"


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "53300"])
async def test_what_postgres_asks_to_be_tried_again_is(belay_postgres, make_kit, sqlstate):
    async with belay_postgres as stores:
        trouble = Stubborn(stores, 3, raising(sqlstate))
        assert await make_kit(stores).start() == Started(RunId("run-1"))
        assert trouble.sent == 4


@pytest.mark.parametrize("sqlstate", ["23505", "42P01", "22001", "57014", "P0001", "XX000"])
async def test_what_would_fail_again_is_not_tried_again(belay_postgres, make_kit, sqlstate):
    async with belay_postgres as stores:
        trouble = Stubborn(stores, 3, raising(sqlstate))
        with pytest.raises(StoreError) as failure:
            await make_kit(stores).start()
        assert (trouble.sent, cause_of(failure).sqlstate) == (1, sqlstate)


async def test_ten_sendings_are_enough(belay_postgres, make_kit):
    async with belay_postgres as stores:
        trouble = Stubborn(stores, 99, raising("40001"))
        with pytest.raises(StoreError) as failure:
            await make_kit(stores).start()
        assert trouble.sent == ATTEMPTS
        assert failure.value.code == "persistence_failed"
        assert cause_of(failure).code == "busy"


async def test_a_caller_who_left_is_not_tried_for_again(belay_postgres, make_kit, monkeypatch):
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.2)
    async with belay_postgres as stores:
        trouble = Stubborn(stores, 99, raising("40001"))
        task = asyncio.ensure_future(make_kit(stores).start())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert trouble.sent <= 2


async def test_a_deadlock_costs_one_of_both_a_second_try_and_nobody_an_answer(belay_postgres, make_kit):
    async with belay_postgres as one, belay_postgres as other:
        kit = make_kit(one)
        await kit.start("a")
        await kit.start("b")

        def crossing(first, second):
            def body(tx):
                for run_id in (first, second):
                    tx.exec_driver_sql(f"SELECT 1 FROM belay_runs WHERE run_id = '{run_id}' FOR UPDATE")  # noqa: S608
                    tx.exec_driver_sql("SELECT pg_sleep(0.2)")
                return first

            return body

        answers = await asyncio.gather(
            database_of(one).write(crossing("a", "b")), database_of(other).write(crossing("b", "a"))
        )
        assert list(answers) == ["a", "b"]


async def test_a_file_another_process_writes_to_is_waited_for(tmp_path, make_kit, monkeypatch):
    monkeypatch.setattr("belay_drivers.sqlite.open.BUSY_TIMEOUT", 0.05)
    path = tmp_path / "belay.db"
    async with open_sqlite(path) as stores:
        kit = make_kit(stores)
        lease = await kit.own()
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            task = asyncio.ensure_future(kit.record(lease, kit.step()))
            await asyncio.sleep(0.3)
            assert not task.done()
            # Readers are not held up by a writer.
            assert (await kit.run()).run_id == "run-1"
            rival.execute("COMMIT")
        assert await task == Recorded(None, None)


async def test_a_file_that_stays_locked_is_an_error_of_its_own_kind(tmp_path, make_kit, monkeypatch):
    monkeypatch.setattr("belay_drivers.sqlite.open.BUSY_TIMEOUT", 0.01)
    path = tmp_path / "belay.db"
    async with open_sqlite(path) as stores:
        kit = make_kit(stores)
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as failure:
                await kit.start()
        assert cause_of(failure).code == "busy"
        assert await kit.start() == Started(RunId("run-1"))


async def test_opening_a_file_that_is_being_opened_waits_its_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("belay_drivers.sqlite.open.BUSY_TIMEOUT", 0.01)
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.05)
    path = tmp_path / "belay.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as rival:
        rival.execute("BEGIN EXCLUSIVE")

        async def opened():
            async with open_sqlite(path) as stores:
                return await stores.runs.find(RunId("r"))

        task = asyncio.ensure_future(opened())
        await asyncio.sleep(0.2)
        assert not task.done()
        rival.execute("ROLLBACK")
        assert await task is None


def test_a_file_that_is_no_database_is_reported_and_left_alone(tmp_path: Path):
    path = tmp_path / "letter.txt"
    text = "Dear Zoë, " * 200
    path.write_text(text)

    async def opened():
        async with open_sqlite(path):
            pass

    with pytest.raises(DatabaseUnreachable, match="SQLITE_NOTADB"):
        asyncio.run(opened())
    assert path.read_text() == text


async def test_pauses_grow_and_are_jittered(kit, monkeypatch):
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr("belay_drivers.sql.connection.database.asyncio.sleep", sleep)
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.05)
    database = database_of(kit.stores)
    database._jitter = FixedJitter(0.5)
    for tried in range(1, 11):
        await database.pause(tried)
    assert waited == [pytest.approx(0.75 * min(0.05 * 2**n, 10.0)) for n in range(10)]


async def test_nobody_waits_for_a_row_that_hangs_longer_than_a_statement_may_take(belay_postgres, make_kit):
    async with belay_postgres as stores, belay_postgres as other:
        kit = make_kit(stores)
        await kit.start()
        async with database_of(stores)._engines.write.engine.connect() as connection:
            await connection.exec_driver_sql("SET statement_timeout = '100ms'")
            await connection.commit()
        async with database_of(other)._engines.write.engine.connect() as blocker:
            await blocker.exec_driver_sql("SELECT 1 FROM belay_runs FOR UPDATE")
            with pytest.raises(StoreError) as failure:
                await kit.stores.runs.cancel(commands.Cancel(RunId("run-1")))
            assert cause_of(failure).sqlstate == "57014"
        assert (await kit.run()).cancel_requested_at_ms is None


async def test_a_start_while_another_process_holds_the_lock_ends_in_time_and_says_that_nothing_is_stored(tmp_path):
    @workflow("quick")
    async def quick(ctx: Context) -> None: ...

    path = tmp_path / "belay.db"
    async with open_sqlite(path) as stores:
        client = Client(stores, telemetry=False)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            with pytest.raises(RunStoreError, match="the database was busy for too long, and nothing was stored"):
                await client.start(quick, idempotency_key="one")
            # Twice the time-out of the lock: once with others, once alone.
            assert time.monotonic() - began < 12
            other.execute("ROLLBACK")
        assert await client.find("one") is None
        assert (await client.start(quick, idempotency_key="one")).created
