"""``FaultStores``: each fault does what its name says, on every kind of store, by one mechanism."""

import asyncio
from typing import Any

import pytest

from belay_core.errors import AttemptStoreError, RunStoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.attempt import AttemptStoreOptions
from belay_testing.clock import ManualClock
from belay_testing.faults import (
    FaultStores,
    delay,
    error_after,
    error_before,
    hang,
    kill_after,
    kill_before,
    late,
    meanwhile,
)

RUN = RunId("run-1")


def start(name="run-1"):
    return commands.Start(RunId(name), "flow", "1", "null")


@pytest.fixture
async def stores(belay_stores):
    async with belay_stores as opened:
        yield opened


async def is_there(stores, name="run-1"):
    return await stores.runs.find(RunId(name)) is not None


@pytest.mark.parametrize(("fault", "executed"), [(error_before(), False), (error_after(), True)])
async def test_an_error_comes_before_the_call_or_instead_of_its_reply(stores, fault, executed):
    store = FaultStores(stores, at=2, fault=fault)
    await store.stores.runs.start(start("first"))
    with pytest.raises(RunStoreError, match=r"persistence_failed: RunStore.start"):
        await store.stores.runs.start(start())
    assert (store.struck, store.calls) == (True, ["start", "start"])
    assert await is_there(stores) is executed
    await store.stores.runs.start(start())
    assert await is_there(stores)


@pytest.mark.parametrize(("fault", "executed"), [(kill_before(), False), (kill_after(), True)])
async def test_a_process_that_is_gone_sends_and_hears_nothing_more(stores, fault, executed):
    store = FaultStores(stores, at=1, fault=fault)
    with pytest.raises(RunStoreError):
        await store.stores.runs.start(start())
    assert (store.gone, await is_there(stores)) == (True, executed)
    with pytest.raises(RunStoreError):
        await store.stores.runs.start(start("later"))
    assert not await is_there(stores, "later")


@pytest.mark.parametrize("before", [True, False])
async def test_a_call_that_hangs_ends_when_it_is_cancelled(stores, before):
    store = FaultStores(stores, at=1, fault=hang(before=before))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.stores.runs.start(start()), 0.05)
    assert await is_there(stores) is not before


@pytest.mark.parametrize("before", [True, False])
async def test_a_call_that_is_delayed_is_answered_later(stores, before):
    clock = ManualClock()
    store = FaultStores(stores, at=1, fault=delay(clock, 3, before=before))
    call = asyncio.ensure_future(store.stores.runs.start(start()))
    while clock.next_due() is None:
        await asyncio.sleep(0)
    assert (call.done(), await is_there(stores)) == (False, not before)
    clock.advance(3_000)
    await call
    assert await is_there(stores)


async def test_a_late_call_lands_after_its_caller_has_moved_on(stores):
    clock = ManualClock()
    store = FaultStores(stores, at=1, fault=late(clock, 3))
    with pytest.raises(RunStoreError):
        await store.stores.runs.start(start())
    assert not await is_there(stores)
    await store.stores.runs.start(start("after"))
    clock.advance(3_000)
    await store.landed()
    assert await is_there(stores)


async def test_somebody_comes_between(stores):
    seen = []

    async def look():
        seen.append(await is_there(stores))

    for at, before in enumerate([True, False], start=1):
        store = FaultStores(stores, at=1, fault=meanwhile("look", look, before=before))
        await store.stores.runs.start(start(f"run-{at}"))
    assert seen == [False, True]


@pytest.mark.parametrize("times", [1, 2])
async def test_only_the_methods_that_are_named_are_counted(stores, times):
    store = FaultStores(stores, of={"start", "cancel"}, at=2, times=times, fault=error_before())
    await store.stores.runs.start(start())
    await store.stores.runs.find(RUN)
    failed = 0
    for _ in range(3):
        try:
            await store.stores.runs.cancel(commands.Cancel(RUN))
        except RunStoreError:
            failed += 1
    assert failed == times


async def test_the_contracts_stores_meet_the_same_faults(stores, belay_ids):
    runs = FaultStores(stores, at=1, fault=error_after())
    with pytest.raises(RunStoreError, match=r"persistence_failed: RunStore.create"):
        await runs.stores.runs.create(RUN, "{}")
    assert (await stores.runs.get(RUN)).run_id == RUN
    attempts = FaultStores(stores, at=1, fault=error_before())
    made: Any = attempts.stores.attempts.make_with(AttemptStoreOptions(put_mode="upsert"))
    with pytest.raises(AttemptStoreError, match=r"persistence_failed: AttemptStore.get"):
        await made.get(None)
    assert attempts.calls == ["get"]


async def test_all_stores_of_a_bundle_stand_behind_one_count(stores):
    faulty = FaultStores(stores, at=3, fault=kill_before())
    behind = faulty.stores
    await behind.runs.start(start())
    await behind.runs.create(RunId("other"), "{}")
    with pytest.raises(RunStoreError):
        await behind.runs.get(RUN)
    with pytest.raises(RunStoreError):
        await behind.runs.find(RUN)
    assert faulty.calls == ["start", "create", "get"]


async def test_one_may_stand_before_another(stores):
    first = FaultStores(stores, at=1, fault=error_after())
    second = FaultStores(first.stores, at=2, fault=error_after())
    for _ in range(2):
        with pytest.raises(RunStoreError):
            await second.stores.runs.start(start())
    assert (first.calls, second.calls) == (["start"] * 2, ["start"] * 2)
