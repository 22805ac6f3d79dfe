"""One acquisition in steps, where no single statement can do it all."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    bindparam,
    case,
    or_,
    select,
    update,
)

from belay_core.commands import Acquire
from belay_core.moments import Millis
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_drivers.sql.children import note_each
from belay_drivers.sql.database import undone
from belay_drivers.sql.fences import NOT_WAITING, UNCLAIMED, written
from belay_drivers.sql.rows import RECORDS
from belay_drivers.sql.tables import runs

OWNED_FACT: Final = "ownership.owned"

_READY: Final = (
    select(runs.c.run_id, runs.c.priority, runs.c.ready_at)
    .where(
        runs.c.workflow == bindparam("b_workflow"),
        runs.c.ready_at.is_not(None),
        runs.c.ready_at <= bindparam("b_now"),
        runs.c.status.in_((RunStatus.PENDING.value, RunStatus.SUSPENDED.value)),
    )
    .order_by(runs.c.priority.desc(), runs.c.ready_at, runs.c.run_id)
    .limit(bindparam("b_limit"))
)
_READY_LOCKED: Final = _READY.with_for_update(key_share=True, skip_locked=True)
_READY_AWAITED: Final = _READY.with_for_update(key_share=True)
_OWNED_BY: Final = RECORDS.where(
    runs.c.status == RunStatus.RUNNING.value,
    runs.c.owner_host_id == bindparam("b_host"),
    runs.c.owner_pid == bindparam("b_pid"),
    runs.c.owner_nonce == bindparam("b_nonce"),
).order_by(runs.c.priority.desc(), runs.c.run_id)


class Locks(Enum):
    """What is done about the lock of a row that could be taken."""

    NONE = "none"
    OTHERS_SKIPPED = "skip"
    OTHERS_AWAITED = "await"


class Taking:
    """The acquisition; each row is locked before it is changed, so no rival gets it too."""

    def __init__(self, command: Acquire, now_ms: Millis, stale_before: Millis, facts: str) -> None:
        self._command = command
        self._now = now_ms
        self._stale_before = stale_before
        self._facts = facts

    def is_pointless(self, tx: Connection) -> bool:
        """Whether there is nothing to take."""
        return not self._chosen(tx, Locks.NONE)

    def again(self, tx: Connection) -> Sequence[RowMapping]:
        """The same once more, where an earlier sending may have happened: the fresh nonce tells.

        Nothing is skipped: whoever has locked a row may be that sending, which is about to commit.
        """
        owner = self._command.owner
        bound = {"b_host": owner.host_id, "b_pid": owner.pid, "b_nonce": owner.nonce}
        owned = tx.execute(_OWNED_BY, bound).mappings().all()
        if owned:
            return owned
        keys = self._chosen(tx, Locks.OTHERS_AWAITED)
        if keys:
            self._take(tx, keys)
        return tx.execute(_OWNED_BY, bound).mappings().all() or undone(tx, ())

    def __call__(self, tx: Connection) -> Sequence[RowMapping]:
        """Own what there is to own: the rows after the change, in the order of the answer."""
        keys = self._chosen(tx, Locks.OTHERS_SKIPPED)
        return self._take(tx, keys) if keys else undone(tx, ())

    def _take(self, tx: Connection, keys: Sequence[str]) -> Sequence[RowMapping]:
        tx.execute(update(runs).where(runs.c.run_id.in_(keys)).values(**self._changes()))
        found = tx.execute(RECORDS.where(runs.c.run_id.in_(keys))).mappings().all()
        rows = {row["run_id"]: row for row in found}
        note_each(tx, [written(key, self._now, rows[key]) for key in keys], OWNED_FACT, self._facts)
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
            # Taking over is what counts, not going on with a run that was let go in order.
            "takeovers": runs.c.takeovers + case((runs.c.status == RunStatus.RUNNING.value, 1), else_=0),
            "last_entry": runs.c.last_entry + 1,
            **NOT_WAITING,
            **UNCLAIMED,
        }

    def _chosen(self, tx: Connection, locks: Locks) -> list[str]:
        """Runs whose owner is gone before those that wait; among each, the order in which they are due."""
        limit = self._command.limit
        lost, ready = self._lost().limit(limit), _READY
        if locks is not Locks.NONE:
            lost = lost.with_for_update(key_share=True, skip_locked=locks is Locks.OTHERS_SKIPPED)
            ready = _READY_LOCKED if locks is Locks.OTHERS_SKIPPED else _READY_AWAITED
        abandoned = tx.execute(lost).all()
        waiting = [
            row
            for workflow in dict.fromkeys(self._command.workflows)
            for row in tx.execute(
                ready,
                {"b_workflow": workflow, "b_now": self._now, "b_limit": limit},
            ).all()
        ]
        waiting.sort(key=lambda row: (-row.priority, row.ready_at, row.run_id))
        taken = [(-row.priority, 0, place, row.run_id) for place, row in enumerate(abandoned)]
        taken += [(-row.priority, 1, place, row.run_id) for place, row in enumerate(waiting)]
        del taken[limit:]
        return [run_id for *_, run_id in sorted(taken)]

    def _lost(self) -> Select[str, int]:
        dead = [_owned_by(owner) for owner in dict.fromkeys(self._command.dead)]
        silent: list[ColumnElement[Any]] = [case((or_(*dead), 0), else_=1)] if dead else []
        return (
            select(runs.c.run_id, runs.c.priority)
            .where(
                runs.c.status == RunStatus.RUNNING.value,
                runs.c.workflow.in_(self._command.workflows),
                or_(runs.c.heartbeat_at < self._stale_before, *dead),
            )
            .order_by(*silent, runs.c.priority.desc(), runs.c.heartbeat_at, runs.c.run_id)
        )


def _owned_by(owner: OwnerId) -> ColumnElement[bool]:
    return and_(
        runs.c.owner_host_id == owner.host_id,
        runs.c.owner_pid == owner.pid,
        runs.c.owner_nonce == owner.nonce,
    )
