"""Keeping a lease and recording what was done under it."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, select, tuple_, update

from belay_core import commands
from belay_core.moments import Millis
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.attempts import Conflict, RunNotFound
from belay_core.outcomes.runs import FenceLost
from belay_core.records.owner import Lease
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepRecord
from belay_drivers.sql.children import all_stored, attempt_values
from belay_drivers.sql.database import Unknown, undone
from belay_drivers.sql.dialect import HotPaths
from belay_drivers.sql.engine_store.base import MISSED, Missed, OwnedRole
from belay_drivers.sql.fences import RENEWED, Fence, Held
from belay_drivers.sql.keys import key_of
from belay_drivers.sql.tables import runs

CHUNK: Final = 500
"""Leases renewed in one statement."""

_LEASE: Final = (
    runs.c.run_id,
    runs.c.owner_host_id,
    runs.c.owner_pid,
    runs.c.owner_nonce,
    runs.c.epoch,
)
_RENEW: Final = (
    update(runs)
    .where(runs.c.status == RunStatus.RUNNING.value)
    .values(**RENEWED)
    .returning(*_LEASE, runs.c.ready_at, runs.c.cancel_requested_at)
)
_EXISTS: Final = select(runs.c.run_id).where(runs.c.run_id == bindparam("b_run"))
_MARKS: Final = select(runs.c.ready_at, runs.c.cancel_requested_at).where(runs.c.run_id == bindparam("b_run"))


class Owning(OwnedRole):
    """``renew`` and ``record``."""

    async def renew(self, command: commands.Renew) -> tuple[outcomes.RenewOutcome, ...]:
        """Keep leases, in one statement; answers stand in the order of the leases."""
        return await self._guard("renew", self._renew(command)) if command.leases else ()

    async def record(self, command: commands.Record) -> outcomes.RecordOutcome:
        """Store attempts, all or none."""
        return await self._guard("record", self._record(command))

    async def _renew(self, command: commands.Renew) -> tuple[outcomes.RenewOutcome, ...]:
        leases = tuple(dict.fromkeys(command.leases))
        answers = await self._renew_each(commands.Renew(leases))
        known = dict(zip(leases, answers, strict=True))
        return tuple(known[lease] for lease in command.leases)

    async def _renew_each(self, command: commands.Renew) -> Sequence[outcomes.RenewOutcome]:
        now_ms = self._now()
        hot = self._parts.hot
        if hot is None:
            return await self._parts.database.write(lambda tx: _renewed(tx, command.leases, now_ms))
        sent = await self._parts.database.send_lone(lambda tx: hot.renew(tx, command, now_ms))
        if isinstance(sent, Unknown):
            # Renewing twice is renewing.
            return await self._parts.database.write(lambda tx: _renewed(tx, command.leases, now_ms))
        held = {row["place"]: row for row in sent.value}
        lost = [lease for place, lease in enumerate(command.leases) if place not in held]
        gone: dict[Lease, outcomes.RenewOutcome] = {}
        if lost:
            gone = await self._parts.database.read(lambda tx: {lease: _lost(tx, lease) for lease in lost})
        return [
            outcomes.Renewed(held[place]["ready_at"], held[place]["cancel_requested_at"])
            if place in held
            else gone[lease]
            for place, lease in enumerate(command.leases)
        ]

    async def _record(self, command: commands.Record) -> outcomes.RecordOutcome:
        hot = self._parts.hot
        if hot is not None and len(command.attempts) == 1:
            return await self._record_one(hot, command.lease, command.attempts[0])
        children = self._parts.children

        def store(tx: Connection, fence: Fence) -> outcomes.RecordOutcome | Missed:
            held = fence.hold(tx, progress=True)
            if held is None:
                return undone(tx, MISSED)
            if children.put_attempts(tx, held, fence.lease.epoch, command.attempts):
                return recorded(held)
            return undone(tx, Conflict())

        ended: outcomes.RecordOutcome = await self._owned(command.lease, store)
        if isinstance(ended, Conflict):
            # What was stored of the others is undone, and with it the renewal that the lease has earned.
            kept: outcomes.RecordOutcome = await self._owned(command.lease, _keep)
            return ended if isinstance(kept, outcomes.Recorded) else kept
        return ended

    async def _record_one(self, hot: HotPaths, lease: Lease, attempt: StepRecord) -> outcomes.RecordOutcome:
        run_key = key_of(lease.run_id)

        def store(tx: Connection, fence: Fence) -> outcomes.RecordOutcome | Missed:
            row = hot.record(tx, {**fence.parameters(), **attempt_values(run_key, lease.epoch, attempt)})
            if row is None:
                return undone(tx, MISSED)
            if not row["stored"]:
                return Conflict()
            return outcomes.Recorded(row["ready_at"], row["cancel_requested_at"])

        def stored_already(tx: Connection) -> outcomes.RecordOutcome:
            if not all_stored(tx, run_key, (attempt,)):
                return Conflict()
            row = tx.execute(_MARKS, {"b_run": run_key}).one()
            return outcomes.Recorded(row.ready_at, row.cancel_requested_at)

        ended = await self._owned(lease, store, lone=True, recall=stored_already)
        if isinstance(ended, Conflict):
            # The statement cannot tell an attempt that ended the same way from one that ended otherwise.
            return await self._parts.database.read(stored_already)
        return ended


def _keep(tx: Connection, fence: Fence) -> outcomes.RecordOutcome | Missed:
    held = fence.hold(tx, progress=True)
    return undone(tx, MISSED) if held is None else recorded(held)


def recorded(held: Held) -> outcomes.Recorded:
    """The answer of an owned write that has been made."""
    return outcomes.Recorded(held.row["ready_at"], held.row["cancel_requested_at"])


def _renewed(tx: Connection, leases: Sequence[Lease], now_ms: Millis) -> tuple[outcomes.RenewOutcome, ...]:
    answers: dict[tuple[object, ...], outcomes.RenewOutcome] = {}
    for start in range(0, len(leases), CHUNK):
        wanted = [_identity(lease) for lease in leases[start : start + CHUNK]]
        keys = [run_key for run_key, *_ in wanted]
        renewal = _RENEW.where(runs.c.run_id.in_(keys), tuple_(*_LEASE).in_(wanted))
        for *identity, news_ms, cancel_ms in tx.execute(renewal, {"b_now": now_ms}).all():
            answers[tuple(identity)] = outcomes.Renewed(news_ms, cancel_ms)
    return tuple(answers.get(_identity(lease)) or _lost(tx, lease) for lease in leases)


def _identity(lease: Lease) -> tuple[str, str, int, str, int]:
    return (key_of(lease.run_id), lease.owner.host_id, lease.owner.pid, lease.owner.nonce, lease.epoch)


def _lost(tx: Connection, lease: Lease) -> FenceLost | RunNotFound:
    found = tx.execute(_EXISTS, {"b_run": key_of(lease.run_id)}).one_or_none()
    return RunNotFound() if found is None else FenceLost()
