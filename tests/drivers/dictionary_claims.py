"""Becoming the owner of a run, in dictionaries."""

from typing import Any

from typing_extensions import override

from belay_core import limits
from belay_core.clock import Clock, Millis, reading
from belay_core.ids import RunId
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunRow, RunSnapshot, RunStatus, is_terminal_run_status
from belay_core.stores import run_contract as outcomes
from belay_core.stores.run_contract import (
    Activated,
    Claimed,
    Claims,
    NotFound,
    RunInput,
    SnapshotChanged,
    TwoPhaseClaims,
    evidence_matches,
)
from tests.drivers.dictionary_shelf import Shelf, is_fresh, loss

_RESERVABLE = {RunStatus.PENDING, RunStatus.SUSPENDED}


class DictionaryClaims(Claims, TwoPhaseClaims):
    """``claim_and_own`` and what reserves a run first."""

    def __init__(self, shelf: Shelf, clock: Clock) -> None:
        self._shelf = shelf
        self._clock = clock

    @override
    async def claim(
        self, run_id: RunId, expected: RunSnapshot | RunRow, claimant: OwnerId, now_ms: Millis
    ) -> outcomes.ClaimOutcome:
        given = RunInput("claim")
        run_id, read = given.run_id(run_id), given.snapshot(expected)
        claimant = given.owner(claimant, "claimant")
        now_ms = given.lease_reading(now_ms, self._clock, run_id)
        row = self._shelf.runs.get(run_id)
        if row is None or row.status not in _RESERVABLE or row.snapshot != read or row.claim is not None:
            return loss(row, now_ms)
        self._shelf.change(row, claim=claimant, claimed_at_ms=now_ms)
        return Claimed(now_ms)

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
        row = self._shelf.runs.get(run_id)
        proven = (
            read.owner is None
            or read.owner == owner
            or (proof is not None and evidence_matches(read.owner, owner, now_ms, proof))
        )
        if row is None or row.snapshot != read or row.claim is not None or is_fresh(row, now_ms):
            return loss(row, now_ms)
        if is_terminal_run_status(row.status):
            return SnapshotChanged()
        if not proven:
            return outcomes.EvidenceRequired()
        self._own(row, owner, now_ms)
        return Activated()

    def _own(self, row: RunRow, owner: OwnerId, now_ms: Millis) -> None:
        started = now_ms if row.started_at_ms is None else row.started_at_ms
        owned: dict[str, Any] = {"owner": owner, "heartbeat_at_ms": now_ms, "claim": None, "claimed_at_ms": None}
        self._shelf.change(row, status=RunStatus.RUNNING, started_at_ms=started, finished_at_ms=None, **owned)

    @override
    async def activate(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis, expected: RunSnapshot | RunRow
    ) -> outcomes.ActivateOutcome:
        given = RunInput("activate")
        run_id, claimant = given.run_id(run_id), given.owner(claimant, "claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")
        read = given.snapshot(expected)
        row = self._shelf.runs.get(run_id)
        if row is None or (row.claim, row.claimed_at_ms) != (claimant, claimed_at_ms):
            return outcomes.ClaimLost()
        if row.snapshot != read:
            self._shelf.change(row, claim=None, claimed_at_ms=None)
            return SnapshotChanged()
        self._own(row, claimant, reading(self._clock))
        return Activated()

    @override
    async def abandon_claim(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis
    ) -> outcomes.AbandonClaimOutcome:
        given = RunInput("abandon_claim")
        run_id, claimant = given.run_id(run_id), given.owner(claimant, "claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")
        row = self._shelf.runs.get(run_id)
        if row is None or (row.claim, row.claimed_at_ms) != (claimant, claimed_at_ms):
            return outcomes.ClaimLost()
        self._shelf.change(row, claim=None, claimed_at_ms=None)
        return outcomes.Abandoned()

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
            return outcomes.LivenessUnconfirmed()
        row = self._shelf.runs.get(run_id)
        if row is None:
            return NotFound()
        if (row.claim, row.claimed_at_ms) != (stale_claimant, claimed_at_ms):
            return outcomes.ClaimChanged()
        if claimed_at_ms >= now_ms - limits.HEARTBEAT_STALE_AFTER:
            return outcomes.ClaimFresh()
        self._shelf.change(row, claim=None, claimed_at_ms=None)
        return outcomes.Recovered()

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
            return outcomes.LivenessUnconfirmed()
        row = self._shelf.runs.get(run_id)
        if row is None or row.snapshot != read or row.claim is not None or is_fresh(row, now_ms):
            return loss(row, now_ms)
        self._shelf.change(row, claim=claimant, claimed_at_ms=now_ms)
        return Claimed(now_ms)
