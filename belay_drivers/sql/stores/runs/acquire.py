"""Acquire runs, and make those ready whose wake time has come."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, update

from belay_core.clock import Millis
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.stores.runs import Acquired, RunsWoken
from belay_core.values import json
from belay_drivers.sql.connection.database import Unknown, undone
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import lock, written
from belay_drivers.sql.statements.hot import Acquisition
from belay_drivers.sql.statements.keys import padded
from belay_drivers.sql.statements.pending_signal import DUE
from belay_drivers.sql.statements.rows import Columns, run_record
from belay_drivers.sql.statements.run_rows import Noted, note_each
from belay_drivers.sql.stores.base import EngineRole
from belay_drivers.sql.stores.runs.acquire_again import AcquireAfterLostReply

NEVER: Final = -1
"""No heartbeat is older than this."""

_WOKEN: Final = "woken"
_DUE: Final = (
    select(runs.c.run_id).where(DUE).order_by(runs.c.waiting_wake_at, runs.c.run_id).limit(bindparam("b_limit"))
)
_DUE_LOCKED: Final = _DUE.where(runs.c.run_id.in_(bindparam("b_runs", expanding=True))).with_for_update(
    key_share=True, skip_locked=True
)


class AcquireRuns(EngineRole):
    """``acquire`` and ``wake``."""

    async def acquire(self, command: commands.Acquire) -> tuple[Acquired, ...]:
        """Own runs."""
        if command.limit < 1 or not command.workflows:
            return ()
        return await self._run_command("acquire", self._acquire(command))

    async def wake(self, command: commands.Wake) -> RunsWoken:
        """Make due runs ready."""
        woken = await self._run_command("wake", self._wake(command))
        if woken.count:
            self._parts.notifier.notify(ready=True)
        return woken

    async def _acquire(self, command: commands.Acquire) -> tuple[Acquired, ...]:
        parts = self._parts
        await parts.refresh()
        now_ms = self._now()
        stale_before = now_ms - parts.lease.stale_after_ms if parts.trusts_stale() else NEVER
        asked = Acquisition(command, now_ms, stale_before, _facts(command.owner, now_ms))
        sent = await parts.hot.acquire(asked)
        rows = await parts.database.write(AcquireAfterLostReply(asked)) if isinstance(sent, Unknown) else sent.value
        return tuple(self._acquired(row, command) for row in rows)

    def _acquired(self, row: Columns, command: commands.Acquire) -> Acquired:
        run = run_record(row)
        lease = Lease(run.run_id, command.owner, run.epoch)
        self._parts.sequences.learn(lease, row["write_seq"])
        return Acquired(lease, run)

    async def _wake(self, command: commands.Wake) -> RunsWoken:
        now_ms, limit = self._now(), max(command.limit, 0)
        keys = await self._due(now_ms, limit)
        if not keys:
            return RunsWoken(0)
        waking = _Waking({"b_now": now_ms, "b_limit": limit, "b_runs": padded(keys)})
        return await self._parts.database.write(waking, waking.again)

    async def _due(self, now_ms: Millis, limit: int) -> Sequence[str]:
        parts = self._parts
        if parts.group_commit is not None and (keys := await parts.hot.due(now_ms, limit)) is not None:
            return keys
        bound = {"b_now": now_ms, "b_limit": limit}
        return await parts.database.read(lambda tx: tx.execute(_DUE, bound).scalars().all())


def _facts(owner: OwnerId, now_ms: Millis) -> str:
    return json.encode(
        {
            "owner": {"host_id": owner.host_id, "pid": owner.pid, "nonce": owner.nonce},
            "granted_at_ms": now_ms,
        }
    )


class _Waking:
    """One execution of ``wake``; idempotent."""

    def __init__(self, bound: dict[str, Any]) -> None:
        self._bound = bound
        self._now: Millis = bound["b_now"]
        self._sent: tuple[Noted, int] | None = None

    def __call__(self, tx: Connection) -> RunsWoken:
        """Make due runs ready."""
        keys = tx.execute(_DUE_LOCKED, self._bound).scalars().all()
        if not keys:
            return undone(tx, RunsWoken(0))
        changed = tx.execute(
            update(runs)
            .where(runs.c.run_id.in_(keys))
            .values(ready_at=self._now, last_entry=runs.c.last_entry + 1)
            .returning(runs.c.run_id, runs.c.last_entry)
        ).mappings()
        woken = [written(row["run_id"], self._now, row) for row in changed.all()]
        note_each(tx, woken, _WOKEN, "{}")
        first = woken[0]
        self._sent = Noted(first.key, first.row["last_entry"], self._now, _WOKEN, "{}"), len(woken)
        return RunsWoken(len(woken))

    def again(self, tx: Connection) -> RunsWoken:
        """The same after a lost reply; the journal shows whether the first try was committed."""
        if self._sent is not None:
            noted, count = self._sent
            # Waits for an earlier try that may be about to commit.
            lock(tx, noted.run_key, self._now)
            if noted.is_stored(tx):
                return undone(tx, RunsWoken(count))
        return self(tx)
