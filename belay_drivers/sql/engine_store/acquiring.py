"""Coming to own runs, and making those ready whose moment has come."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, bindparam, case, insert, or_, select, update

from belay_core import commands
from belay_core.admission import json
from belay_core.moments import Millis
from belay_core.outcomes import engine as outcomes
from belay_core.records.owner import Lease
from belay_core.records.run import RunStatus
from belay_drivers.sql.children import journal_row
from belay_drivers.sql.database import Unknown, undone
from belay_drivers.sql.engine_store.base import Role
from belay_drivers.sql.fences import NOT_WAITING, UNCLAIMED
from belay_drivers.sql.news import DUE
from belay_drivers.sql.rows import RECORDS, Columns, run_record
from belay_drivers.sql.tables import journal, runs

OWNED_FACT: Final = "ownership.owned"
NEVER: Final = -1
"""No heartbeat is older than this."""

S = TypeVar("S", bound="Select[*tuple[Any, ...]]")

_TAKEABLE: Final = (RunStatus.PENDING.value, RunStatus.SUSPENDED.value)
_READY: Final = (
    select(runs.c.run_id, runs.c.priority, runs.c.ready_at)
    .where(
        runs.c.workflow == bindparam("b_workflow"),
        runs.c.ready_at.is_not(None),
        runs.c.ready_at <= bindparam("b_now"),
        runs.c.status.in_(_TAKEABLE),
    )
    .order_by(runs.c.priority.desc(), runs.c.ready_at, runs.c.run_id)
    .limit(bindparam("b_limit"))
)
_OWNED_BY: Final = RECORDS.where(
    runs.c.status == RunStatus.RUNNING.value,
    runs.c.owner_host_id == bindparam("b_host"),
    runs.c.owner_pid == bindparam("b_pid"),
    runs.c.owner_nonce == bindparam("b_nonce"),
)
_WAKE: Final = (
    select(runs.c.run_id).where(DUE).order_by(runs.c.waiting_wake_at, runs.c.run_id).limit(bindparam("b_limit"))
)


class Acquiring(Role):
    """``acquire`` and ``wake``."""

    async def acquire(self, command: commands.Acquire) -> tuple[outcomes.Acquired, ...]:
        """Own runs."""
        if command.limit < 1 or not command.workflows:
            return ()
        return await self._guard("acquire", self._acquire(command))

    async def wake(self, command: commands.Wake) -> outcomes.Woken:
        """Make due runs ready."""
        woken = await self._guard("wake", self._wake(command))
        if woken.count:
            self._parts.wakes.poke()
        return woken

    async def _acquire(self, command: commands.Acquire) -> tuple[outcomes.Acquired, ...]:
        parts = self._parts
        now_ms = self._now()
        stale_before = now_ms - parts.lease.stale_after_ms if parts.trusts_stale() else NEVER
        facts = json.encode(
            {
                "owner": {
                    "host_id": command.owner.host_id,
                    "pid": command.owner.pid,
                    "nonce": command.owner.nonce,
                },
                "granted_at_ms": now_ms,
            }
        )
        take = _Taking(command, now_ms, stale_before, facts)
        hot = parts.hot
        if hot is not None:
            sent = await parts.database.send_lone(lambda tx: hot.acquire(tx, command, now_ms, stale_before, facts))
            rows = sent.value if not isinstance(sent, Unknown) else await self._ask_again(take)
        elif await parts.database.read(take.is_pointless):
            return ()
        else:
            rows = await parts.database.write(take, take.again)
        return tuple(self._acquired(row, command) for row in rows)

    async def _ask_again(self, take: "_Taking") -> Sequence[RowMapping]:
        return await self._parts.database.write(take.again)

    def _acquired(self, row: Columns, command: commands.Acquire) -> outcomes.Acquired:
        run = run_record(row)
        lease = Lease(run.run_id, command.owner, run.epoch)
        self._parts.sequences.learn(lease, row["write_seq"])
        return outcomes.Acquired(lease, run)

    async def _wake(self, command: commands.Wake) -> outcomes.Woken:
        now_ms = self._now()
        bound: dict[str, Any] = {"b_now": now_ms, "b_limit": max(command.limit, 0)}
        # Nobody is woken most of the time, and looking costs no write.
        if not await self._parts.database.read(lambda tx: tx.execute(_WAKE, bound).scalars().all()):
            return outcomes.Woken(0)
        return await self._parts.database.write(lambda tx: _wake(tx, bound))


class _Taking:
    """One acquisition in two steps, for a database on which a transaction has no rivals."""

    def __init__(self, command: commands.Acquire, now_ms: Millis, stale_before: Millis, facts: str) -> None:
        self._command = command
        self._now = now_ms
        self._stale_before = stale_before
        self._facts = facts

    def is_pointless(self, tx: Connection) -> bool:
        """Whether there is nothing to take."""
        return not self._chosen(tx)

    def again(self, tx: Connection) -> Sequence[RowMapping]:
        """The same once more, where an earlier sending may have happened: the nonce tells."""
        owner = self._command.owner
        bound = {"b_host": owner.host_id, "b_pid": owner.pid, "b_nonce": owner.nonce}
        return tx.execute(_OWNED_BY, bound).mappings().all() or self(tx)

    def __call__(self, tx: Connection) -> Sequence[RowMapping]:
        """Own what there is to own."""
        keys = self._chosen(tx, lock=True)
        if not keys:
            return ()
        tx.execute(update(runs).where(runs.c.run_id.in_(keys)).values(**self._changes()))
        rows = {row["run_id"]: row for row in tx.execute(RECORDS.where(runs.c.run_id.in_(keys))).mappings()}
        tx.execute(
            insert(journal),
            [journal_row(key, rows[key]["last_entry"], self._now, OWNED_FACT, self._facts) for key in keys],
        )
        return [rows[key] for key in keys]

    def _changes(self) -> dict[str, Any]:
        owner = self._command.owner
        return {
            "status": RunStatus.RUNNING.value,
            "owner_host_id": owner.host_id,
            "owner_pid": owner.pid,
            "owner_nonce": owner.nonce,
            "heartbeat_at": self._now,
            "started_at": case((runs.c.started_at.is_(None), self._now), else_=runs.c.started_at),
            "epoch": runs.c.epoch + 1,
            "last_nonce": owner.nonce,
            "ready_at": None,
            "takeovers": runs.c.takeovers + case((runs.c.status == RunStatus.RUNNING.value, 1), else_=0),
            "last_entry": runs.c.last_entry + 1,
            **NOT_WAITING,
            **UNCLAIMED,
        }

    def _chosen(self, tx: Connection, *, lock: bool = False) -> list[str]:
        """Runs whose owner is gone before those that wait; among each, the order in which they are due."""
        limit = self._command.limit
        lost = _locked(self._lost(), lock=lock)
        abandoned = tx.execute(lost.limit(limit)).all()
        waiting = [
            row
            for workflow in dict.fromkeys(self._command.workflows)
            for row in tx.execute(
                _locked(_READY, lock=lock), {"b_workflow": workflow, "b_now": self._now, "b_limit": limit}
            ).all()
        ]
        waiting.sort(key=lambda row: (-row.priority, row.ready_at, row.run_id))
        taken = [(-row.priority, 0, place, row.run_id) for place, row in enumerate(abandoned)]
        taken += [(-row.priority, 1, place, row.run_id) for place, row in enumerate(waiting)]
        del taken[limit:]
        return [run_id for *_, run_id in sorted(taken)]

    def _lost(self) -> Select[str, int]:
        dead = self._dead()
        return (
            select(runs.c.run_id, runs.c.priority)
            .where(
                runs.c.status == RunStatus.RUNNING.value,
                runs.c.workflow.in_(self._command.workflows),
                or_(runs.c.heartbeat_at < self._stale_before, *dead),
            )
            .order_by(
                case((or_(*dead), 0), else_=1) if dead else runs.c.priority.desc(),
                runs.c.priority.desc(),
                runs.c.heartbeat_at,
                runs.c.run_id,
            )
        )

    def _dead(self) -> list[ColumnElement[bool]]:
        return [
            and_(
                runs.c.owner_host_id == owner.host_id,
                runs.c.owner_pid == owner.pid,
                runs.c.owner_nonce == owner.nonce,
            )
            for owner in dict.fromkeys(self._command.dead)
        ]


def _locked(statement: S, *, lock: bool) -> S:
    return statement.with_for_update(key_share=True, skip_locked=True) if lock else statement


def _wake(tx: Connection, bound: dict[str, Any]) -> outcomes.Woken:
    keys = tx.execute(_locked(_WAKE, lock=True), bound).scalars().all()
    if not keys:
        return undone(tx, outcomes.Woken(0))
    entries = tx.execute(
        update(runs)
        .where(runs.c.run_id.in_(keys))
        .values(ready_at=bindparam("b_at"), last_entry=runs.c.last_entry + 1)
        .returning(runs.c.run_id, runs.c.last_entry),
        {"b_at": bound["b_now"]},
    ).all()
    tx.execute(
        insert(journal),
        [journal_row(key, entry, bound["b_now"], "woken", "{}") for key, entry in entries],
    )
    return outcomes.Woken(len(keys))
