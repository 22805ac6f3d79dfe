"""Operations that an engine on top of the stores combines in one write."""

from typing import Any, Final

import pytest

from belay_core.ids import RunId
from belay_core.records.owner import LivenessEvidence
from belay_core.records.run import CreateOptions, RunStatus, TransitionGuard
from belay_core.records.waiting import Wait
from belay_core.stores.run_contract import Activated, Claimed, GuardFailed, Transitioned
from belay_core.stores.waiting import Parked
from belay_testing.conformance.auxiliary import facts, kinds
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import PENDING, STALE, A, B, R, activated, chain, own

NOT_ASKED: Final = TransitionGuard(cancel_requested="absent")
LATE: Final = STALE + 1


class Refused(Exception):
    """Raised by a body to roll its write back."""


async def refuse(stores: Any, body: Any) -> None:
    """Run ``body`` in a write, and roll it back."""

    async def taken_back(inside: Any) -> None:
        await body(inside)
        raise Refused

    with pytest.raises(Refused):
        await stores.write(taken_back)


def next_round(place: int) -> Any:
    """This round ends and the next one is created, or neither: an earlier cancel request stops both."""
    here, there = RunId(f"r{place}"), RunId(f"r{place + 1}")

    async def body(inside: Any) -> Any:
        await inside.runs.create(there, "{}", CreateOptions(here, "line", place + 1))
        ended = await inside.runs.transition_owned(here, A, RunStatus.COMPLETED, None, NOT_ASKED)
        if ended == GuardFailed():
            raise Refused
        return ended

    return body


class ComposedWritesChapter(Chapter):
    """Ownership facts, waits, events and rounds together with the transitions they belong to."""

    async def test_facts_go_with_the_write_that_granted_them(self, stores: Any) -> None:
        reported = [("claimed", A.nonce, 0), ("activated", A.nonce, 0), ("released", A.nonce, None)]

        async def granted(inside: Any) -> None:
            await activated(inside.runs)
            await inside.runs.transition_owned(R, A, RunStatus.COMPLETED)
            assert await facts(inside) == reported

        await refuse(stores, granted)
        assert await facts(stores) == []
        await stores.write(granted)
        assert await facts(stores) == reported

    async def test_a_write_that_is_taken_back_leaves_no_fact_and_the_row_unchanged(self, stores: Any) -> None:
        await own(stores.runs)
        stores.clock.advance(LATE)
        before, known = await stores.runs.get(R), await facts(stores)
        evidence = LivenessEvidence(A, LATE, "lease-expired")

        async def let_go(inside: Any) -> None:
            assert await inside.runs.transition_owned(R, A, RunStatus.SUSPENDED) == Transitioned()

        async def own_again(inside: Any) -> None:
            row = await inside.runs.get(R)
            assert await inside.runs.claim_and_own(R, row, A, LATE) == Activated()

        async def take_over(inside: Any) -> None:
            row = await inside.runs.get(R)
            assert await inside.runs.claim_and_own(R, row, B, LATE, evidence) == Activated()

        async def steal(inside: Any) -> None:
            row = await inside.runs.get(R)
            assert await inside.runs.steal(R, row, B, LATE, evidence) == Claimed(LATE)
            await inside.runs.abandon_claim(R, B, LATE)

        for body in (let_go, own_again, take_over, steal):
            await refuse(stores, body)
            assert await stores.runs.get(R) == before
            assert await facts(stores) == known

    async def test_a_write_within_takes_its_facts_along_and_leaves_the_others(self, stores: Any) -> None:
        async def body(inside: Any) -> None:
            await own(inside.runs)

            async def within(deeper: Any) -> None:
                await deeper.runs.transition_owned(R, A, RunStatus.COMPLETED)
                raise Refused

            with pytest.raises(Refused):
                await inside.write(within)

        await stores.write(body)
        assert [what for what, *_ in await facts(stores)] == ["claimed", "activated"]
        assert (await stores.runs.get(R)).owner == A

    async def test_a_lineage_is_read_as_the_write_has_left_it(self, stores: Any) -> None:
        async def body(inside: Any) -> Any:
            await chain(inside.runs, "r0", "r1", "r2")
            rounds = [row.run_id for row in await inside.runs.lineage(RunId("r1"))]
            return rounds, (await inside.runs.latest_round(RunId("r0"))).run_id

        await refuse(stores, body)
        assert await stores.runs.lineage(RunId("r0")) == ()
        assert await stores.write(body) == (["r0", "r1", "r2"], "r2")

    async def test_asking_a_lineage_to_stop_is_undone_with_its_write(self, stores: Any) -> None:
        await chain(stores.runs, "r0", "r1")

        async def body(inside: Any) -> None:
            await inside.runs.request_cancel_lineage(RunId("r0"), 5)

        for write, asked in ((refuse(stores, body), None), (stores.write(body), 5)):
            await write
            rounds = await stores.runs.lineage(RunId("r0"))
            assert [row.cancel_requested_at_ms for row in rounds] == [asked, asked]

    async def test_a_wait_and_the_suspension_it_is_for_are_one_write(self, stores: Any) -> None:
        await own(stores.runs)

        async def body(inside: Any) -> Any:
            assert isinstance(await inside.waiting.park(R, Wait("approval", 90_000, "token"), A), Parked)
            return await inside.runs.transition_owned(R, A, RunStatus.SUSPENDED)

        await refuse(stores, body)
        assert await stores.waiting.waiting(R) is None
        assert (await stores.runs.get(R)).status is RunStatus.RUNNING
        assert await stores.write(body) == Transitioned()
        row = await stores.waiting.waiting(R)
        assert (row.status, row.reason, row.wake_at_ms) == (RunStatus.SUSPENDED, "approval", 90_000)

    async def test_a_suspension_that_a_guard_refuses_takes_the_wait_back(self, stores: Any) -> None:
        await own(stores.runs)
        await stores.runs.request_cancel(R, 1)

        async def body(inside: Any) -> None:
            await inside.waiting.park(R, Wait("timer", 90_000), A)
            if await inside.runs.transition_owned(R, A, RunStatus.SUSPENDED, None, NOT_ASKED) == GuardFailed():
                raise Refused

        with pytest.raises(Refused):
            await stores.write(body)
        assert await stores.waiting.waiting(R) is None
        assert "parked" not in await kinds(stores)

    async def test_a_round_ends_with_the_birth_of_its_successor(self, stores: Any) -> None:
        await chain(stores.runs, "r0")
        await stores.runs.claim_and_own(RunId("r0"), PENDING, A, 0)
        assert await stores.write(next_round(0)) == Transitioned()
        assert [row.status.value for row in await stores.runs.lineage(RunId("r0"))] == ["completed", "pending"]

    async def test_a_cancelled_round_has_no_successor(self, stores: Any) -> None:
        await chain(stores.runs, "r0")
        await stores.runs.claim_and_own(RunId("r0"), PENDING, A, 0)
        await stores.runs.request_cancel_lineage(RunId("r0"), 1)
        with pytest.raises(Refused):
            await stores.write(next_round(0))
        [only] = await stores.runs.lineage(RunId("r0"))
        assert (only.status, only.owner) == (RunStatus.RUNNING, A)

    async def test_an_event_of_the_owner_commits_with_its_transition(self, stores: Any) -> None:
        await own(stores.runs)

        async def body(inside: Any) -> None:
            await inside.journal.append(R, A, "app.done", {"n": 1})
            await inside.runs.transition_owned(R, A, RunStatus.COMPLETED)

        await refuse(stores, body)
        assert "app.done" not in await kinds(stores)
        await stores.write(body)
        assert "app.done" in await kinds(stores)
