"""Store an operator's resolution of a run in review."""

from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select, update

from belay_core.clock import Millis
from belay_core.records import commands
from belay_core.records.attempt import JsonValue
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState
from belay_core.stores.run_contract import NotFound
from belay_core.stores.runs import NotInReview, Resolved, ResolveOutcome, check_resolve
from belay_core.values import json
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import attempts, journal, runs, values
from belay_drivers.sql.statements.fences import NOT_WAITING, OVER, UNCLAIMED, Held, lock
from belay_drivers.sql.statements.keys import key_of, step_digest
from belay_drivers.sql.statements.pending_signal import mark
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.statements.run_rows import Noted, change_attempt, note, withdraw_open
from belay_drivers.sql.stores.base import EngineRole

IN_REVIEW: Final = "needs_review"
_LATEST: Final = (
    select(attempts)
    .where(
        attempts.c.run_id == bindparam("b_run"),
        attempts.c.step_key_digest == bindparam("b_digest"),
    )
    .order_by(attempts.c.attempt.desc())
    .limit(1)
)
_FAIL: Final = (
    update(runs)
    .where(runs.c.run_id == bindparam("b_run"))
    .values(
        status=RunStatus.FAILED.value,
        finished_at=bindparam("b_now"),
        ready_at=None,
        **NOT_WAITING,
        **UNCLAIMED,
    )
)
_FORGIVE: Final = update(runs).where(runs.c.run_id == bindparam("b_run")).values(takeovers=0)
_RESOLVED: Final = "resolved"
_PARKED: Final = select(func.max(journal.c.entry)).where(
    journal.c.run_id == bindparam("b_run"), journal.c.kind == "suspended"
)
_SINCE_PARKED: Final = select(journal.c.facts).where(
    journal.c.run_id == bindparam("b_run"),
    journal.c.kind == _RESOLVED,
    journal.c.entry > func.coalesce(_PARKED.scalar_subquery(), 0),
)
_WORDS: Final = {
    commands.Happened: "happened",
    commands.Retry: "retry",
    commands.GiveUp: "give_up",
}


class ResolveReviews(EngineRole):
    """``resolve``."""

    async def resolve(self, command: commands.Resolve) -> ResolveOutcome:
        """Store an operator's resolution of a run in review."""
        check_resolve(command)
        ended = await self._run_command("resolve", self._resolve(command))
        if isinstance(ended, Resolved):
            self._parts.notifier.notify(command.run_id, ready=True)
        return ended

    async def _resolve(self, command: commands.Resolve) -> ResolveOutcome:
        resolution = _ReviewResolution(command, self._now())
        return await self._parts.database.write(resolution.store, resolution.store_again)


class _ReviewResolution:
    """One resolution; idempotent."""

    def __init__(self, command: commands.Resolve, now_ms: Millis) -> None:
        self._command = command
        self._now = now_ms
        self._facts: dict[str, JsonValue] = {
            "resolution": _WORDS[type(command.resolution)],
            "by": command.by,
            "step_key": command.step_key,
        }
        self._sent: Noted | None = None

    def store_again(self, tx: Connection) -> ResolveOutcome:
        """Store it, unless the try with the lost reply was committed."""
        return self._store(tx, again=True)

    def store(self, tx: Connection) -> ResolveOutcome:
        """Store it."""
        return self._store(tx, again=False)

    def _store(self, tx: Connection, *, again: bool) -> ResolveOutcome:
        command = self._command
        held = lock(tx, key_of(command.run_id), self._now)
        if held is None:
            return undone(tx, NotFound())
        if again and self._sent is not None and self._sent.is_stored(tx):
            return undone(tx, Resolved(self._now))
        orphan = None if command.step_key is None else self._attempt(tx, held, command.step_key)
        if not self._fits(tx, held, orphan):
            return undone(tx, NotInReview())
        if orphan is not None and orphan["resolved_at"] is not None:
            self._facts["replaces"] = orphan["resolved_by"]
        entry: int = held.row["last_entry"] + 1
        note(tx, held, _RESOLVED, self._facts)
        self._sent = Noted(held.key, entry, self._now, _RESOLVED, json.encode(self._facts))
        if orphan is not None:
            self._close(tx, held, orphan)
        if isinstance(command.resolution, commands.GiveUp):
            _give_up(tx, held, command.by)
        else:
            if orphan is None:
                tx.execute(_FORGIVE, {"b_run": held.key})
            mark(tx, held)
        return Resolved(self._now)

    def _attempt(self, tx: Connection, held: Held, step_key: str) -> Columns | None:
        bound = {"b_run": held.key, "b_digest": step_digest(step_key)}
        return tx.execute(_LATEST, bound).mappings().one_or_none()

    def _fits(self, tx: Connection, held: Held, orphan: Columns | None) -> bool:
        """Whether the run waits for a resolution of this kind."""
        status = held.row["status"]
        giving_up = isinstance(self._command.resolution, commands.GiveUp)
        if status in OVER or (giving_up and status != RunStatus.SUSPENDED.value):
            return False
        if self._command.step_key is not None:
            return orphan is not None and orphan["state"] == StepState.ORPHANED.value and self._is_open(orphan, status)
        return (
            status == RunStatus.SUSPENDED.value
            and held.row["waiting_reason"] == IN_REVIEW
            and not isinstance(self._command.resolution, commands.Happened)
            and (giving_up or not _is_resolved(tx, held))
        )

    def _is_open(self, orphan: Columns, status: str) -> bool:
        """Whether it has no word yet, or one that may be replaced: while no worker owns the run, none acts on it."""
        return orphan["resolved_at"] is None or (self._command.replace and status == RunStatus.SUSPENDED.value)

    def _close(self, tx: Connection, held: Held, orphan: Columns) -> None:
        changes: dict[str, Any] = {"resolved_by": self._command.by, "resolved_at": self._now}
        resolution = self._command.resolution
        if not isinstance(resolution, commands.GiveUp):
            changes["meta"] = _with_resolution(orphan["meta"], _WORDS[type(resolution)])
        changes["outcome"] = resolution.outcome if isinstance(resolution, commands.Happened) else None
        change_attempt(tx, held, orphan["step_key_digest"], orphan["attempt"], changes)


def _is_resolved(tx: Connection, held: Held) -> bool:
    """Whether a resolution of the run itself waits for a worker to act on it."""
    words = tx.execute(_SINCE_PARKED, {"b_run": held.key}).scalars().all()
    facts = [json.decode(text) for text in words]
    return any(isinstance(each, dict) and each.get("step_key") is None for each in facts)


def _with_resolution(meta: str, resolution: str) -> str:
    known = json.decode(meta)
    members = known if isinstance(known, dict) else {}
    return json.encode({**members, "resolution": resolution})


def _give_up(tx: Connection, held: Held, by: str) -> None:
    tx.execute(_FAIL, {"b_run": held.key, "b_now": held.now_ms})
    error = json.encode({"type": "GivenUp", "message": f"given up by {by}"})
    tx.execute(update(values).where(values.c.run_id == held.key).values(error=error))
    withdraw_open(tx, held)
    note(tx, held, "settled", {"status": RunStatus.FAILED.value})
