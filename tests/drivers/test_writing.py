"""Several store operations in one transaction: how often, and what goes on beside it.

What a write promises besides is in the conformance suite.
"""

import asyncio
from typing import Any

import pytest

from belay_core.errors import DatabaseError, RunStoreError, WriterError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.waiting import Wait
from belay_core.stores import Stores

A = OwnerId("host-a", 7, "nonce-a")
PENDING = RunSnapshot(RunStatus.PENDING)
ONE, TWO = RunId("one"), RunId("two")


class Unhappy(Exception):
    """What the function itself raises."""


class Wrapped(Exception):
    """An error of the application around one of a store."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.001)


@pytest.fixture
async def stores(belay_each_store):
    async with belay_each_store as stores:
        yield stores


async def exists(stores: Any, run_id: str) -> bool:
    return bool(await stores.runs.lineage(RunId(run_id)))


def busy(*, transient: bool = True) -> RunStoreError:
    """What a store raises where the database asks for another try."""
    failure = DatabaseError("busy", "40001", transient=transient)
    return RunStoreError("persistence_failed", "create", "database operation failed", {"cause": failure})


async def test_an_engine_outside_is_refused_inside_at_once(stores: Stores):
    async def body(inside):
        await inside.runs.create(ONE, "{}")
        with pytest.raises(WriterError) as failure:
            await asyncio.wait_for(stores.runs.find(ONE), 1)
        assert failure.value.code == "inside"

    await stores.write(body)


async def test_who_waits_for_a_run_is_woken_when_there_is_something_to_see(stores: Stores):
    await stores.runs.create(ONE, "{}")
    await stores.runs.claim_and_own(ONE, PENDING, A, 0)
    await stores.waiting.park(ONE, Wait("timer", 90_000), A)
    with stores.notifier.listening(ONE) as heard:
        while stores.notifier._relay is not None and not stores.notifier.hears_peers:
            await asyncio.sleep(0)
        # Once others are heard, everybody looks once.
        heard.clear()

        async def refused(inside):
            await inside.waiting.wake(ONE)
            raise Unhappy

        with pytest.raises(Unhappy):
            await stores.write(refused)
        assert not heard.is_set()

        async def body(inside):
            await inside.waiting.wake(ONE)
            assert not heard.is_set()

        await stores.write(body)
        assert heard.is_set()


async def test_what_the_function_leaves_undone_is_refused_and_not_half_kept(stores: Stores):
    begun = asyncio.Event()

    async def within(deeper):
        await deeper.runs.create(ONE, "{}")
        begun.set()
        await asyncio.sleep(0.05)
        await deeper.runs.create(TWO, "{}")

    async def body(inside):
        left = [asyncio.ensure_future(inside.write(within))]
        await begun.wait()
        left.append(asyncio.ensure_future(inside.runs.create(RunId("three"), "{}")))
        await asyncio.sleep(0)
        return left

    left = await stores.write(body)
    answers = await asyncio.gather(*left, return_exceptions=True)
    assert [getattr(answer, "code", answer) for answer in answers] == ["ended", "ended"]
    assert [await exists(stores, name) for name in ("one", "two", "three")] == [False] * 3


async def test_two_databases_do_not_mind_each_other(stores: Stores, belay_stores):
    async with belay_stores as other:

        async def body(inside):
            await inside.runs.create(ONE, "{}")
            await other.runs.create(TWO, "{}")

            async def there(beyond):
                await beyond.runs.create(RunId("three"), "{}")
                await inside.runs.create(RunId("four"), "{}")

            await other.write(there)

        await stores.write(body)
        assert [await exists(stores, name) for name in ("one", "two", "four")] == [True, False, True]
        assert [await exists(other, name) for name in ("one", "two", "three")] == [False, True, True]


async def test_the_whole_function_is_repeated_when_the_database_asks_for_it(stores: Stores):
    calls = []

    async def body(inside):
        calls.append(await exists(inside, "one"))
        await inside.runs.create(ONE, "{}")
        if len(calls) < 3:
            raise Wrapped from busy()
        return len(calls)

    assert await stores.write(body) == 3
    assert calls == [False, False, False]
    assert await exists(stores, "one")


@pytest.mark.parametrize(
    ("raised", "calls"),
    [
        (busy(), 10),
        (busy(transient=False), 1),
        (Unhappy(), 1),
        (ExceptionGroup("", [busy(), ExceptionGroup("", [busy()])]), 10),
        (ExceptionGroup("", [busy(), Unhappy()]), 1),
    ],
    ids=["busy", "not transient", "own", "together", "mixed"],
)
async def test_ten_attempts_and_only_for_what_may_go_better(stores: Stores, raised, calls):
    made = []

    async def body(inside):
        made.append(1)
        await inside.runs.create(ONE, "{}")
        raise raised

    with pytest.raises(type(raised)) as failure:
        await stores.write(body)
    assert failure.value is raised
    assert len(made) == calls
    assert not await exists(stores, "one")


async def test_a_chain_of_causes_that_bites_its_tail_is_no_trap(stores: Stores):
    one, other = Wrapped(), Unhappy()
    one.__cause__, other.__cause__ = other, one

    async def body(_inside):
        raise one

    with pytest.raises(Wrapped):
        await asyncio.wait_for(stores.write(body), 5)


async def test_a_failure_that_was_dealt_with_is_no_reason_to_repeat(stores: Stores):
    calls = []

    async def body(_inside):
        calls.append(1)
        try:
            raise busy()
        except RunStoreError:
            raise Unhappy from None

    with pytest.raises(Unhappy):
        await stores.write(body)
    assert len(calls) == 1


async def test_the_permit_is_kept_from_the_first_attempt_to_the_last(stores: Stores):
    order = []

    async def stubborn(_inside):
        order.append("stubborn")
        await asyncio.sleep(0)
        if len(order) < 4:
            raise busy()

    async def other(_inside):
        order.append("other")

    await asyncio.gather(stores.write(stubborn), stores.write(other))
    assert order == ["stubborn"] * 4 + ["other"]


async def test_a_timeout_inside_cuts_one_level_only(stores: Stores):
    async def within(inside):
        await inside.runs.create(TWO, "{}")
        await asyncio.Event().wait()

    async def body(inside):
        await inside.runs.create(ONE, "{}")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(inside.write(within), 0.05)
        assert not await exists(inside, "two")
        await inside.runs.create(RunId("three"), "{}")

    await stores.write(body)
    assert [await exists(stores, name) for name in ("one", "two", "three")] == [True, False, True]


# What is seen by whom.
