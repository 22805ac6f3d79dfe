"""Becoming the owner of a run."""

from typing import Final

from typing_extensions import override

from belay_core.clock import Clock, Millis, reading
from belay_core.ids import RunId
from belay_core.limits import HEARTBEAT_STALE_AFTER
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunRow, RunSnapshot, RunStatus, is_terminal_run_status
from belay_core.stores import run_contract as outcomes
from belay_core.stores.run_contract import (
    Activated,
    Claimed,
    ClaimLost,
    Claims,
    LivenessUnconfirmed,
    NotFound,
    RunInput,
    SnapshotChanged,
    TwoPhaseClaims,
    evidence_matches,
)
from belay_jsonl.book import Book, for_runs
from belay_jsonl.tables import Transaction, is_fresh, loss

_RESERVABLE: Final = {RunStatus.PENDING, RunStatus.SUSPENDED}


class JsonlClaims(Claims, TwoPhaseClaims):
    """Claims over a file; each decides under the file's lock."""

    _book: Book
    _clock: Clock

    @override
    async def claim(
        self, run_id: RunId, expected: RunSnapshot | RunRow, claimant: OwnerId, now_ms: Millis
    ) -> outcomes.ClaimOutcome:
        given = RunInput("claim")
        run_id, read = given.run_id(run_id), given.snapshot(expected)
        claimant = given.owner(claimant, "claimant")
        now_ms = given.lease_reading(now_ms, self._clock, run_id)

        def decide(change: Transaction) -> outcomes.ClaimOutcome:
            row = change.tables.runs.get(run_id)
            if row is None or row.status not in _RESERVABLE or row.snapshot != read or row.claim is not None:
                return loss(row, now_ms)
            change.change_run(run_id, claim=claimant, claimed_at_ms=now_ms)
            return Claimed(now_ms)

        return await for_runs(self._book, "claim", decide)

    @override
    async def claim_and_own(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        owner: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence | None = None,
    ) -> outcomes.ClaimAndOwnOutcome:
        given = RunInput("claim_and_own")
        run_id, read, owner = given.run_id(run_id), given.snapshot(expected), given.owner(owner)
        now_ms = given.lease_reading(now_ms, self._clock, run_id)
        proof = given.evidence(evidence)
        another = read.owner if read.owner != owner else None
        proven = another is None or (proof is not None and evidence_matches(another, owner, now_ms, proof))

        def decide(change: Transaction) -> outcomes.ClaimAndOwnOutcome:
            row = change.tables.runs.get(run_id)
            if row is None or row.claim is not None or row.snapshot != read or is_fresh(row, now_ms):
                return loss(row, now_ms)
            if is_terminal_run_status(row.status):
                return SnapshotChanged()
            if not proven:
                return outcomes.EvidenceRequired()
            return _own(change, row, owner, now_ms)

        return await for_runs(self._book, "claim_and_own", decide)

    @override
    async def activate(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis, expected: RunSnapshot | RunRow
    ) -> outcomes.ActivateOutcome:
        given = RunInput("activate")
        run_id, claimant = given.run_id(run_id), given.owner(claimant, "claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")
        read = given.snapshot(expected)
        now_ms = reading(self._clock)

        def decide(change: Transaction) -> outcomes.ActivateOutcome:
            row = change.tables.runs.get(run_id)
            if not _claimed(row, claimant, claimed_at_ms) or row is None:
                return ClaimLost()
            if row.snapshot != read:
                change.change_run(run_id, claim=None, claimed_at_ms=None)
                return SnapshotChanged()
            return _own(change, row, claimant, now_ms)

        return await for_runs(self._book, "activate", decide)

    @override
    async def abandon_claim(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis
    ) -> outcomes.AbandonClaimOutcome:
        given = RunInput("abandon_claim")
        run_id, claimant = given.run_id(run_id), given.owner(claimant, "claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")

        def decide(change: Transaction) -> outcomes.AbandonClaimOutcome:
            if not _claimed(change.tables.runs.get(run_id), claimant, claimed_at_ms):
                return ClaimLost()
            change.change_run(run_id, claim=None, claimed_at_ms=None)
            return outcomes.Abandoned()

        return await for_runs(self._book, "abandon_claim", decide)

    @override
    async def recover_claim(
        self,
        run_id: RunId,
        stale_claimant: OwnerId,
        claimed_at_ms: Millis,
        observer: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> outcomes.RecoverClaimOutcome:
        given = RunInput("recover_claim")
        run_id, stale_claimant = given.run_id(run_id), given.owner(stale_claimant, "stale_claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")
        observer = given.owner(observer, "observer")
        now_ms = given.lease_reading(now_ms, self._clock, run_id, claimed_at_ms=claimed_at_ms)
        if not evidence_matches(stale_claimant, observer, now_ms, given.proof(evidence)):
            return LivenessUnconfirmed()

        def decide(change: Transaction) -> outcomes.RecoverClaimOutcome:
            row = change.tables.runs.get(run_id)
            if row is None:
                return NotFound()
            if not _claimed(row, stale_claimant, claimed_at_ms):
                return outcomes.ClaimChanged()
            if claimed_at_ms >= now_ms - HEARTBEAT_STALE_AFTER:
                return outcomes.ClaimFresh()
            change.change_run(run_id, claim=None, claimed_at_ms=None)
            return outcomes.Recovered()

        return await for_runs(self._book, "recover_claim", decide)

    @override
    async def steal(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        claimant: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> outcomes.StealOutcome:
        given = RunInput("steal")
        run_id, read = given.run_id(run_id), given.snapshot(expected)
        claimant = given.owner(claimant, "claimant")
        now_ms = given.lease_reading(now_ms, self._clock, run_id)
        proof = given.proof(evidence)
        if read.owner is None or not evidence_matches(read.owner, claimant, now_ms, proof):
            return LivenessUnconfirmed()

        def decide(change: Transaction) -> outcomes.StealOutcome:
            row = change.tables.runs.get(run_id)
            if row is None or row.claim is not None or row.snapshot != read or is_fresh(row, now_ms):
                return loss(row, now_ms)
            change.change_run(run_id, claim=claimant, claimed_at_ms=now_ms)
            return Claimed(now_ms)

        return await for_runs(self._book, "steal", decide)


def _claimed(row: RunRow | None, claimant: OwnerId, claimed_at_ms: Millis) -> bool:
    """Whether this very claim stands."""
    return row is not None and (row.claim, row.claimed_at_ms) == (claimant, claimed_at_ms)


def _own(change: Transaction, row: RunRow, owner: OwnerId, now_ms: Millis) -> Activated:
    change.change_run(
        row.run_id,
        status=RunStatus.RUNNING,
        started_at_ms=now_ms if row.started_at_ms is None else row.started_at_ms,
        finished_at_ms=None,
        owner=owner,
        heartbeat_at_ms=now_ms,
        claim=None,
        claimed_at_ms=None,
    )
    return Activated()
