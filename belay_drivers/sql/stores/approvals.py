"""Approvals in SQL: the questions of gates, and their decisions, of which one counts."""

from typing import Final

from sqlalchemy import Connection, bindparam, select

from belay_core.clock import Millis
from belay_core.errors import ApprovalStoreError
from belay_core.limits import MAX_SAFE_INTEGER
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores.approvals import (
    AlreadyDecided,
    ApprovalStore,
    Decided,
    DecideOutcome,
    LapseOutcome,
    NoSuchApproval,
    NotYet,
    SubjectChanged,
    TooLate,
    check_decide,
)
from belay_core.stores.attempts import BeginOutcome, Conflict, ExistingSame, Inserted, RecordOutcome
from belay_drivers.sql.connection.database import Unknown, undone
from belay_drivers.sql.schema.tables import approvals, attempts, runs, values
from belay_drivers.sql.statements.fences import OVER, Fence, Held, lock
from belay_drivers.sql.statements.hot import decision_facts
from belay_drivers.sql.statements.keys import key_of, step_digest
from belay_drivers.sql.statements.pending_signal import mark
from belay_drivers.sql.statements.rows import (
    APPROVALS,
    Columns,
    approval_record,
)
from belay_drivers.sql.statements.run_rows import add_approval, close_approval, note
from belay_drivers.sql.stores.attempts.record import begin_wait, inserted, recorded, same_attempt
from belay_drivers.sql.stores.base import FENCE_REJECTED, EngineRole, FenceRejected, OwnedRole

_APPROVAL: Final = (
    select(approvals, values.c.full_id)
    .outerjoin(values, values.c.run_id == approvals.c.run_id)
    .where(approvals.c.approval_id == bindparam("b_approval"))
)
_STILL_ASKED: Final = (
    APPROVALS.join(runs, runs.c.run_id == approvals.c.run_id)
    .where(runs.c.status.not_in(OVER))
    .order_by(approvals.c.asked_at, approvals.c.approval_id)
    .limit(bindparam("b_limit"))
)
# Decision and time are null together. The index of open approvals uses the time, so that only this list walks it:
# the open approvals of one run are found by the run.
_OPEN: Final = _STILL_ASKED.where(approvals.c.decided_at.is_(None))
_OPEN_OF_RUN: Final = _STILL_ASKED.where(approvals.c.run_id == bindparam("b_run"), approvals.c.decision.is_(None))
COUNTING: Final = ("approved", "rejected")


class _Gates(OwnedRole):
    """``ask``, ``withdraw`` and ``lapse``: the owner's operations."""

    async def ask(self, command: commands.Ask) -> BeginOutcome:
        """Open a gate."""

        def open_gate(tx: Connection, fence: Fence) -> BeginOutcome | FenceRejected:
            held = fence.hold(tx)
            if held is None:
                return undone(tx, FENCE_REJECTED)
            if not self._parts.children.add_attempt(tx, held, fence.lease.epoch, command.attempt):
                return undone(tx, _asked_before(tx, held, command))
            add_approval(tx, held, command.approval)
            gate, approval_id = command.approval.gate, command.approval.approval_id
            note(tx, held, "asked", {"gate": gate, "approval_id": approval_id})
            return Inserted()

        # An approval has the key of its attempt; a command with another key is executed in steps.
        is_its_own = command.approval.step_key == command.attempt.step_key
        shared = begin_wait(command.attempt, command.approval) if is_its_own else None
        return await self._run_command("ask", self._owned(command.lease, open_gate, reread=inserted, shared=shared))

    async def withdraw(self, command: commands.Withdraw) -> RecordOutcome:
        """Close a gate that its workflow no longer awaits."""

        def close(tx: Connection, fence: Fence) -> RecordOutcome | FenceRejected:
            held = fence.hold(tx, progress=True)
            if held is None:
                return undone(tx, FENCE_REJECTED)
            if not self._parts.children.put_attempts(tx, held, fence.lease.epoch, (command.attempt,)):
                return undone(tx, Conflict())
            asked = _asked_at(tx, held, step_digest(command.attempt.step_key))
            if asked is not None and asked["decision"] is None:
                close_approval(tx, held, asked["approval_id"], {"decision": "withdrawn"})
                note(tx, held, "withdrawn", {"gate": asked["gate"], "approval_id": asked["approval_id"]})
            return recorded(held)

        return await self._run_command("withdraw", self._owned(command.lease, close))

    async def lapse(self, command: commands.Lapse) -> LapseOutcome:
        """Close a gate that was not decided in time."""

        def close(tx: Connection, fence: Fence) -> LapseOutcome | FenceRejected:
            held = fence.hold(tx, progress=True)
            if held is None:
                return undone(tx, FENCE_REJECTED)
            asked = _asked_as(tx, held, command.approval_id)
            refusal = NoSuchApproval() if asked is None else _not_lapsed(asked, held.now_ms)
            if asked is None or refusal is not None:
                return undone(tx, refusal or NoSuchApproval())
            if not self._parts.children.put_attempts(tx, held, fence.lease.epoch, (command.attempt,)):
                return undone(tx, Conflict())
            close_approval(tx, held, command.approval_id, {"decision": "lapsed"})
            note(tx, held, "lapsed", {"gate": asked["gate"], "approval_id": command.approval_id})
            return recorded(held)

        return await self._run_command("lapse", self._owned(command.lease, close))


