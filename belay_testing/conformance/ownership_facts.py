"""The stream of ownership facts: who owned a run, and when."""

from typing import Any

from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores.run_contract import (
    Activated,
    AlreadyClaimed,
    ClaimLost,
    EvidenceRequired,
    LivenessUnconfirmed,
    Recovered,
    SnapshotChanged,
)
from belay_testing.cases import case
from belay_testing.conformance.auxiliary import facts, kinds
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import PENDING, A, B, C, R, activated, evidence, own


class OwnershipFactsChapter(Chapter):
    """Ownership facts."""

    async def test_ownership_has_a_stream_of_its_own(self, kit: Kit, runs: Any) -> None:
        await own(runs)
        kit.clock.set(30_001)
        assert await runs.claim_and_own(R, await runs.get(R), B, 30_001) == EvidenceRequired()
        assert await runs.claim_and_own(R, await runs.get(R), A, 30_001) == Activated()
        kit.clock.set(60_002)
        await runs.claim_and_own(R, await runs.get(R), B, 60_002, evidence(A, B, 60_002))
        await runs.heartbeat(R, B, 60_002)
        await runs.transition_owned(R, B, RunStatus.RUNNING)
        await runs.transition_owned(R, B, RunStatus.COMPLETED)
        assert await facts(kit.stores) == [
            ("claimed", "owner-a", 0),
            ("activated", "owner-a", 0),
            ("released", "owner-a", None),
            ("claimed", "owner-a", 30_001),
            ("activated", "owner-a", 30_001),
            ("stolen", "owner-b", 60_002),
            ("activated", "owner-b", 60_002),
            ("released", "owner-b", None),
        ]
        assert await kinds(kit.stores) == ["created"]

    @case(91)
    async def test_each_change_of_ownership_leaves_its_fact_and_refusals_leave_none(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        await runs.heartbeat(R, A, 0)
        stale = await runs.get(R)
        kit.clock.set(31_000)
        assert await runs.steal(R, stale, C, 31_000, evidence(B, C, 31_000)) == LivenessUnconfirmed()
        await runs.steal(R, stale, B, 31_000, evidence(A, B, 31_000))
        await runs.abandon_claim(R, B, 31_000)
        await runs.steal(R, stale, B, 31_000, evidence(A, B, 31_000))
        await runs.heartbeat(R, A, 31_000)
        await runs.activate(R, B, 31_000, stale)
        await runs.transition_owned(R, A, "completed")
        assert await facts(kit.stores) == [
            ("claimed", A.nonce, 0),
            ("activated", A.nonce, 0),
            ("stolen", B.nonce, 31_000),
            ("released", B.nonce, 31_000),
            ("stolen", B.nonce, 31_000),
            ("released", B.nonce, 31_000),
            ("released", A.nonce, None),
        ]

    @case(91)
    async def test_claims_that_come_to_nothing_are_recorded_too(self, kit: Kit, runs: Any) -> None:
        await runs.create(R, "{}")
        await runs.claim(R, PENDING, A, 0)
        assert await runs.claim(R, PENDING, B, 0) == AlreadyClaimed()
        kit.clock.set(31_000)
        assert await runs.recover_claim(R, A, 0, B, 31_000, evidence(A, B, 31_000)) == Recovered()
        await runs.claim(R, PENDING, B, 31_000)
        suspended = RunSnapshot(RunStatus.SUSPENDED)
        assert await runs.activate(R, B, 31_000, suspended) == SnapshotChanged()
        assert await runs.activate(R, B, 31_000, PENDING) == ClaimLost()
        await runs.request_cancel(R, 31_000)
        assert await facts(kit.stores) == [
            ("claimed", "owner-a", 0),
            ("expired", "owner-a", 0),
            ("claimed", "owner-b", 31_000),
            ("released", "owner-b", 31_000),
        ]
        assert await kinds(kit.stores) == ["created", "cancel_requested"]
