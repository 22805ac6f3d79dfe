"""Let a failed or cancelled run go on from its records."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, update

from belay_core.clock import Millis
from belay_core.records import commands
from belay_core.records.attempt import JsonValue
from belay_core.records.run import RunStatus
from belay_core.records.step_record import RETRIED, RETRY_AT, StepKind, StepState
from belay_core.stores.run_contract import NotFound
from belay_core.stores.runs import NotRetryable, Retried, RetryOutcome, check_retry
from belay_core.values import json
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import approvals, attempts, runs, values
from belay_drivers.sql.statements.fences import NOT_WAITING, Held, lock
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns, step_record
from belay_drivers.sql.statements.run_rows import Noted, ask_again, change_attempt, note
from belay_drivers.sql.stores.base import EngineRole

_RETRIED: Final = "belay.retried"
_RETRYABLE: Final = frozenset({RunStatus.FAILED.value, RunStatus.CANCELLED.value})
_ERROR: Final = select(values.c.error).where(values.c.run_id == bindparam("b_run"))
_ATTEMPTS: Final = select(attempts).where(attempts.c.run_id == bindparam("b_run")).order_by(attempts.c.attempt)
_WITHDRAWN: Final = select(approvals.c.step_key_digest, approvals.c.decided_at).where(
    approvals.c.run_id == bindparam("b_run"), approvals.c.decision == "withdrawn"
)
_GO_ON: Final = (
    update(runs)
    .where(runs.c.run_id == bindparam("b_run"))
    .values(
        **{
            **NOT_WAITING,
            "status": RunStatus.SUSPENDED.value,
            "waiting_reason": "released",
            "ready_at": bindparam("b_now"),
            "finished_at": None,
            "cancel_requested_at": None,
            "cancel_acknowledgement": None,
            "takeovers": 0,
        }
    )
)
_FORGET_END: Final = update(values).where(values.c.run_id == bindparam("b_run")).values(result=None, error=None)


class RetryRuns(EngineRole):
    """``retry``."""

    async def retry(self, command: commands.RetryRun) -> RetryOutcome:
        """Let a failed or cancelled run go on from its records."""
        check_retry(command)
        ended = await self._run_command("retry", self._retry(command))
        if isinstance(ended, Retried):
            self._parts.notifier.notify(command.run_id, ready=True)
        return ended

    async def _retry(self, command: commands.RetryRun) -> RetryOutcome:
        write = _RunRetry(command, self._now())
        return await self._parts.database.write(write.store, write.store_again)


class _RunRetry:
    """One retry; idempotent."""

    def __init__(self, command: commands.RetryRun, now_ms: Millis) -> None:
        self._command = command
        self._now = now_ms
        self._sent: tuple[Noted, Retried] | None = None

    def store_again(self, tx: Connection) -> RetryOutcome:
        """Store it, unless the try with the lost reply was committed."""
        return self._store(tx, again=True)

    def store(self, tx: Connection) -> RetryOutcome:
        """Store it."""
        return self._store(tx, again=False)

    def _store(self, tx: Connection, *, again: bool) -> RetryOutcome:
        held = lock(tx, key_of(self._command.run_id), self._now)
        if held is None:
            return undone(tx, NotFound())
        if again and self._sent is not None and self._sent[0].is_stored(tx):
            return undone(tx, self._sent[1])
        status = held.row["status"]
        if status not in _RETRYABLE or held.row["workflow"] is None:
            return undone(tx, NotRetryable(RunStatus(status)))
        rows = tx.execute(_ATTEMPTS, {"b_run": held.key}).mappings().all()
        last = {row["step_key_digest"]: row for row in rows}
        error = _members(tx.execute(_ERROR, {"b_run": held.key}).scalar_one_or_none())
        failed = _failed(list(last.values()), error)
        until = max((row["recorded"] or 0 for row in rows), default=0)
        for row in failed:
            meta = {**_members(row["meta"]), RETRY_AT: self._now, RETRIED: until}
            change_attempt(tx, held, row["step_key_digest"], row["attempt"], {"meta": json.encode(meta)})
        _open_again(tx, held, list(last.values()), min((row["recorded"] for row in failed), default=until))
        tx.execute(_GO_ON, {"b_run": held.key, "b_now": self._now})
        tx.execute(_FORGET_END, {"b_run": held.key})
        return self._noted(tx, held, tuple(step_record(row).step_key for row in failed), error)

    def _noted(self, tx: Connection, held: Held, keys: tuple[str, ...], error: dict[str, JsonValue]) -> Retried:
        facts: dict[str, JsonValue] = {
            "by": self._command.by,
            "reason": self._command.reason,
            "status": held.row["status"],
            "error": {name: error[name] for name in ("type", "message") if name in error},
            "steps": list(keys),
        }
        entry: int = held.row["last_entry"] + 1
        note(tx, held, _RETRIED, facts)
        outcome = Retried(self._now, keys)
        self._sent = Noted(held.key, entry, self._now, _RETRIED, json.encode(facts)), outcome
        return outcome


def _failed(last: Sequence[Columns], error: dict[str, JsonValue]) -> list[Columns]:
    """The failures of steps that failed the run, of the last attempts under all keys; the earliest one first."""
    final = [row for row in last if row["state"] == StepState.FAILED.value and row["recorded"] is not None]
    final.sort(key=lambda row: int(row["recorded"]))
    steps = error.get("steps")
    if isinstance(steps, list):
        return [row for row in final if step_record(row).step_key in steps]
    # A run that another release failed does not say which.
    return final[-1:] if error.get("type") == "StepFailed" else []


def _open_again(tx: Connection, held: Held, last: Sequence[Columns], place: int) -> None:
    """Take back what the end of the run did to calls that were open, and what followed a failure at this place.

    An orphan with which the run was given up is one that nobody knows the end of, as before.
    """
    withdrawn = {row[0]: row[1] for row in tx.execute(_WITHDRAWN, {"b_run": held.key}).all()}
    for row in last:
        digest = row["step_key_digest"]
        followed = (row["recorded"] or 0) > place or withdrawn.get(digest, -1) == held.row["finished_at"]
        if row["state"] == StepState.ORPHANED.value and "resolution" not in _members(row["meta"]):
            change_attempt(tx, held, digest, row["attempt"], {"resolved_by": None, "resolved_at": None})
        elif row["state"] == StepState.CANCELLED.value and row["kind"] != StepKind.STEP.value and followed:
            waiting: dict[str, Any] = {"state": StepState.WAITING.value, "recorded": None, "finished_at": None}
            if row["kind"] == StepKind.SLEEP.value or digest in withdrawn:
                change_attempt(tx, held, digest, row["attempt"], waiting)
                ask_again(tx, held, digest)


def _members(text: str | None) -> dict[str, JsonValue]:
    found = json.decode(text) if text else None
    return found if isinstance(found, dict) else {}
