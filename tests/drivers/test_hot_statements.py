"""Straight to the driver, over the connection the pool has: never one that is closed or left in a transaction."""

import asyncio
import sqlite3
from typing import Any

import pytest
from sqlalchemy import event

from belay_core.errors import StoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.stores.attempts import Recorded
from belay_core.stores.runs import Started
from belay_drivers.sql.connection.engine_lookup import engines_of
from belay_drivers.sqlite import open_sqlite


@pytest.fixture(params=["file", "memory"])
async def stores(request, tmp_path):
    async with open_sqlite(":memory:" if request.param == "memory" else tmp_path / "belay.db") as opened:
        yield opened


def start(name):
    return commands.Start(RunId(name), "flow", "1", "null")


def writer_of(stores) -> Any:
    return stores.runs._database._engines.write


async def test_a_connection_that_was_closed_is_opened_anew(tmp_path):
    async with open_sqlite(tmp_path / "belay.db") as stores:
        await stores.runs.start(start("a"))
        opened = []
        event.listen(writer_of(stores).sync_engine, "connect", lambda *_: opened.append(1))
        for close in (lambda tx: tx.invalidate(), lambda tx: tx.connection.invalidate(), lambda tx: tx.detach()):
            await writer_of(stores).run(close)
            assert isinstance(await stores.runs.start(start(f"b{len(opened)}")), Started)
        assert len(opened) == 3
        assert len(await stores.runs.list(commands.ListRuns(limit=9))) == 4


@pytest.mark.parametrize("at", ["before", "after"])
@pytest.mark.parametrize("word", ["BEGIN IMMEDIATE", "COMMIT"])
async def test_what_fails_on_its_way_leaves_no_transaction_behind(stores, word, at):
    engine = engines_of(stores)[0]

    def fail(_connection, _cursor, statement, *_):
        if statement == word:
            raise OSError

    event.listen(engine, f"{at}_cursor_execute", fail)
    with pytest.raises(StoreError):
        await stores.runs.start(start("a"))
    event.remove(engine, f"{at}_cursor_execute", fail)
    assert not await writer_of(stores).run(lambda tx: tx.connection.driver_connection.in_transaction)
    stored = await stores.runs.find(RunId("a")) is not None
    assert stored is ((word, at) == ("COMMIT", "after"))
    assert isinstance(await stores.runs.start(start("b")), Started)


async def test_a_record_that_shares_a_commit_tells_what_its_owner_has_not_seen(kit, raw):
    leases = [await kit.own(name) for name in ("asked", "news", "quiet")]
    kit.clock.advance(1)
    for name, mark in (("asked", "cancel_requested_at"), ("news", "ready_at")):
        await raw(kit.stores, f"UPDATE belay_runs SET {mark} = {kit.now} WHERE run_id = '{name}'")  # noqa: S608  (no input)
    answers = await asyncio.gather(*(kit.record(lease, kit.step()) for lease in leases))
    assert answers == [Recorded(None, kit.now), Recorded(kit.now, None), Recorded(None, None)]
    assert [[*await kit.attempts(lease.run_id)] for lease in leases] == [["fetch#1"]] * 3


async def test_the_error_is_that_of_the_work_where_rolling_back_fails_as_well(stores, monkeypatch):
    straight = stores.runs._parts.group_commit._channel._raw
    await straight.do(lambda cursor: cursor.execute("SELECT 1").fetchall())

    def fails(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def work(cursor: Any) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(writer_of(stores).sync_engine.dialect, "do_rollback", fails)
        raise sqlite3.OperationalError("of the work")

    with pytest.raises(sqlite3.OperationalError, match="of the work"):
        await straight.do(work)
    monkeypatch.undo()
