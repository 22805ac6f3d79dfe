"""Become the owner of a run in one step."""

from functools import partial
from typing import Final

from sqlalchemy import Connection, bindparam, func, update

from belay_core import limits
from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunRow, RunSnapshot, RunStatus
from belay_core.stores.run_contract import (
    Activated,
    AlreadyClaimed,
    ClaimAndOwnOutcome,
    ClaimLoss,
    EvidenceRequired,
    HeartbeatFresh,
    NotFound,
    RunInput,
    SnapshotChanged,
    evidence_matches,
)
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import Held, lock
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.statements.run_rows import note_at
from belay_drivers.sql.stores.runs.base import RunRole, owned_by, owner_columns, ownership_facts, row_of

CLAIMABLE: Final = (RunStatus.PENDING.value, RunStatus.SUSPENDED.value, RunStatus.RUNNING.value)
_CLAIM_COLUMNS: Final = ("claim_host_id", "claim_pid", "claim_nonce", "claimed_at")


class ClaimRuns(RunRole):
    """``claim_and_own``."""

    async def claim_and_own(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        owner: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence | None = None,
    ) -> ClaimAndOwnOutcome:
        """Own the run in one step, if it still matches ``expected`` (6.8)."""
        given = RunInput("claim_and_own")
        run_id = given.run_id(run_id)
        read = given.snapshot(expected)
        owner = given.owner(owner)
        now_ms = given.lease_reading(now_ms, self._clock, run_id)
        proof = given.evidence(evidence)
        run_key = key_of(run_id)
        if not _may_take(read, owner, now_ms, proof):
            work = self._database.read(lambda tx: _unproven(row_of(tx, run_key), read, now_ms))
            return await self._guard("claim_and_own", work, run_id)
        claim = _Claim(run_key, read, owner, now_ms)
        return await self._guard("claim_and_own", self._database.write(claim, partial(claim, again=True)), run_id)


class _Claim:
    """One claim; it keeps what it found, to detect after a lost reply that it was committed."""

    def __init__(self, run_key: str, expected: RunSnapshot, owner: OwnerId, now_ms: Millis) -> None:
        self._key = run_key
        self._expected = expected
        self._owner = owner
        self._now = now_ms
        self._epoch: int | None = None

    def __call__(self, tx: Connection, *, again: bool = False) -> ClaimAndOwnOutcome:
        held = lock(tx, self._key, self._now)
        if held is not None and again and self._arrived(held.row):
            return undone(tx, Activated())
        if held is None or not self._is_open(held.row):
            return undone(tx, loss_of(None if held is None else held.row, self._now))
        self._epoch = held.row["epoch"]
        self._take(tx, held)
        return Activated()

    def _is_open(self, row: Columns) -> bool:
        return (
            row["status"] in CLAIMABLE
            and is_as_read(row, self._expected)
            and is_unclaimed(row)
            and (row["status"] != RunStatus.RUNNING.value or is_stale(row["heartbeat_at"], self._now))
        )

    def _arrived(self, row: Columns) -> bool:
        return self._epoch is not None and row["epoch"] == self._epoch + 1 and owned_by(row) == self._owner

    def _take(self, tx: Connection, held: Held) -> None:
        facts = self._facts(owned_by(held.row))
        tx.execute(
            update(runs)
            .where(runs.c.run_id == bindparam("b_run"))
            .values(
                status=RunStatus.RUNNING.value,
                **owner_columns(self._owner),
                heartbeat_at=self._now,
                started_at=func.coalesce(runs.c.started_at, self._now),
                finished_at=None,
                ready_at=None,
                epoch=runs.c.epoch + 1,
                last_nonce=self._owner.nonce,
                last_entry=runs.c.last_entry + len(facts),
            ),
            {"b_run": self._key},
        )
        for entry, (kind, granted) in enumerate(facts, held.row["last_entry"] + 1):
            note_at(tx, held, entry, kind, ownership_facts(self._owner, granted))

    def _facts(self, before: OwnerId | None) -> list[tuple[str, Millis | None]]:
        activated = ("ownership.activated", self._now)
        if before is None:
            return [("ownership.claimed", self._now), activated]
        if before == self._owner:
            return [("ownership.released", None), ("ownership.claimed", self._now), activated]
        return [("ownership.stolen", self._now), activated]


def _may_take(expected: RunSnapshot, owner: OwnerId, now_ms: Millis, evidence: LivenessEvidence | None) -> bool:
    """Whether the run has no owner, or there is evidence that its owner is dead."""
    if expected.owner is None or expected.owner == owner:
        return True
    return evidence is not None and evidence_matches(expected.owner, owner, now_ms, evidence)


def _unproven(row: Columns | None, expected: RunSnapshot, now_ms: Millis) -> ClaimAndOwnOutcome:
    loss = loss_of(row, now_ms)
    if isinstance(loss, SnapshotChanged) and row is not None and is_as_read(row, expected):
        return EvidenceRequired()
    return loss


def loss_of(row: Columns | None, now_ms: Millis) -> ClaimLoss:
    """Why a claim failed; the first reason in their fixed order."""
    if row is None:
        return NotFound()
    if row["claim_host_id"] is not None:
        return AlreadyClaimed()
    if row["status"] == RunStatus.RUNNING.value and not is_stale(row["heartbeat_at"], now_ms):
        return HeartbeatFresh()
    return SnapshotChanged()


def is_as_read(row: Columns, expected: RunSnapshot) -> bool:
    """Whether the run is unchanged since the caller read it."""
    return (
        row["status"] == expected.status.value
        and owned_by(row) == expected.owner
        and row["heartbeat_at"] == expected.heartbeat_at_ms
    )


def is_unclaimed(row: Columns) -> bool:
    """Whether the run has no claim."""
    return all(row[name] is None for name in _CLAIM_COLUMNS)


def is_stale(stamp: Millis, now_ms: Millis) -> bool:
    """Whether a time (ms) is over thirty seconds old; exactly that old is fresh."""
    return stamp < now_ms - limits.HEARTBEAT_STALE_AFTER
