"""What engines on top of the stores put together in one write (specs, run store 5.3, 9 and 15)."""

import json
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.outcomes.runs import Activated, GuardFailed, Transitioned
from belay_core.outcomes.waiting import Parked
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus, TransitionGuard
from belay_core.records.waiting import Wait
from belay_core.stores import Stores

A = OwnerId("host-a", 7, "nonce-a")
B = OwnerId("host-a", 8, "nonce-b")
PENDING = RunSnapshot(RunStatus.PENDING)
RUN = RunId("run")


class Refused(Exception):
    """A guard did not hold: the whole round is not to happen."""


@pytest.fixture
async def stores(belay_each_store):
    async with belay_each_store as stores:
        yield stores


async def facts(stores: Any, run_id: RunId = RUN) -> list[tuple[str, Any]]:
    entries = await stores.journal.ownership(run_id)
    return [(entry.kind.removeprefix("ownership."), json.loads(entry.facts)["granted_at_ms"]) for entry in entries]


async def owned(inside: Any, run_id: RunId = RUN, owner: OwnerId = A, at: int = 0) -> None:
    await inside.runs.create(run_id, "{}")
    assert await inside.runs.claim_and_own(run_id, PENDING, owner, at) == Activated()


async def refuse(stores: Stores, body: Any) -> None:
    async def refused(inside):
        await body(inside)
        raise Refused

    with pytest.raises(Refused):
        await stores.write(refused)


# Companion facts (case 91).


async def test_facts_go_with_the_transaction_that_granted_them(stores: Stores):
    async def granted(inside):
        await inside.runs.create(RUN, "{}")
        assert (await inside.runs.claim(RUN, PENDING, A, 0)).claimed_at_ms == 0
        await inside.runs.activate(RUN, A, 0, PENDING)
        await inside.runs.transition_owned(RUN, A, RunStatus.COMPLETED)
        assert await facts(inside) == [("claimed", 0), ("activated", 0), ("released", None)]

    await refuse(stores, granted)
    assert await facts(stores) == []
    await stores.write(granted)
    assert await facts(stores) == [("claimed", 0), ("activated", 0), ("released", None)]
    assert not [entry for entry in await stores.journal.read(RUN) if entry.kind.startswith("ownership.")]


async def test_an_enclosing_transaction_that_is_rolled_back_leaves_no_fact_and_the_row_unchanged(stores: Stores):
    await owned(stores)
    before = await stores.runs.get(RUN)
    known = await facts(stores)
    evidence = LivenessEvidence(A, 30_001, "lease-expired")

    async def let_go(inside):
        assert await inside.runs.transition_owned(RUN, A, RunStatus.SUSPENDED) == Transitioned()

    async def own_again(inside):
        row = await inside.runs.get(RUN)
        assert await inside.runs.claim_and_own(RUN, row, A, 30_001) == Activated()

    async def take_over(inside):
        row = await inside.runs.get(RUN)
        assert await inside.runs.claim_and_own(RUN, row, B, 30_001, evidence) == Activated()

    async def steal(inside):
        row = await inside.runs.get(RUN)
        await inside.runs.steal(RUN, row, B, 30_001, evidence)
        await inside.runs.abandon_claim(RUN, B, 30_001)

    for body in (let_go, own_again, take_over, steal):
        await refuse(stores, body)
        assert await stores.runs.get(RUN) == before
        assert await facts(stores) == known


async def test_a_savepoint_takes_its_facts_along_and_leaves_the_others(stores: Stores):
    async def body(inside):
        await owned(inside)

        async def within(deeper):
            await deeper.runs.transition_owned(RUN, A, RunStatus.COMPLETED)
            raise Refused

        with pytest.raises(Refused):
            await inside.write(within)

    await stores.write(body)
    assert await facts(stores) == [("claimed", 0), ("activated", 0)]
    assert (await stores.runs.get(RUN)).owner == A


# Lineages.


async def test_a_lineage_is_read_as_the_write_has_left_it(stores: Stores):
    async def body(inside):
        for place in range(3):
            await inside.runs.create(RunId(f"r{place}"), "{}", CreateOptions(lineage_id="l", round_ordinal=place))
        rounds = [row.run_id for row in await inside.runs.lineage(RunId("r1"))]
        return rounds, (await inside.runs.latest_round(RunId("r0"))).run_id

    await refuse(stores, body)
    assert await stores.runs.lineage(RunId("r0")) == ()
    assert await stores.write(body) == (["r0", "r1", "r2"], "r2")


