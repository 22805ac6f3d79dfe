"""A share of ``make cancels``; and where calls are not shielded, that is found."""

import argparse
import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from typing import get_type_hints

import asyncpg
import pytest
from sqlalchemy import Engine, event

from belay_drivers.sql.connection.connection_runner import DriverThread
from belay_testing.cancels.awaits import cancel_at
from tests.cancels.enumerate import cancelled
from tests.cancels.operations import OPERATIONS
from tests.cancels.probing import probing
from tests.crashes.shares import Share

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request):
    handle = request.getfixturevalue({"sqlite": "belay_sqlite_file", "postgres": "belay_postgres"}[request.param])
    return request.param, handle


async def found(database, share, *operations):
    driver, handle = database
    async with handle:
        pass  # the schema is there from here on
    given = argparse.Namespace(share=Share(share, 0), operations=operations or list(OPERATIONS))
    return await cancelled(driver, handle.url, given)


async def test_cancelled_at_an_await_every_call_is_known_and_leaves_nothing(database):
    cancelling = await found(database, "1/24")
    assert cancelling.broken == []
    assert cancelling.counts["operations"] == len(OPERATIONS)
    assert cancelling.counts["awaits"] >= 15


async def test_reads_of_one_moment_give_their_connection_back_wherever_they_are_cancelled(database):
    cancelling = await found(database, "1/1", "snapshots.get")
    assert cancelling.broken == []
    assert cancelling.counts["awaits"] >= 15


async def test_calls_that_are_not_shielded_are_found(belay_sqlite_file, monkeypatch):
    async def unshielded(work, *_):
        return await work

    async def begun(thread, work):
        """Work that has begun cannot be taken back any more, as one that still queues can."""
        entered = threading.Event()

        def entering():
            entered.set()
            return work()

        answered = thread._submit(entering)
        entered.wait()
        return await answered

    def slow(_connection):
        time.sleep(0.02)

    monkeypatch.setattr("belay_drivers.sql.connection.database.run_uncancelled", unshielded)
    monkeypatch.setattr(DriverThread, "do", begun)
    event.listen(Engine, "commit", slow)  # so that the write is still under way when its caller has gone on
    try:
        cancelling = await found(("sqlite", belay_sqlite_file), "1/1", "runs.create")
    finally:
        event.remove(Engine, "commit", slow)
    assert cancelling.counts["leaked"] + cancelling.counts["unknown"] > 0


async def test_a_call_that_leaves_a_task_behind_is_found(database, monkeypatch):
    left = []

    async def prepare(desk):
        async def call():
            left.append(asyncio.ensure_future(asyncio.Event().wait()))
            await desk.start()

        return call

    monkeypatch.setitem(OPERATIONS, "runs.start", prepare)
    cancelling = await found(database, "1/1", "runs.start")
    assert cancelling.counts["leaked"] >= 3
    assert "1 tasks are left" in cancelling.broken[0]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def test_a_transaction_that_is_left_open_is_seen(database):
    driver, handle = database
    change = "UPDATE belay_store SET skew_ms = skew_ms"
    async with handle, probing(handle.url) as probe:
        assert await probe.left_open() == []
        if driver == "sqlite":
            with closing(sqlite3.connect(handle.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                held = await probe.left_open()
        else:
            idle = await asyncpg.connect(handle.url)
            await idle.execute(f"BEGIN; {change}")
            held = await probe.left_open()
            await idle.close()
        assert held
        assert await probe.left_open() == []


def test_every_operation_of_the_stores_is_there():
    from belay_core.stores import SnapshotReads, Stores

    named = {name.partition(" (")[0] for name in OPERATIONS}
    stores = {**get_type_hints(Stores), "snapshots": SnapshotReads}
    operations = {
        f"{role}.{name}"
        for role, store in stores.items()
        if role != "clock"
        for name in dir(store)
        if not name.startswith("_") and asyncio.iscoroutinefunction(getattr(store, name))
    }
    assert named == operations


async def test_awaits_of_the_tasks_a_call_makes_are_counted_and_others_are_not():
    async def inner() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def outer() -> str:
        await asyncio.ensure_future(inner())
        return "done"

    meanwhile = asyncio.ensure_future(inner())
    assert (await cancel_at(outer())).awaits == 3
    first = await cancel_at(outer(), 1)
    assert (first.was_struck, first.was_cancelled) == (True, True)
    assert not (await cancel_at(outer(), 4)).was_struck
    await meanwhile
