"""Two openings of one database, as two processes have them: the contract."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

from belay_core.ids import RunId
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunStatus
from belay_core.stores.attempts import ExistingSame, Finished, Inserted, StateChanged
from belay_core.stores.run_contract import (
    Activated,
    AlreadyRequested,
    CancelRequested,
    FenceLost,
    Transitioned,
    Updated,
)
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import (
    ID,
    PENDING,
    RUNNING,
    STALE,
    A,
    B,
    C,
    R,
    finish,
    own,
    refused,
    together,
)
from belay_testing.harness import Harness

ROUNDS = 10
"""Rounds of the race."""


class SharedChapter(Chapter):
    """What one opening writes binds every other."""

    async def test_what_one_opening_wrote_another_reads(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)
            assert await one.attempts.put(RUNNING, A) == Inserted()
            assert await other.runs.get(R) == await one.runs.get(R)
            assert await other.attempts.get(ID) == RUNNING
            assert await other.attempts.put(RUNNING, A) == ExistingSame()
            assert await other.runs.heartbeat(R, A, 5) == Updated()
            assert (await one.runs.get(R)).heartbeat_at_ms == 5

    async def test_what_was_answered_outlives_every_opening(self, harness: Harness) -> None:
        async with harness.open() as stores:
            await own(stores.runs)
            await stores.attempts.put(RUNNING, A)
            await stores.attempts.finish(finish(outcome=[1]), A)
            row = await stores.runs.get(R)
        async with harness.open() as stores:
            assert await stores.runs.get(R) == row
            assert await stores.attempts.get(ID) == replace(RUNNING, state="completed", finished_at_ms=9, outcome=[1])

    async def test_of_rivals_in_two_openings_one_owns_the_run(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            for number in range(ROUNDS):
                run_id = RunId(f"run-{number}")
                await one.runs.create(run_id, "{}")
                claims: list[Any] = [
                    stores.runs.claim_and_own(run_id, PENDING, OwnerId("host", pid, f"n{pid}"), 0)
                    for pid, stores in enumerate([one, other] * 3)
                ]
                answers = Counter(map(str, await asyncio.gather(*claims)))
                assert answers == {"Activated()": 1, "HeartbeatFresh()": 5}

    async def test_a_run_is_created_once_whichever_opening_asks(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            for number in range(ROUNDS):
                run_id = RunId(f"run-{number}")
                answers = await together(*(stores.runs.create(run_id, "{}") for stores in (one, other)))
                assert sorted(getattr(answer, "code", "created") for answer in answers) == ["constraint", "created"]
            await refused(other.runs.create(R, "{}"), "constraint")

    async def test_after_a_takeover_in_another_opening_nothing_of_the_first_owner_counts(
        self, harness: Harness
    ) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)
            await one.attempts.put(RUNNING, A)
            harness.clock.set(STALE + 1)
            proof = LivenessEvidence(A, STALE + 1, "lease-expired")
            read = await other.runs.get(R)
            assert await other.runs.claim_and_own(R, read, B, STALE + 1, proof) == Activated()
            assert await one.runs.heartbeat(R, A, STALE + 1) == FenceLost()
            assert await one.attempts.finish(finish(), A) == FenceLost()
            assert await one.attempts.put(replace(RUNNING, attempt=2), A) == FenceLost()
            assert await one.runs.transition_owned(R, A, RunStatus.COMPLETED) == FenceLost()
            assert await other.attempts.finish(finish(outcome=1), B) == Finished()
            assert await one.attempts.finish(finish(outcome=2), B) == StateChanged()

    async def test_a_claim_of_one_opening_is_seen_by_another(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)
            harness.clock.set(STALE + 1)
            read = await other.runs.get(R)
            proof = LivenessEvidence(A, STALE + 1, "lease-expired")
            claims: list[Any] = [
                stores.runs.steal(R, read, claimant, STALE + 1, proof) for stores, claimant in ((one, B), (other, C))
            ]
            answers = Counter(type(answer).__name__ for answer in await asyncio.gather(*claims))
            assert answers == {"Claimed": 1, "AlreadyClaimed": 1}
            assert await one.runs.reconfirm(R, A, STALE + 1) == FenceLost()

    async def test_one_cancel_request_counts_and_stops_the_owner_in_another_opening(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)
            asked = await together(one.runs.request_cancel(R, 500), other.runs.request_cancel(R, 900))
            [first] = [answer for answer in asked if isinstance(answer, CancelRequested)]
            assert AlreadyRequested(first.requested_at_ms) in asked
            assert await other.runs.acknowledge_cancel(R, A, 901)
            assert await one.runs.transition_owned(R, A, RunStatus.CANCELLED) == Transitioned()
            assert (await other.runs.get(R)).cancel_requested_at_ms == first.requested_at_ms