async def test_asking_a_lineage_to_stop_is_undone_with_its_write(stores: Stores):
    for place in range(2):
        await stores.runs.create(RunId(f"r{place}"), "{}", CreateOptions(lineage_id="l", round_ordinal=place))

    async def body(inside):
        await inside.runs.request_cancel_lineage(RunId("r0"), 5)

    await refuse(stores, body)
    assert [row.cancel_requested_at_ms for row in await stores.runs.lineage(RunId("r0"))] == [None, None]
    await stores.write(body)
    assert [row.cancel_requested_at_ms for row in await stores.runs.lineage(RunId("r0"))] == [5, 5]


# Parking.


async def test_a_wait_and_the_suspension_it_is_for_are_one_write(stores: Stores):
    await owned(stores)

    async def body(inside):
        parked = await inside.waiting.park(RUN, Wait("approval", 90_000, "token"), A)
        assert isinstance(parked, Parked)
        return await inside.runs.transition_owned(RUN, A, RunStatus.SUSPENDED)

    await refuse(stores, body)
    assert await stores.waiting.waiting(RUN) is None
    assert (await stores.runs.get(RUN)).status is RunStatus.RUNNING
    assert await stores.write(body) == Transitioned()
    row = await stores.waiting.waiting(RUN)
    assert row is not None
    assert (row.status, row.reason, row.wake_at_ms) == (RunStatus.SUSPENDED, "approval", 90_000)


async def test_a_suspension_that_a_guard_refuses_takes_the_wait_back(stores: Stores):
    await owned(stores)
    await stores.runs.request_cancel(RUN, 1)

    async def body(inside):
        await inside.waiting.park(RUN, Wait("timer", 90_000), A)
        absent = TransitionGuard(cancel_requested="absent")
        if await inside.runs.transition_owned(RUN, A, RunStatus.SUSPENDED, None, absent) == GuardFailed():
            raise Refused

    with pytest.raises(Refused):
        await stores.write(body)
    assert await stores.waiting.waiting(RUN) is None


async def test_who_waits_for_a_run_is_woken_when_there_is_something_to_see(stores: Stores):
    await owned(stores)
    await stores.waiting.park(RUN, Wait("timer", 90_000), A)

    with stores.wakes.listening(RUN) as heard:

        async def body(inside):
            await inside.waiting.wake(RUN)
            assert not heard.is_set()

        await refuse(stores, body)
        assert not heard.is_set()
        await stores.write(body)
        assert heard.is_set()


# Trampolines.


def next_round(place: int) -> Any:
    """This round ends and the next one is born, or neither: a cancel request that came before stops both."""
    here, there = RunId(f"r{place}"), RunId(f"r{place + 1}")

    async def body(inside):
        await inside.runs.create(there, "{}", CreateOptions(here, "l", place + 1))
        absent = TransitionGuard(cancel_requested="absent")
        ended = await inside.runs.transition_owned(here, A, RunStatus.COMPLETED, None, absent)
        if ended == GuardFailed():
            raise Refused
        return ended

    return body


async def test_a_round_ends_with_the_birth_of_its_successor(stores: Stores):
    await stores.runs.create(RunId("r0"), "{}", CreateOptions(lineage_id="l", round_ordinal=0))
    await stores.runs.claim_and_own(RunId("r0"), PENDING, A, 0)
    assert await stores.write(next_round(0)) == Transitioned()
    assert [row.status.value for row in await stores.runs.lineage(RunId("r0"))] == ["completed", "pending"]


async def test_a_cancelled_round_has_no_successor(stores: Stores):
    await stores.runs.create(RunId("r0"), "{}", CreateOptions(lineage_id="l", round_ordinal=0))
    await stores.runs.claim_and_own(RunId("r0"), PENDING, A, 0)
    await stores.runs.request_cancel_lineage(RunId("r0"), 1)
    with pytest.raises(Refused):
        await stores.write(next_round(0))
    [only] = await stores.runs.lineage(RunId("r0"))
    assert (only.status, only.owner) == (RunStatus.RUNNING, A)


async def test_an_event_of_the_owner_goes_with_the_transition_it_tells_of(stores: Stores):
    await owned(stores)

    async def body(inside):
        await inside.journal.append(RUN, A, "app.done", {"n": 1})
        await inside.runs.transition_owned(RUN, A, RunStatus.COMPLETED)

    await refuse(stores, body)
    assert "app.done" not in [entry.kind for entry in await stores.journal.read(RUN)]
    await stores.write(body)
    assert "app.done" in [entry.kind for entry in await stores.journal.read(RUN)]
