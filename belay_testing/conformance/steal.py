"""A run is stolen only from a dead owner, and stays its own until the claim is activated."""

from dataclasses import replace
from typing import Any

from belay_core.records.owner import LivenessEvidence
from belay_core.stores.attempts import Finished, Inserted
from belay_core.stores.run_contract import (
    Abandoned,
    Activated,
    AlreadyClaimed,
    Claimed,
    FenceLost,
    HeartbeatFresh,
    LivenessUnconfirmed,
    NotFound,
    SnapshotChanged,
    Transitioned,
    Updated,
)
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import PENDING, RUNNING, A, B, C, R, activated, evidence, finish


class StealChapter(Chapter):
    """``steal``, and what its owner may still do."""

    @case(20)
    async def test_only_the_stale_are_stolen_from_and_only_with_proof_about_them(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        read = await runs.get(R)
        assert await runs.steal(R, read, C, 0, evidence(A, C, 0)) == HeartbeatFresh()
        kit.clock.set(31_000)
        assert await runs.claim(R, read, C, 31_000) == SnapshotChanged()
        assert await runs.steal(R, read, C, 31_000, evidence(B, C, 31_000)) == LivenessUnconfirmed()
        assert await runs.steal(R, read, C, 31_000, evidence(A, C, 31_000)) == Claimed(31_000)
        row = await runs.get(R)
        assert (row.status, row.owner, row.heartbeat_at_ms, row.claim) == ("running", A, 0, C)

    @case(22)
    async def test_an_owner_that_shows_a_sign_of_life_keeps_its_run(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        stale = await runs.get(R)
        kit.clock.set(31_000)
        assert await runs.steal(R, stale, B, 31_000, evidence(A, B, 31_000)) == Claimed(31_000)
        assert await runs.heartbeat(R, A, 31_000) == Updated()
        assert await runs.activate(R, B, 31_000, stale) == SnapshotChanged()
        row = await runs.get(R)
        assert (row.owner, row.heartbeat_at_ms, row.claim, row.claimed_at_ms) == (A, 31_000, None, None)

    @case(23)
    async def test_an_owner_in_doubt_is_not_confirmed_while_somebody_claims(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        stale = await runs.get(R)
        kit.clock.set(31_000)
        await runs.steal(R, stale, B, 31_000, evidence(A, B, 31_000))
        assert await runs.reconfirm(R, A, 31_000) == FenceLost()
        assert await runs.abandon_claim(R, B, 31_000) == Abandoned()
        row = await runs.get(R)
        assert (row.owner, row.heartbeat_at_ms, row.claim) == (A, 0, None)
        assert await runs.reconfirm(R, A, 31_000) == Updated()
        assert (await runs.get(R)).heartbeat_at_ms == 31_000
        assert await runs.reconfirm("missing", A, 31_000) == NotFound()

    @case(23)
    async def test_a_stolen_run_is_its_new_owners_once_it_is_activated(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        stale = await runs.get(R)
        kit.clock.set(31_000)
        await runs.steal(R, stale, B, 31_000, evidence(A, B, 31_000))
        assert await runs.activate(R, B, 31_000, stale) == Activated()
        assert await runs.heartbeat(R, A, 31_001) == FenceLost()
        assert (await runs.get(R)).owner == B

    @case(28)
    async def test_a_lapsed_lease_is_evidence_from_anywhere_once_it_has_lapsed(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        read = await runs.get(R)
        kit.clock.set(30_001)
        assert await runs.steal(R, read, C, 29_999, LivenessEvidence(A, 29_999, "lease-expired")) == HeartbeatFresh()
        naming_another = LivenessEvidence(C, 30_001, "lease-expired")
        assert await runs.steal(R, read, C, 30_001, naming_another) == LivenessUnconfirmed()
        assert await runs.steal(R, read, C, 30_001, LivenessEvidence(A, 30_001, "lease-expired")) == Claimed(30_001)

    @case(36, 37)
    async def test_suspending_under_a_pending_steal_leaves_no_stuck_claim(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        stale = await runs.get(R)
        kit.clock.set(31_000)
        await runs.steal(R, stale, B, 31_000, evidence(A, B, 31_000))
        assert await runs.transition_owned(R, A, "suspended", '{"reason":"opaque"}') == Transitioned()
        row = await runs.get(R)
        assert (row.owner, row.heartbeat_at_ms, row.claim, row.claimed_at_ms) == (None, None, None, None)
        assert (row.finished_at_ms, row.state_json) == (None, '{"reason":"opaque"}')
        assert await runs.claim(R, row, C, 31_000) == Claimed(31_000)

    async def test_a_steal_that_fails_says_why(self, kit: Kit, runs: Any) -> None:
        await activated(runs)
        read = await runs.get(R)
        now = 31_000
        kit.clock.set(now)
        proof = evidence(A, C, now)
        assert await runs.steal("nowhere", read, C, now, proof) == NotFound()
        assert await runs.steal(R, PENDING, C, now, proof) == LivenessUnconfirmed()
        assert await runs.steal(R, read, B, now, evidence(A, B, now)) == Claimed(now)
        assert await runs.steal(R, read, C, now, proof) == AlreadyClaimed()
        assert await runs.abandon_claim(R, B, now) == Abandoned()
        assert await runs.transition_owned(R, A, "suspended") == Transitioned()
        assert await runs.steal(R, read, C, now, proof) == SnapshotChanged()
        assert (await runs.get(R)).claim is None

    @case(92)
    async def test_a_claim_is_no_ownership_and_the_owner_writes_until_it_is_activated(
        self, kit: Kit, runs: Any
    ) -> None:
        attempts = kit.stores.attempts
        await runs.create(R, "{}")
        assert await runs.claim(R, PENDING, A, 0) == Claimed(0)
        for name in ("heartbeat", "reconfirm"):
            assert await getattr(runs, name)(R, A, 0) == FenceLost()
        assert await runs.transition_owned(R, A, "failed") == FenceLost()
        assert await attempts.put(RUNNING, A) == FenceLost()
        assert await runs.activate(R, A, 0, PENDING) == Activated()
        assert await attempts.put(RUNNING, A) == Inserted()
        stale = await runs.get(R)
        kit.clock.set(31_000)
        assert await runs.steal(R, stale, B, 31_000, evidence(A, B, 31_000)) == Claimed(31_000)
        assert await attempts.put(RUNNING, B) == FenceLost()
        assert await runs.transition_owned(R, A, "running", "1") == Transitioned()
        assert await attempts.finish(finish(), A) == Finished()
        assert await runs.transition_owned(R, A, "suspended") == Transitioned()
        for owner in (A, B):
            assert await runs.heartbeat(R, owner, 31_000) == FenceLost()
            assert await attempts.put(replace(RUNNING, attempt=2), owner) == FenceLost()
