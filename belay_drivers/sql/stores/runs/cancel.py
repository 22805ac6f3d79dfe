"""Request the cancel of a workflow's run."""

from typing import Final

from sqlalchemy import Connection, bindparam, select, update

from belay_core.clock import Millis
from belay_core.errors import RunStoreError
from belay_core.records import commands
from belay_core.records.attempt import JsonValue
from belay_core.records.run import is_terminal_run_status
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, NotFound, RequestCancelOutcome, Terminal
from belay_core.stores.runs import check_cancel
from belay_core.values import json
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import OVER, lock, written
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.pending_signal import MARKED
from belay_drivers.sql.statements.rows import status_of
from belay_drivers.sql.statements.run_rows import Noted, note_at
from belay_drivers.sql.stores.base import EngineRole

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


class CancelRuns(EngineRole):
    """``cancel``."""

    async def cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        """Request the cancel of a run."""
        check_cancel(command)
        ended = await self._run_command("cancel", self._cancel(command))
        if isinstance(ended, CancelRequested):
            self._parts.notifier.notify(command.run_id, ready=True)
        return ended

    async def _cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        request = _CancelRequest(command, self._now())
        return await self._parts.database.write(request, request.again)


class _CancelRequest:
    """One cancel request; idempotent."""

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
        """Store it, unless the try with the lost reply was committed."""
        # Waits for that try, which may be about to commit.
        lock(tx, self._key, self._now)
        if self._sent is not None and self._sent.is_stored(tx):
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
        raise RunStoreError(
            "persistence_failed",
            "cancel",
            "guarded cancellation update missed a live unrequested row",
            {"stage": "write-invariant"},
        )
    return AlreadyRequested(row["cancel_requested_at"])