class _Decisions(EngineRole):
    """``decide``, for any caller with the digest of the subject."""

    async def decide(self, command: commands.Decide) -> DecideOutcome:
        """Decide an approval; one decision counts."""
        check_decide(command)
        decision = _Decision(command, self._now())
        ended = await self._run_command("decide", self._decide(command, decision))
        if isinstance(ended, Decided):
            self._parts.notifier.notify(decision.run_id, ready=True)
        return ended

    async def _decide(self, command: commands.Decide, decision: "_Decision") -> DecideOutcome:
        """By one statement if possible, else in steps; in a caller's transaction always on its connection."""
        parts = self._parts
        if parts.group_commit is None or command.replace:
            return await parts.database.write(decision.made, decision.repeated)
        sent = await parts.hot.decide(command, decision.now_ms)
        if isinstance(sent, Unknown):
            return await parts.database.write(decision.repeated)
        if sent.value is None:
            return await parts.database.write(decision.made, decision.repeated)
        decision.run_id = sent.value
        return Decided(decision.now_ms)


class _Reads(EngineRole):
    """``list`` and ``find``."""

    async def list(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        """Open approvals of runs that have not ended, the oldest first."""
        return await self._run_command("list", self._approvals(command))

    async def _approvals(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        parts, limit = self._parts, max(command.limit, 0)
        key = None if command.run_id is None else key_of(command.run_id)
        if (
            key is not None
            and parts.group_commit is not None
            and (rows := await parts.hot.asked(key, limit)) is not None
        ):
            return tuple(map(approval_record, rows))

        def read(tx: Connection) -> tuple[ApprovalRecord, ...]:
            statement = _OPEN if key is None else _OPEN_OF_RUN
            bound = {"b_limit": limit} if key is None else {"b_limit": limit, "b_run": key}
            return tuple(approval_record(row) for row in tx.execute(statement, bound).mappings().all())

        return await parts.database.read(read)

    async def find(self, approval_id: str) -> ApprovalRecord | None:
        """One approval, decided or not."""
        statement = APPROVALS.where(approvals.c.approval_id == approval_id)

        def read(tx: Connection) -> ApprovalRecord | None:
            row = tx.execute(statement).mappings().one_or_none()
            return None if row is None else approval_record(row)

        return await self._run_command("find", self._parts.database.read(read))


class SqlApprovalStore(_Gates, _Decisions, _Reads, ApprovalStore):
    """Approvals, over one database."""

    error = ApprovalStoreError


class _Decision:
    """One decision; idempotent. ``run_id`` is set by the first execution."""

    def __init__(self, command: commands.Decide, now_ms: Millis) -> None:
        self.run_id: str | None = None
        self._command = command
        self.now_ms = now_ms

    def made(self, tx: Connection) -> DecideOutcome:
        """Store it."""
        return self._made(tx, again=False)

    def repeated(self, tx: Connection) -> DecideOutcome:
        """Store it, unless the try with the lost reply was committed."""
        return self._made(tx, again=True)

    def _made(self, tx: Connection, *, again: bool) -> DecideOutcome:
        asked = self._asked(tx)
        held = None if asked is None else lock(tx, asked["run_id"], self.now_ms)
        # Read again under the lock: it may have been decided during the wait for it.
        asked = None if held is None else self._asked(tx)
        if held is None or asked is None:
            return undone(tx, NoSuchApproval())
        self.run_id = asked["full_id"] or asked["run_id"]
        refusal = self._refusal(tx, asked, held)
        if isinstance(refusal, AlreadyDecided) and again and self._is_ours(asked):
            return undone(tx, Decided(self.now_ms))
        if refusal is not None:
            return undone(tx, refusal)
        self._store(tx, held, asked)
        return Decided(self.now_ms)

    def _asked(self, tx: Connection) -> Columns | None:
        return tx.execute(_APPROVAL, {"b_approval": self._command.approval_id}).mappings().one_or_none()

    def _refusal(self, tx: Connection, asked: Columns, held: Held) -> DecideOutcome | None:
        decided = asked["decision"] in COUNTING
        if decided and not (self._command.replace and _is_unused(tx, asked, held)):
            return AlreadyDecided(asked["decision"], asked["decided_by"], asked["decided_at"])
        lapsed = asked["lapse_at"] is not None and held.now_ms >= asked["lapse_at"]
        closed = not decided and (asked["decision"] is not None or lapsed)
        if closed or held.row["status"] in OVER:
            return TooLate()
        if asked["subject_digest"] != self._command.digest:
            return SubjectChanged()
        return None

    def _is_ours(self, asked: Columns) -> bool:
        given = self._command
        stored = (asked["decision"], asked["decided_by"], asked["decided_at"], asked["edited_digest"])
        return stored == (given.decision, given.by, self.now_ms, given.edited_digest)

    def _store(self, tx: Connection, held: Held, asked: Columns) -> None:
        given = self._command
        changes = {
            "decision": given.decision,
            "decided_by": given.by,
            "reason": given.reason,
            "edited": given.edited,
            "edited_digest": given.edited_digest,
        }
        close_approval(tx, held, given.approval_id, changes)
        mark(tx, held)
        replaces = {} if asked["decision"] is None else {"replaces": asked["decided_by"]}
        note(tx, held, "decided", {**decision_facts(given, asked["gate"]), **replaces})


def _is_unused(tx: Connection, asked: Columns, held: Held) -> bool:
    """Whether no worker has acted on the decision: none owns the run, and its gate still waits."""
    waiting = select(attempts.c.attempt).where(
        attempts.c.run_id == held.key,
        attempts.c.step_key_digest == asked["step_key_digest"],
        attempts.c.state == StepState.WAITING.value,
    )
    return held.row["status"] == RunStatus.SUSPENDED.value and tx.execute(waiting).first() is not None


def _not_lapsed(asked: Columns, now_ms: Millis) -> NotYet | AlreadyDecided | None:
    lapse_at = MAX_SAFE_INTEGER if asked["lapse_at"] is None else asked["lapse_at"]
    if now_ms < lapse_at:
        return NotYet(lapse_at)
    if asked["decision"] is None:
        return None
    return AlreadyDecided(asked["decision"], asked["decided_by"], asked["decided_at"])


def _asked_as(tx: Connection, held: Held, approval_id: str) -> Columns | None:
    statement = select(approvals).where(approvals.c.approval_id == approval_id, approvals.c.run_id == held.key)
    return tx.execute(statement).mappings().one_or_none()


def _asked_at(tx: Connection, held: Held, digest: str) -> Columns | None:
    statement = select(approvals).where(approvals.c.run_id == held.key, approvals.c.step_key_digest == digest)
    return tx.execute(statement).mappings().one_or_none()


def _asked_before(tx: Connection, held: Held, command: commands.Ask) -> Conflict | ExistingSame:
    if isinstance(same_attempt(tx, held, command.attempt), Conflict):
        return Conflict()
    digest = step_digest(command.attempt.step_key)
    row = (
        tx.execute(APPROVALS.where(approvals.c.run_id == held.key, approvals.c.step_key_digest == digest))
        .mappings()
        .one_or_none()
    )
    stored = None if row is None else approval_record(row)
    return ExistingSame() if stored is not None and _question(stored) == _question(command.approval) else Conflict()


def _question(approval: ApprovalRecord) -> tuple[str, str, str, str, Millis, Millis | None]:
    return (
        approval.approval_id,
        approval.gate,
        approval.subject,
        approval.subject_digest,
        approval.asked_at_ms,
        approval.lapse_at_ms,
    )
