"""What people say to a run without owning it: decisions and cancellation."""

from typing import Final

from sqlalchemy import Connection, bindparam, select, update

from belay_core import commands
from belay_core.admission import engine as admission
from belay_core.admission import json
from belay_core.errors import EngineStoreError
from belay_core.moments import Millis
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.runs import AlreadyRequested, CancelRequested, NotFound, RequestCancelOutcome, Terminal
from belay_core.records.attempt import JsonValue
from belay_core.records.run import is_terminal_run_status
from belay_drivers.sql.children import Noted, close_approval, note, note_at
from belay_drivers.sql.database import Unknown, undone
from belay_drivers.sql.engine_store.base import Role
from belay_drivers.sql.fences import OVER, Held, lock, written
from belay_drivers.sql.hot import decision_facts
from belay_drivers.sql.keys import key_of
from belay_drivers.sql.news import MARKED
from belay_drivers.sql.rows import Columns, status_of
from belay_drivers.sql.tables import approvals, runs, values

_APPROVAL: Final = (
    select(approvals, values.c.full_id)
    .outerjoin(values, values.c.run_id == approvals.c.run_id)
    .where(approvals.c.approval_id == bindparam("b_approval"))
)
_MARK: Final = update(runs).where(runs.c.run_id == bindparam("b_run")).values(ready_at=MARKED)
_CANCEL: Final = (
    update(runs)
    .where(
        runs.c.run_id == bindparam("b_run"),
        runs.c.cancel_requested_at.is_(None),
        runs.c.status.not_in(OVER),
    )
    .values(cancel_requested_at=bindparam("b_now"), ready_at=MARKED, last_entry=runs.c.last_entry + 1)
    .returning(*runs.c)
)
_CANCELLATION: Final = select(runs.c.status, runs.c.cancel_requested_at).where(runs.c.run_id == bindparam("b_run"))
_REQUESTED: Final = "cancel_requested"
COUNTING: Final = ("approved", "rejected")


def mark(tx: Connection, held: Held) -> None:
    """Say that a run has something to look at, whoever owns it."""
    tx.execute(_MARK, {"b_run": held.key, "b_now": held.now_ms})


class Deciding(Role):
    """``decide`` and ``cancel``."""

    async def decide(self, command: commands.Decide) -> outcomes.DecideOutcome:
        """Answer a gate; one decision counts."""
        admission.decide(command)
        decision = _Decision(command, self._now())
        ended = await self._guard("decide", self._decide(command, decision))
        if isinstance(ended, outcomes.Decided):
            self._parts.wakes.poke(decision.run_id, ready=True)
        return ended

    async def _decide(self, command: commands.Decide, decision: "_Decision") -> outcomes.DecideOutcome:
        """Straight where that does, else in steps; in somebody else's transaction nothing is done behind its back."""
        parts = self._parts
        if parts.coalescer is None:
            return await parts.database.write(decision.made, decision.repeated)
        sent = await parts.hot.decide(command, decision.now_ms)
        if isinstance(sent, Unknown):
            return await parts.database.write(decision.repeated)
        if sent.value is None:
            return await parts.database.write(decision.made, decision.repeated)
        decision.run_id = sent.value
        return outcomes.Decided(decision.now_ms)

    async def cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        """Ask a run to stop."""
        admission.cancel(command)
        ended = await self._guard("cancel", self._cancel(command))
        if isinstance(ended, CancelRequested):
            self._parts.wakes.poke(command.run_id, ready=True)
        return ended

    async def _cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        request = _Request(command, self._now())
        return await self._parts.database.write(request, request.again)


