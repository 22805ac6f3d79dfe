"""A run is owned in one step only with its current snapshot, and taken over only with evidence that its owner died."""

from typing import Any

import pytest

from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunStatus
from belay_core.stores.run_contract import (
    Abandoned,
    Activated,
    AlreadyClaimed,
    Claimed,
    EvidenceRequired,
    FenceLost,
    HeartbeatFresh,
    NotFound,
    SnapshotChanged,
    Transitioned,
)
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import PENDING, A, B, C, R, evidence, own


class ClaimAndOwnChapter(Chapter):
    """``claim_and_own``."""

    @case(13)
    async def test_a_claim_needs_not_come_from_the_owner_to_be(self, runs: Any) -> None:
        engine = OwnerId("engine-host", 404, "engine-to-spawn")
        await own(runs, engine)
        row = await runs.get(R)
        assert (row.owner, row.heartbeat_at_ms, row.started_at_ms, row.status) == (engine, 0, 0, RunStatus.RUNNING)

    @case(14)
    async def test_a_fresh_owner_is_reported_before_evidence_is_asked_for(self, runs: Any) -> None:
        await own(runs)
        snapshot = (await runs.get(R)).snapshot
        assert await runs.claim_and_own(R, snapshot, B, 0) == HeartbeatFresh()
        assert (await runs.get(R)).owner == A

    @case(16)
    async def test_a_run_that_moved_on_is_not_claimed_by_what_was_read_before(self, kit: Kit, runs: Any) -> None:
        await own(runs)
        read = (await runs.get(R)).snapshot
        assert await runs.transition_owned(R, A, RunStatus.SUSPENDED) == Transitioned()
        kit.clock.set(30_001)
        assert await runs.claim_and_own(R, read, B, 30_001) == SnapshotChanged()
        assert await runs.claim_and_own(R, PENDING, B, 30_001) == SnapshotChanged()
        assert await runs.claim_and_own(R, await runs.get(R), B, 30_001) == Activated()
        assert await runs.transition_owned(R, B, RunStatus.COMPLETED) == Transitioned()
        over = await runs.get(R)
        assert await runs.claim_and_own(R, over, C, 30_001) == SnapshotChanged()
        assert (await runs.get(R)) == over

    @case(25)
    @pytest.mark.parametrize(
        ("now", "answer"), [(29_999, HeartbeatFresh()), (30_000, HeartbeatFresh()), (30_001, Activated())]
    )
    @pytest.mark.parametrize("taker", [A, B, C])
    async def test_exactly_thirty_seconds_old_is_fresh_also_for_the_owner_itself(
        self, kit: Kit, runs: Any, now: Any, answer: Any, taker: Any
    ) -> None:
        await own(runs)
        kit.clock.set(now)
        proof = None if taker == A else evidence(A, taker, now)
        assert await runs.claim_and_own(R, await runs.get(R), taker, now, proof) == answer

    @case(26)
    async def test_evidence_that_does_not_fit_is_none(self, kit: Kit, runs: Any) -> None:
        await own(runs)
        now = 40_000
        kit.clock.set(now)
        read = await runs.get(R)
        for proof in (
            None,
            evidence(A, B, now - 1),
            evidence(B, B, now),
            LivenessEvidence(A, now, "cross-host-unreachable-stale"),
        ):
            assert await runs.claim_and_own(R, read, B, now, proof) == EvidenceRequired()
        assert (
            await runs.claim_and_own(R, read, C, now, LivenessEvidence(A, now, "same-host-pid-dead"))
            == EvidenceRequired()
        )
        assert (await runs.get(R)).owner == A
        assert await runs.claim_and_own(R, read, C, now, LivenessEvidence(A, now, "lease-expired")) == Activated()
        assert await runs.heartbeat(R, A, now) == FenceLost()

    async def test_records_are_taken_in_belays_own_types_or_as_plain_dictionaries(self, runs: Any) -> None:
        await runs.create(R, "{}")
        owner = {"host_id": "host-a", "pid": 101, "nonce": "owner-a"}
        snapshot = {"status": "pending", "owner": None, "heartbeat_at_ms": None, "anything": "else"}
        assert await runs.claim_and_own(R, snapshot, owner, 0) == Activated()
        assert (await runs.get(R)).owner == A

    @case(29)
    @pytest.mark.parametrize("form", ["row", "snapshot", "dictionary"])
    async def test_a_row_will_do_where_a_snapshot_is_expected(self, kit: Kit, runs: Any, form: Any) -> None:
        async def read() -> Any:
            row = await runs.get(R)
            named = {"status": row.status.value, "owner": row.owner, "heartbeat_at_ms": row.heartbeat_at_ms}
            return {"row": row, "snapshot": row.snapshot, "dictionary": {**named, "state_json": "ignored"}}[form]

        await runs.create(R, "{}")
        before = await read()
        assert await runs.claim(R, before, A, 0) == Claimed(0)
        assert await runs.activate(R, A, 0, before) == Activated()
        kit.clock.set(30_001)
        stale = await read()
        assert await runs.steal(R, stale, B, 30_001, evidence(A, B, 30_001)) == Claimed(30_001)
        assert await runs.abandon_claim(R, B, 30_001) == Abandoned()
        assert await runs.claim_and_own(R, stale, B, 30_001, evidence(A, B, 30_001)) == Activated()
        assert await runs.claim_and_own(R, stale, C, 30_001, evidence(A, C, 30_001)) == HeartbeatFresh()

    @case(17)
    async def test_a_missing_run_and_a_reserved_one_are_reported_without_evidence(self, kit: Kit, runs: Any) -> None:
        await own(runs)
        stale = await runs.get(R)
        assert await runs.claim_and_own("nowhere", stale, B, 0) == NotFound()
        assert await runs.claim_and_own("nowhere", PENDING, B, 0) == NotFound()
        kit.clock.set(30_001)
        assert await runs.steal(R, stale, B, 30_001, evidence(A, B, 30_001)) == Claimed(30_001)
        assert await runs.claim_and_own(R, stale, C, 30_001) == AlreadyClaimed()
        assert await runs.claim_and_own(R, stale, C, 30_001, evidence(A, C, 30_001)) == AlreadyClaimed()
        assert (await runs.get(R)).claim == B
