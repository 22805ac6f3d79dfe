"""Claims in two phases: reserve a run, then own it."""

from typing import Any

import pytest

from belay_core.records.owner import LivenessEvidence
from belay_core.stores.run_contract import (
    Activated,
    AlreadyClaimed,
    ClaimChanged,
    Claimed,
    ClaimFresh,
    ClaimLost,
    EvidenceRequired,
    HeartbeatFresh,
    LivenessUnconfirmed,
    NotFound,
    Recovered,
    SnapshotChanged,
    Transitioned,
)
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import (
    PENDING,
    A,
    B,
    C,
    R,
    activated,
    evidence,
)


class ClaimsChapter(Chapter):
    """``claim``, ``activate``, ``abandon_claim`` and ``recover_claim``."""

    @case(10)
    async def test_a_run_is_reserved_once(self, runs: Any) -> None:
        assert await runs.claim("missing", PENDING, A, 0) == NotFound()
        await runs.create(R, "{}")
        assert await runs.claim(R, PENDING, A, 0) == Claimed(0)
        assert await runs.claim(R, PENDING, B, 0) == AlreadyClaimed()
        row = await runs.get(R)
        assert (row.status, row.claim, row.claimed_at_ms, row.owner) == ("pending", A, 0, None)

    @case(11)
    async def test_a_running_run_is_never_claimable_nor_is_one_that_is_over(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        assert await runs.claim(R, await runs.get(R), B, 0) == HeartbeatFresh()
        kit.clock.set(31_000)
        assert await runs.claim(R, await runs.get(R), B, 31_000) == SnapshotChanged()
        row = await runs.get(R)
        assert (row.claim, row.owner) == (None, A)
        assert await runs.transition_owned(R, A, "completed") == Transitioned()
        assert await runs.claim(R, await runs.get(R), B, 31_000) == SnapshotChanged()

    @case(2)
    async def test_each_stamp_is_of_the_clock_it_belongs_to(self, kit: Kit, runs: Any) -> None:
        kit.clock.set(10.5)
        await runs.create(R, "{}")
        assert await runs.claim(R, PENDING, A, 10) == Claimed(10)
        assert await runs.activate(R, A, 10, PENDING) == Activated()
        kit.clock.set(11.5)
        await runs.transition_owned(R, A, "completed")
        row = await runs.get(R)
        assert (row.created_at_ms, row.started_at_ms, row.finished_at_ms) == (10, 10, 11)

    @case(19)
    async def test_an_old_claim_is_no_claim(self, kit: Kit, runs: Any) -> None:
        await runs.create(R, "{}")
        assert await runs.claim(R, PENDING, A, 0) == Claimed(0)
        kit.clock.set(31_000)
        assert await runs.recover_claim(R, A, 0, B, 31_000, evidence(A, B, 31_000)) == Recovered()
        assert await runs.claim(R, PENDING, A, 31_000) == Claimed(31_000)
        assert await runs.activate(R, A, 0, PENDING) == ClaimLost()
        assert await runs.abandon_claim(R, A, 0) == ClaimLost()
        row = await runs.get(R)
        assert (row.claim, row.claimed_at_ms) == (A, 31_000)
        assert await runs.activate(R, A, 31_000, PENDING) == Activated()

    async def test_recovering_answers_in_its_order(self, kit: Kit, runs: Any) -> None:
        kit.clock.set(40_000)
        now = 40_000
        assert await runs.recover_claim("missing", A, 0, B, now, evidence(C, B, now)) == LivenessUnconfirmed()
        assert await runs.recover_claim("missing", A, 0, B, now, evidence(A, B, now)) == NotFound()
        await runs.create(R, "{}")
        assert await runs.recover_claim(R, A, 0, B, now, evidence(A, B, now)) == ClaimChanged()

    @case(25)
    @pytest.mark.parametrize(("now", "late"), [(29_999, False), (30_000, False), (30_001, True)])
    async def test_thirty_seconds_are_fresh_and_a_millisecond_more_is_stale(
        self, kit: Kit, runs: Any, now: Any, late: Any
    ) -> None:
        await runs.create(R, "{}")
        await runs.claim(R, PENDING, A, 0)
        kit.clock.set(now)
        found = await runs.recover_claim(R, A, 0, B, now, evidence(A, B, now))
        assert found == (Recovered() if late else ClaimFresh())
        await runs.abandon_claim(R, A, 0)
        kit.clock.set(0)
        assert await runs.claim_and_own(R, PENDING, A, 0) == Activated()
        kit.clock.set(now)
        found = await runs.steal(R, await runs.get(R), C, now, evidence(A, C, now))
        assert found == (Claimed(now) if late else HeartbeatFresh())

    @case(26)
    @pytest.mark.parametrize("wrong", ["moment", "same host", "other host"])
    async def test_evidence_counts_for_one_owner_one_moment_and_the_right_kind(
        self, kit: Kit, runs: Any, wrong: Any
    ) -> None:
        await activated(runs)
        read, now = await runs.get(R), 40_000
        kit.clock.set(now)
        taker = C if wrong == "other host" else B
        kind: Any = {
            "moment": "same-host-pid-dead",
            "same host": "cross-host-unreachable-stale",
            "other host": "same-host-pid-dead",
        }[wrong]
        proof = LivenessEvidence(A, now - (wrong == "moment"), kind)
        assert await runs.steal(R, read, taker, now, proof) == LivenessUnconfirmed()
        assert await runs.claim_and_own(R, read, taker, now, proof) == EvidenceRequired()
        assert await runs.recover_claim(R, A, 0, taker, now, proof) == LivenessUnconfirmed()
