"""Waiting under a lease: gates and sleeps, opened and closed by the owner."""

from sqlalchemy import Connection, select

from belay_core import commands
from belay_core.limits import MAX_SAFE_INTEGER
from belay_core.moments import Millis
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.attempts import Conflict, ExistingSame, Inserted
from belay_core.records.step_record import StepRecord
from belay_core.records.workflow_run import ApprovalRecord
from belay_drivers.sql.bulk import Opening, Plain
from belay_drivers.sql.children import add_approval, all_stored, close_approval, note
from belay_drivers.sql.database import undone
from belay_drivers.sql.engine_store.base import MISSED, Missed, OwnedRole, Shared, Sharing
from belay_drivers.sql.engine_store.owned import recorded
from belay_drivers.sql.fences import Fence, Held
from belay_drivers.sql.keys import step_digest
from belay_drivers.sql.rows import APPROVALS, Columns, approval_record
from belay_drivers.sql.tables import approvals


class Gates(OwnedRole):
    """``ask``, ``sleep``, ``withdraw`` and ``lapse``."""

    async def ask(self, command: commands.Ask) -> outcomes.AskOutcome:
        """Open a gate."""

        def open_gate(tx: Connection, fence: Fence) -> outcomes.AskOutcome | Missed:
            held = fence.hold(tx)
            if held is None:
                return undone(tx, MISSED)
            if not self._parts.children.add_attempt(tx, held, fence.lease.epoch, command.attempt):
                return undone(tx, _asked_before(tx, held, command))
            add_approval(tx, held, command.approval)
            gate, approval_id = command.approval.gate, command.approval.approval_id
            note(tx, held, "asked", {"gate": gate, "approval_id": approval_id})
            return Inserted()

        # A question is stored under the key of its attempt; one that is given another key goes in steps.
        is_its_own = command.approval.step_key == command.attempt.step_key
        shared = _opening(command.attempt, command.approval) if is_its_own else None
        return await self._guard("ask", self._owned(command.lease, open_gate, recall=_inserted, shared=shared))

    async def sleep(self, command: commands.Sleep) -> outcomes.SleepOutcome:
        """Begin a sleep."""

        def begin(tx: Connection, fence: Fence) -> outcomes.SleepOutcome | Missed:
            held = fence.hold(tx)
            if held is None:
                return undone(tx, MISSED)
            if self._parts.children.add_attempt(tx, held, fence.lease.epoch, command.attempt):
                return Inserted()
            return undone(tx, _same(tx, held, command.attempt))

        shared = _opening(command.attempt)
        return await self._guard("sleep", self._owned(command.lease, begin, recall=_inserted, shared=shared))

    async def withdraw(self, command: commands.Withdraw) -> outcomes.WithdrawOutcome:
        """Close a gate nobody wants any more."""

        def close(tx: Connection, fence: Fence) -> outcomes.WithdrawOutcome | Missed:
            held = fence.hold(tx, progress=True)
            if held is None:
                return undone(tx, MISSED)
            if not self._parts.children.put_attempts(tx, held, fence.lease.epoch, (command.attempt,)):
                return undone(tx, Conflict())
            asked = _asked_at(tx, held, step_digest(command.attempt.step_key))
            if asked is not None and asked["decision"] is None:
                close_approval(tx, held, asked["approval_id"], {"decision": "withdrawn"})
                note(tx, held, "withdrawn", {"gate": asked["gate"], "approval_id": asked["approval_id"]})
            return recorded(held)

        return await self._guard("withdraw", self._owned(command.lease, close))

    async def lapse(self, command: commands.Lapse) -> outcomes.LapseOutcome:
        """Close a gate nobody decided in time."""

        def close(tx: Connection, fence: Fence) -> outcomes.LapseOutcome | Missed:
            held = fence.hold(tx, progress=True)
            if held is None:
                return undone(tx, MISSED)
            asked = _asked_as(tx, held, command.approval_id)
            refusal = outcomes.NoSuchApproval() if asked is None else _not_lapsed(asked, held.now_ms)
            if asked is None or refusal is not None:
                return undone(tx, refusal or outcomes.NoSuchApproval())
            if not self._parts.children.put_attempts(tx, held, fence.lease.epoch, (command.attempt,)):
                return undone(tx, Conflict())
            close_approval(tx, held, command.approval_id, {"decision": "lapsed"})
            note(tx, held, "lapsed", {"gate": asked["gate"], "approval_id": command.approval_id})
            return recorded(held)

        return await self._guard("lapse", self._owned(command.lease, close))


def _opening(attempt: StepRecord, approval: ApprovalRecord | None = None) -> Sharing[outcomes.AskOutcome]:
    """The beginning of a wait as work that shares a commit."""

    def answer(_plain: Plain, _fence: Fence) -> outcomes.AskOutcome:
        return Inserted()

    return Shared(lambda fence: Opening(fence, attempt, approval), answer)


def _inserted(_tx: Connection) -> Inserted:
    """The answer to a beginning that counted: one that met another attempt does not count."""
    return Inserted()


def _not_lapsed(asked: Columns, now_ms: Millis) -> outcomes.NotYet | outcomes.AlreadyDecided | None:
    lapse_at = MAX_SAFE_INTEGER if asked["lapse_at"] is None else asked["lapse_at"]
    if now_ms < lapse_at:
        return outcomes.NotYet(lapse_at)
    if asked["decision"] is None:
        return None
    return outcomes.AlreadyDecided(asked["decision"], asked["decided_by"], asked["decided_at"])


def _asked_as(tx: Connection, held: Held, approval_id: str) -> Columns | None:
    statement = select(approvals).where(approvals.c.approval_id == approval_id, approvals.c.run_id == held.key)
    return tx.execute(statement).mappings().one_or_none()


def _asked_at(tx: Connection, held: Held, digest: str) -> Columns | None:
    statement = select(approvals).where(approvals.c.run_id == held.key, approvals.c.step_key_digest == digest)
    return tx.execute(statement).mappings().one_or_none()


def _same(tx: Connection, held: Held, attempt: StepRecord) -> Conflict | ExistingSame:
    return ExistingSame() if all_stored(tx, held.key, (attempt,)) else Conflict()


def _asked_before(tx: Connection, held: Held, command: commands.Ask) -> Conflict | ExistingSame:
    if isinstance(_same(tx, held, command.attempt), Conflict):
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
