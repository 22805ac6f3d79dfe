"""How a write of several operations ends when the database, or the way to it, gives trouble."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg
import pytest

from belay_core.errors import RunStoreError, WriterError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores.run_contract import Updated
from belay_drivers.postgres.dialect import DIALECT
from belay_drivers.sql.connection import open_write
from belay_drivers.sql.connection.database import ATTEMPTS, LOST_ATTEMPTS
from belay_drivers.sql.connection.dialect import Mark
from belay_drivers.sqlite import open_sqlite

A = OwnerId("host-a", 7, "nonce-a")
PENDING = RunSnapshot(RunStatus.PENDING)
ONE, TWO = RunId("one"), RunId("two")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.001)


async def exists(stores: Any, run_id: str) -> bool:
    return bool(await stores.runs.lineage(RunId(run_id)))


@asynccontextmanager
async def onlooker(url: str):
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(params=["belay_stores", "belay_sqlite_file"])
def belay_each_sqlite(request):
    return request.getfixturevalue(request.param)


HOLDERS = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()"
)


async def cut(url: str) -> int:
    """End the session of every transaction that stands open; how many there were."""
    async with onlooker(url) as connection:
        pids = [row["pid"] for row in await connection.fetch(HOLDERS)]
        for pid in pids:
            await connection.execute("SELECT pg_terminate_backend($1, 5000)", pid)
        return len(pids)


# A connection that goes away.


async def test_a_connection_lost_inside_costs_a_second_attempt(belay_postgres):
    async with belay_postgres as stores:
        calls = []

        async def body(inside):
            calls.append(1)
            await inside.runs.create(ONE, "{}")
            if len(calls) == 1:
                assert await cut(belay_postgres.url) == 1
            await inside.runs.create(TWO, "{}")
            return len(calls)

        assert await stores.write(body) == 2
        assert [await exists(stores, name) for name in ("one", "two")] == [True, True]


async def test_a_lost_connection_is_not_got_over_by_looking_away(belay_postgres):
    """What the function swallows cannot be kept, so it is not taken for kept."""
    async with belay_postgres as stores:
        calls = []

        async def body(inside):
            calls.append(1)
            await inside.runs.create(ONE, "{}")
            if len(calls) == 1:
                await cut(belay_postgres.url)
                with pytest.raises(RunStoreError):
                    await inside.runs.create(TWO, "{}")

        await stores.write(body)
        assert len(calls) == 2
        assert [await exists(stores, name) for name in ("one", "two")] == [True, False]


async def test_connections_that_are_always_lost_are_an_error_at_last(belay_postgres):
    async with belay_postgres as stores:
        calls = []

        async def body(inside):
            calls.append(1)
            await inside.runs.create(ONE, "{}")
            await cut(belay_postgres.url)

        with pytest.raises(WriterError) as failure:
            await stores.write(body)
        assert failure.value.code == "persistence_failed"
        assert len(calls) == LOST_ATTEMPTS
        assert not await exists(stores, "one")


# A commit without a reply.


class Commit:
    """The first commit meets what is planted; later ones are as ever."""

    def __init__(self, monkeypatch, planted):
        self.sent = 0
        self.real = open_write._committed
        self.planted = planted
        monkeypatch.setattr(open_write, "_committed", self)

    def __call__(self, connection):
        self.sent += 1
        if self.sent > 1:
            return self.real(connection)
        return self.planted(connection, self.real)


def no_reply():
    return asyncpg.InterfaceError("connection is closed")


def arrived(connection, real):
    real(connection)
    raise no_reply()


def never_sent(_connection, _real):
    raise no_reply()


async def test_a_commit_that_arrived_is_not_made_twice(belay_postgres, monkeypatch):
    async with belay_postgres as stores:
        commit = Commit(monkeypatch, arrived)
        calls, ran = [], []

        async def body(inside):
            calls.append(1)
            await inside.runs.create(ONE, "{}")
            inside.after_commit(lambda: ran.append(1))
            return "answer"

        assert await stores.write(body) == "answer"
        assert (len(calls), commit.sent, len(ran)) == (1, 1, 1)
        assert await exists(stores, "one")


async def test_a_commit_that_never_arrived_is_made(belay_postgres, monkeypatch):
    async with belay_postgres as stores:
        commit = Commit(monkeypatch, never_sent)
        calls, ran = [], []

        async def body(inside):
            calls.append(await exists(inside, "one"))
            await inside.runs.create(ONE, "{}")
            inside.after_commit(lambda: ran.append(1))

        await stores.write(body)
        assert (calls, commit.sent, len(ran)) == ([False, False], 2, 1)
        assert await exists(stores, "one")


async def test_a_commit_that_may_still_arrive_is_shut_out_before_the_next(belay_postgres, monkeypatch):
    """The server has not noticed: the session stands open, and holds what the next attempt needs."""
    async with belay_postgres as stores:
        lines = []

        async def left_open(line, *, broken):
            lines.append((line, broken))

        async def body(inside):
            await inside.runs.create(ONE, "{}")

        with monkeypatch.context() as patch:
            Commit(patch, never_sent)
            real = open_write.OpenWrite.close

            async def close(opened, *, committed):
                if lines or committed:
                    return await real(opened, committed=committed)
                return await left_open(opened._session, broken=True)

            patch.setattr(open_write.OpenWrite, "close", close)
            await asyncio.wait_for(stores.write(body), 10)
        [(line, broken)] = lines
        await line.close(broken=broken)
        assert await exists(stores, "one")
        async with onlooker(belay_postgres.url) as connection:
            assert await connection.fetch(HOLDERS) == []


@pytest.mark.parametrize("planted", [arrived, never_sent])
async def test_a_commit_nobody_can_tell_the_end_of_is_an_error_of_its_own(belay_postgres, monkeypatch, planted):
    """As after a failover: the database that answers is not the one the commit was sent to."""
    async with belay_postgres as stores:
        dialect: Any = DIALECT
        real, calls = dialect.mark, []

        def elsewhere(tx):
            mark = real(tx)
            return Mark(mark.number, mark.backend, "another history")

        async def body(inside):
            calls.append(1)
            await inside.runs.create(ONE, "{}")

        Commit(monkeypatch, planted)
        monkeypatch.setattr(type(dialect), "mark", lambda _self, tx: elsewhere(tx))
        with pytest.raises(WriterError) as failure:
            await stores.write(body)
        assert failure.value.code == "commit_unknown"
        assert len(calls) == 1


async def test_a_commit_without_reply_that_had_nothing_to_keep_is_done(belay_postgres, monkeypatch):
    async with belay_postgres as stores:
        await stores.runs.create(ONE, "{}")
        Commit(monkeypatch, arrived)
        assert (await stores.write(lambda inside: inside.runs.get(ONE))).run_id == ONE


async def test_a_commit_is_waited_for_when_its_caller_is_cancelled(belay_postgres, monkeypatch):
    async with belay_postgres as stores:
        reached = asyncio.Event()
        loop = asyncio.get_running_loop()
        ran = []

        def slowly(connection, real):
            loop.call_soon_threadsafe(reached.set)
            connection.exec_driver_sql("SELECT pg_sleep(0.3)")
            real(connection)

        Commit(monkeypatch, slowly)

        async def body(inside):
            await inside.runs.create(ONE, "{}")
            inside.after_commit(lambda: ran.append(1))

        task = asyncio.ensure_future(stores.write(body))
        await reached.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.02)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ran == [1]
        assert await exists(stores, "one")


# Others who write.


async def test_two_writes_that_lock_crosswise_both_get_through(belay_postgres):
    async with belay_postgres as stores, belay_postgres as other:
        for run_id in (ONE, TWO):
            await stores.runs.create(run_id, "{}")
            await stores.runs.claim_and_own(run_id, PENDING, A, 0)
        met = asyncio.Barrier(2)
        calls = []

        def crossing(first, second):
            async def body(inside):
                calls.append(first)
                await inside.runs.heartbeat(first, A, 1)
                if len(calls) <= 2:
                    await met.wait()
                return await inside.runs.heartbeat(second, A, 1)

            return body

        answers = await asyncio.gather(stores.write(crossing(ONE, TWO)), other.write(crossing(TWO, ONE)))
        assert list(answers) == [Updated(), Updated()]
        assert len(calls) == 3


async def test_single_operations_go_on_beside_an_open_write_on_postgres(belay_postgres):
    async with belay_postgres as stores:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def body(inside):
            await inside.runs.create(ONE, "{}")
            entered.set()
            await leave.wait()

        task = asyncio.ensure_future(stores.write(body))
        await entered.wait()
        await asyncio.gather(*(stores.runs.create(RunId(f"r{number}"), "{}") for number in range(20)))
        leave.set()
        await task


async def test_writes_of_this_process_wait_for_an_open_write_on_sqlite_and_reads_of_a_file_do_not(belay_sqlite_file):
    async with belay_sqlite_file as stores:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def body(inside):
            await inside.runs.create(ONE, "{}")
            entered.set()
            await leave.wait()

        task = asyncio.ensure_future(stores.write(body))
        await entered.wait()
        other = asyncio.ensure_future(stores.runs.create(TWO, "{}"))
        assert not await exists(stores, "one")
        await asyncio.sleep(0.05)
        assert not other.done()
        leave.set()
        await asyncio.gather(task, other)


async def test_a_file_that_is_locked_is_waited_for_before_the_function_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("belay_drivers.sqlite.open.BUSY_TIMEOUT", 0.02)
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.02)
    path, calls = tmp_path / "belay.db", []

    async def body(inside):
        calls.append(1)
        await inside.runs.create(ONE, "{}")

    async with open_sqlite(path) as stores:
        retries = []
        stores.writer.on_retry(lambda: retries.append(1))
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            task = asyncio.ensure_future(stores.write(body))
            await asyncio.sleep(0.2)
            assert (task.done(), calls) == (False, [])
            rival.execute("COMMIT")
        await task
        assert len(calls) == 1
        assert retries


async def test_a_file_that_stays_locked_is_an_error_and_the_function_never_began(tmp_path, monkeypatch):
    monkeypatch.setattr("belay_drivers.sqlite.open.BUSY_TIMEOUT", 0.01)
    path, calls, retries = tmp_path / "belay.db", [], []

    async def body(_inside):
        calls.append(1)

    async with open_sqlite(path) as stores:
        stores.writer.on_retry(lambda: retries.append(1))
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(WriterError) as failure:
                await stores.write(body)
        assert (failure.value.code, calls) == ("persistence_failed", [])
        assert failure.value.cause is not None
        assert failure.value.cause["category"] == "busy"
        assert len(retries) == ATTEMPTS - 1
        await stores.write(body)


async def test_an_open_write_that_the_database_ended_by_itself_keeps_nothing(belay_each_sqlite, raw):
    """SQLite rolls a whole transaction back where its disk is full; what came after would commit by itself."""
    async with belay_each_sqlite as stores:
        await raw(
            stores,
            "CREATE TRIGGER no BEFORE INSERT ON belay_runs WHEN new.run_id = 'two' "
            "BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
        )

        async def body(inside):
            await inside.runs.create(ONE, "{}")
            with pytest.raises(RunStoreError) as failure:
                await inside.runs.create(TWO, "{}")
            assert failure.value.code == "constraint"
            with pytest.raises(RunStoreError):
                await inside.runs.create(RunId("three"), "{}")

        with pytest.raises(WriterError) as failure:
            await stores.write(body)
        assert failure.value.code == "constraint"
        assert [await exists(stores, name) for name in ("one", "two", "three")] == [False] * 3
        await stores.write(lambda inside: inside.runs.create(ONE, "{}"))
