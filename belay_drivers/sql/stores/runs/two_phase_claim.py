"""Claims in two phases, reserve and own, also of a dead owner's run."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy import func

from belay_core import limits
from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunRow, RunSnapshot, RunStatus
from belay_core.stores.run_contract import (
    AbandonClaimOutcome,
    Abandoned,
    Activated,
    ActivateOutcome,
    ClaimChanged,
    Claimed,
    ClaimFresh,
    ClaimLost,
    ClaimOutcome,
    LivenessUnconfirmed,
    NotFound,
    RecoverClaimOutcome,
    Recovered,
    RunInput,
    SnapshotChanged,
    StealOutcome,
    evidence_matches,
)
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import UNCLAIMED
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.stores.runs.base import RunRole, owner_columns
from belay_drivers.sql.stores.runs.claim_and_own import is_as_read, is_stale, is_unclaimed, loss_of
from belay_drivers.sql.stores.runs.ownership_write import Change, Verdict, noted_write

A = TypeVar("A")

_RESERVABLE: Final = (RunStatus.PENDING.value, RunStatus.SUSPENDED.value)


class ReserveRuns(RunRole):
    """``claim``, ``activate``, ``abandon_claim``, ``recover_claim`` and ``steal``."""

    async def claim(
        self, run_id: RunId, expected: RunSnapshot | RunRow, claimant: OwnerId, now_ms: Millis
    ) -> ClaimOutcome:
        """Reserve a pending or suspended run that still matches ``expected`` (6.7)."""
        given = RunInput("claim")
        run_id = given.run_id(run_id)
        read = given.snapshot(expected)
        claimant = given.owner(claimant, "claimant")
        now_ms = given.lease_reading(now_ms, self._clock, run_id)

        def judge(row: Columns | None) -> Verdict[ClaimOutcome]:
            if row is None or row["status"] not in _RESERVABLE or not (is_as_read(row, read) and is_unclaimed(row)):
                return Verdict(loss_of(row, now_ms))
            return Verdict(Claimed(now_ms), Change(_claim_of(claimant, now_ms), "ownership.claimed", claimant, now_ms))

        return await self._noted("claim", run_id, now_ms, judge)

    async def activate(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis, expected: RunSnapshot | RunRow
    ) -> ActivateOutcome:
        """Turn a claim into ownership; if the run has changed, the claim is released (6.9)."""
        given = RunInput("activate")
        run_id = given.run_id(run_id)
        claimant = given.owner(claimant, "claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")
        read = given.snapshot(expected)
        now_ms = self._now()

        def judge(row: Columns | None) -> Verdict[ActivateOutcome]:
            if row is None or not _is_claimed(row, claimant, claimed_at_ms):
                return Verdict(ClaimLost())
            if not is_as_read(row, read):
                return Verdict(SnapshotChanged(), Change(UNCLAIMED, "ownership.released", claimant, claimed_at_ms))
            return Verdict(
                Activated(), Change(_owned_from(claimant, now_ms), "ownership.activated", claimant, claimed_at_ms)
            )

        return await self._noted("activate", run_id, now_ms, judge)

    async def abandon_claim(self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis) -> AbandonClaimOutcome:
        """Release a claim; owner and heartbeat are unchanged (6.10)."""
        given = RunInput("abandon_claim")
        run_id = given.run_id(run_id)
        claimant = given.owner(claimant, "claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")

        def judge(row: Columns | None) -> Verdict[AbandonClaimOutcome]:
            if row is None or not _is_claimed(row, claimant, claimed_at_ms):
                return Verdict(ClaimLost())
            return Verdict(Abandoned(), Change(UNCLAIMED, "ownership.released", claimant, claimed_at_ms))

        return await self._noted("abandon_claim", run_id, self._now(), judge)

    async def recover_claim(
        self,
        run_id: RunId,
        stale_claimant: OwnerId,
        claimed_at_ms: Millis,
        observer: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> RecoverClaimOutcome:
        """Clear a stale claim with evidence that its claimant is dead (6.11)."""
        given = RunInput("recover_claim")
        run_id = given.run_id(run_id)
        stale_claimant = given.owner(stale_claimant, "stale_claimant")
        claimed_at_ms = given.moment(claimed_at_ms, "claimed_at_ms")
        observer = given.owner(observer, "observer")
        now_ms = given.lease_reading(now_ms, self._clock, run_id, claimed_at_ms=claimed_at_ms)
        if not evidence_matches(stale_claimant, observer, now_ms, given.proof(evidence)):
            return LivenessUnconfirmed()

        def judge(row: Columns | None) -> Verdict[RecoverClaimOutcome]:
            if row is None:
                return Verdict(NotFound())
            if not _is_claimed(row, stale_claimant, claimed_at_ms):
                return Verdict(ClaimChanged())
            if claimed_at_ms >= now_ms - limits.HEARTBEAT_STALE_AFTER:
                return Verdict(ClaimFresh())
            return Verdict(Recovered(), Change(UNCLAIMED, "ownership.expired", stale_claimant, claimed_at_ms))

        return await self._noted("recover_claim", run_id, now_ms, judge)

    async def steal(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        claimant: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> StealOutcome:
        """Reserve a running run whose owner is stale and proven dead; the owner is kept until activation (6.15)."""
        given = RunInput("steal")
        run_id = given.run_id(run_id)
        read = given.snapshot(expected)
        claimant = given.owner(claimant, "claimant")
        now_ms = given.lease_reading(now_ms, self._clock, run_id)
        proof = given.proof(evidence)
        if read.owner is None or not evidence_matches(read.owner, claimant, now_ms, proof):
            return LivenessUnconfirmed()

        def judge(row: Columns | None) -> Verdict[StealOutcome]:
            if row is None or not (
                is_as_read(row, read) and is_unclaimed(row) and is_stale(row["heartbeat_at"], now_ms)
            ):
                return Verdict(loss_of(row, now_ms))
            return Verdict(Claimed(now_ms), Change(_claim_of(claimant, now_ms), "ownership.stolen", claimant, now_ms))

        return await self._noted("steal", run_id, now_ms, judge)

    async def _noted(
        self, method: str, run_id: RunId, now_ms: Millis, judge: Callable[[Columns | None], Verdict[A]]
    ) -> A:
        write = noted_write(key_of(run_id), now_ms, judge)
        return await self._guard(method, self._database.write(write, write.again), run_id)


def _is_claimed(row: Columns, claimant: OwnerId, claimed_at_ms: Millis) -> bool:
    claim = (row["claim_host_id"], row["claim_pid"], row["claim_nonce"], row["claimed_at"])
    return claim == (claimant.host_id, claimant.pid, claimant.nonce, claimed_at_ms)


def _claim_of(claimant: OwnerId, now_ms: Millis) -> dict[str, Any]:
    return {
        "claim_host_id": claimant.host_id,
        "claim_pid": claimant.pid,
        "claim_nonce": claimant.nonce,
        "claimed_at": now_ms,
    }


def _owned_from(claimant: OwnerId, now_ms: Millis) -> dict[str, Any]:
    return {
        **UNCLAIMED,
        **owner_columns(claimant),
        "status": RunStatus.RUNNING.value,
        "started_at": func.coalesce(runs.c.started_at, now_ms),
        "finished_at": None,
        "heartbeat_at": now_ms,
        "ready_at": None,
        "epoch": runs.c.epoch + 1,
        "last_nonce": claimant.nonce,
    }