class _Decision:
    """One decision; made twice it counts once. ``run_id`` is known once it was made."""

    def __init__(self, command: commands.Decide, now_ms: Millis) -> None:
        self.run_id: str | None = None
        self._command = command
        self.now_ms = now_ms

    def made(self, tx: Connection) -> outcomes.DecideOutcome:
        """Store it."""
        return self._made(tx, again=False)

    def repeated(self, tx: Connection) -> outcomes.DecideOutcome:
        """Store it, unless that was done by the sending whose reply is missing."""
        return self._made(tx, again=True)

    def _made(self, tx: Connection, *, again: bool) -> outcomes.DecideOutcome:
        asked = self._asked(tx)
        held = None if asked is None else lock(tx, asked["run_id"], self.now_ms)
        # Read anew under the lock: what was read above may have been decided while we waited for it.
        asked = None if held is None else self._asked(tx)
        if held is None or asked is None:
            return undone(tx, outcomes.NoSuchApproval())
        self.run_id = asked["full_id"] or asked["run_id"]
        refusal = self._refusal(asked, held)
        if isinstance(refusal, outcomes.AlreadyDecided) and again and self._is_ours(asked):
            return undone(tx, outcomes.Decided(self.now_ms))
        if refusal is not None:
            return undone(tx, refusal)
        self._store(tx, held, asked["gate"])
        return outcomes.Decided(self.now_ms)

    def _asked(self, tx: Connection) -> Columns | None:
        return tx.execute(_APPROVAL, {"b_approval": self._command.approval_id}).mappings().one_or_none()

    def _refusal(self, asked: Columns, held: Held) -> outcomes.DecideOutcome | None:
        if asked["decision"] in COUNTING:
            return outcomes.AlreadyDecided(asked["decision"], asked["decided_by"], asked["decided_at"])
        lapsed = asked["lapse_at"] is not None and held.now_ms >= asked["lapse_at"]
        if asked["decision"] is not None or lapsed or held.row["status"] in OVER:
            return outcomes.TooLate()
        if asked["subject_digest"] != self._command.digest:
            return outcomes.SubjectChanged()
        return None

    def _is_ours(self, asked: Columns) -> bool:
        given = self._command
        stored = (asked["decision"], asked["decided_by"], asked["decided_at"], asked["edited_digest"])
        return stored == (given.decision, given.by, self.now_ms, given.edited_digest)

    def _store(self, tx: Connection, held: Held, gate: str) -> None:
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
        note(tx, held, "decided", decision_facts(given, gate))


class _Request:
    """One request to stop; made twice it counts once."""

    def __init__(self, command: commands.Cancel, now_ms: Millis) -> None:
        self._key = key_of(command.run_id)
        self._facts: dict[str, JsonValue] = {"by": command.by}
        self._now = now_ms
        self._sent: Noted | None = None

    def __call__(self, tx: Connection) -> RequestCancelOutcome:
        """Store it."""
        row = tx.execute(_CANCEL, {"b_run": self._key, "b_now": self._now}).mappings().one_or_none()
        if row is None:
            return undone(tx, _cancelled_before(tx, self._key))
        entry: int = row["last_entry"]
        note_at(tx, written(self._key, self._now, row), entry, _REQUESTED, self._facts)
        self._sent = Noted(self._key, entry, self._now, _REQUESTED, json.encode(self._facts))
        return CancelRequested(self._now)

    def again(self, tx: Connection) -> RequestCancelOutcome:
        """Store it, unless that was done by the sending whose reply is missing."""
        # Waits for that sending, should it be about to commit.
        lock(tx, self._key, self._now)
        if self._sent is not None and self._sent.stands(tx):
            return undone(tx, CancelRequested(self._now))
        return self(tx)


def _cancelled_before(tx: Connection, run_key: str) -> RequestCancelOutcome:
    row = tx.execute(_CANCELLATION, {"b_run": run_key}).mappings().one_or_none()
    if row is None:
        return NotFound()
    status = status_of(row)
    if is_terminal_run_status(status):
        return Terminal(status)
    if row["cancel_requested_at"] is None:
        raise EngineStoreError(
            "persistence_failed",
            "cancel",
            "guarded cancellation update missed a live unrequested row",
            {"stage": "write-invariant"},
        )
    return AlreadyRequested(row["cancel_requested_at"])
