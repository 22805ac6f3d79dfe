"""Cancellation at every await, once and again: what was sent has a known end, and nothing is left behind."""

import asyncio
import types
from contextlib import suppress
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.stores.attempts import Recorded
from belay_core.stores.runs import RunParked
from belay_drivers.postgres import open_postgres
from belay_drivers.sql.connection.database import Database


def database_of(stores: Any) -> Any:
    return stores.runs._database


class Awaits:
    """Counts the awaits of all tasks made under it, and strikes at a chosen one and those after it."""

    def __init__(self):
        self.count = 0
        self.strike_at = 0
        self.strikes = 0
        self.victim = None

    def met(self):
        self.count += 1
        if self.victim is not None and self.strike_at <= self.count < self.strike_at + self.strikes:
            self.victim.cancel()

    def factory(self, loop, coroutine, **more):
        stepping: Any = self._stepping(coroutine)
        return asyncio.Task(stepping, loop=loop, **more)

    @types.coroutine
    def _stepping(self, inner):
        value, error = None, None
        while True:
            try:
                waited = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as done:
                return done.value
            self.met()
            value, error = None, None
            try:
                value = yield waited
            except BaseException as thrown:  # noqa: BLE001  handed on to the coroutine
                error = thrown


def checked_out(stores):
    engines = database_of(stores)._engines
    pools = [engine.sync_engine.pool for engine in (engines.write, engines.read)]
    return [pool.checkedout() for pool in pools if hasattr(pool, "checkedout")]


async def struck(awaits, call, at, strikes):
    """Whether the call was cancelled at its ``at``-th await; it has ended either way."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(awaits.factory)
    try:
        awaits.count, awaits.strike_at, awaits.strikes = 0, at, strikes
        awaits.victim = asyncio.ensure_future(call)
        loop.set_task_factory(awaits.factory)
        with suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.wait({awaits.victim}))
        return awaits.victim.cancelled()
    finally:
        awaits.victim = None
        loop.set_task_factory(None)


async def start(kit, name):
    return kit.start(f"start-{name}"), None


async def record(kit, name):
    lease = await kit.own(f"record-{name}")
    return kit.record(lease, kit.step()), lease


async def several(kit, name):
    lease = await kit.own(f"several-{name}")
    return kit.record(lease, kit.step("a#1"), kit.step("b#1")), lease


async def park(kit, name):
    lease = await kit.own(f"park-{name}")
    return kit.park(lease), lease


async def check_start(kit, name, _lease):
    run_id = f"start-{name}"
    found = await kit.stores.runs.find(RunId(run_id))
    assert await kit.kinds(run_id) == ([] if found is None else ["created"])
    assert found is None or found.input == '{"order":1}'
    await kit.start(run_id)
    [taken] = await kit.acquire()
    assert taken.run.run_id == run_id


async def check_record(kit, name, lease):
    assert isinstance(await kit.record(lease, kit.step()), Recorded)
    assert len((await kit.history(lease.run_id)).attempts) == 1


async def check_several(kit, name, lease):
    stored = len((await kit.history(lease.run_id)).attempts)
    assert stored in {0, 2}
    assert isinstance(await kit.record(lease, kit.step("c#1")), Recorded)
    assert len((await kit.history(lease.run_id)).attempts) == stored + 1


async def check_park(kit, name, lease):
    run = await kit.run(lease.run_id)
    parked = run.status is RunStatus.SUSPENDED
    assert (await kit.kinds(lease.run_id)) == ["created", *(["suspended"] if parked else [])]
    if not parked:
        assert await kit.park(lease) == RunParked()


CALLS = {
    "start": (start, check_start),
    "record": (record, check_record),
    "several": (several, check_several),
    "park": (park, check_park),
}


@pytest.mark.parametrize("strikes", [1, 2, 3])
@pytest.mark.parametrize("call", sorted(CALLS))
async def test_cancelled_at_any_await_a_write_is_done_or_not_and_nothing_is_left_open(kit, call, strikes):
    prepare, check = CALLS[call]
    awaits = Awaits()
    cancelled = 0
    for at in range(1, 200):
        work, lease = await prepare(kit, at)
        if not await struck(awaits, work, at, strikes):
            break
        cancelled += 1
        assert set(checked_out(kit.stores)) <= {0}
        await check(kit, at, lease)
    else:
        pytest.fail("the call has more awaits than were struck")
    assert cancelled >= 2


@pytest.mark.parametrize("strikes", [1, 3])
async def test_cancelled_at_any_await_a_read_leaves_nothing_open(kit, strikes):
    await kit.own()
    awaits = Awaits()
    for at in range(1, 200):
        if not await struck(awaits, kit.history(), at, strikes):
            break
        assert set(checked_out(kit.stores)) <= {0}
    assert (await kit.history()).run.run_id == "run-1"


async def test_cancelled_at_any_await_an_acquisition_is_found_or_taken_over(kit):
    awaits = Awaits()
    for at in range(1, 200):
        run_id = f"run-{at:03}"
        await kit.start(run_id)
        if not await struck(awaits, kit.acquire(), at, 1):
            break
        kit.clock.advance(30_001)
        owned = await kit.acquire()
        assert [taken.run.run_id for taken in owned] == [run_id]
        assert isinstance(await kit.record(owned[0].lease, kit.step()), Recorded)
        await kit.settle(owned[0].lease, RunStatus.COMPLETED)


async def test_a_write_that_waits_its_turn_is_withdrawn_when_cancelled(kit):
    lease = await kit.own()
    tasks = [asyncio.ensure_future(kit.record(lease, kit.step(f"s#{n}", recorded=n))) for n in range(10)]
    await asyncio.sleep(0)
    for task in tasks[5:]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, Recorded) for answer in answers[:5])
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[5:])
    assert sorted(await kit.attempts()) == [f"s#{n}" for n in range(5)]
    assert isinstance(await kit.record(lease, kit.step("after#1")), Recorded)


async def test_a_write_that_hangs_is_waited_for_only_so_long(belay_postgres, make_kit, monkeypatch):
    async with belay_postgres as stores, belay_postgres as other:
        kit = make_kit(stores)
        lease = await kit.own()
        database_of(stores).patience = 0.3
        engine = database_of(other)._engines.write.engine
        async with engine.connect() as blocker:
            await blocker.exec_driver_sql("SELECT 1 FROM belay_runs FOR UPDATE")
            task = asyncio.ensure_future(kit.record(lease, kit.step()))
            await asyncio.sleep(0.2)
            loop = asyncio.get_running_loop()
            began = loop.time()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert 0.05 < loop.time() - began < 2
            assert set(checked_out(stores)) == {0}
            await blocker.rollback()
        # The cut backend may still have written; the lease finds out and goes on either way.
        assert isinstance(await kit.record(lease, kit.step()), Recorded)
        assert isinstance(await kit.record(lease, kit.step("b#1")), Recorded)


async def test_nothing_stays_idle_in_a_transaction(belay_postgres, make_kit):
    async with belay_postgres as stores, open_postgres(belay_postgres.url) as watch:
        kit = make_kit(stores)
        lease = await kit.own()
        awaits = Awaits()
        for at in range(1, 60):
            await struck(awaits, kit.record(lease, kit.step(f"s#{at}"), kit.step(f"t#{at}")), at, 2)
        database: Database = database_of(watch)
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND state LIKE 'idle in%'"
        )
        assert await database.read(lambda tx: tx.exec_driver_sql(query).scalar_one()) == 0
        await kit.stores.runs.find(RunId("run-1"))
        await kit.stores.runs.cancel(commands.Cancel(RunId("run-1")))
