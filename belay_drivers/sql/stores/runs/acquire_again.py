"""An acquisition again after a lost reply, in steps."""

from collections.abc import Sequence
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

from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import NOT_WAITING, UNCLAIMED, written
from belay_drivers.sql.statements.hot import Acquisition
from belay_drivers.sql.statements.rows import RECORDS
from belay_drivers.sql.statements.run_rows import note_each

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
    .with_for_update(key_share=True)
)
_OWNED_BY: Final = RECORDS.where(
    runs.c.status == RunStatus.RUNNING.value,
    runs.c.owner_host_id == bindparam("b_host"),
    runs.c.owner_pid == bindparam("b_pid"),
    runs.c.owner_nonce == bindparam("b_nonce"),
).order_by(runs.c.priority.desc(), runs.c.run_id)


class AcquireAfterLostReply:
    """The acquisition, unless an earlier try was committed, which its fresh nonce shows.

    Each row is locked before it is changed, so no other worker acquires it too. Locked rows are not skipped: the lock
    may belong to that earlier try, which is about to commit.
    """

    def __init__(self, asked: Acquisition) -> None:
        self._command = asked.command
        self._now = asked.now_ms
        self._stale_before = asked.stale_before
        self._facts = asked.facts

    def __call__(self, tx: Connection) -> Sequence[RowMapping]:
        """Own due runs; returns their rows after the change."""
        owner = self._command.owner
        bound = {"b_host": owner.host_id, "b_pid": owner.pid, "b_nonce": owner.nonce}
        owned = tx.execute(_OWNED_BY, bound).mappings().all()
        if owned:
            return owned
        keys = self._chosen(tx)
        if keys:
            self._take(tx, keys)
        return tx.execute(_OWNED_BY, bound).mappings().all() or undone(tx, ())

    def _take(self, tx: Connection, keys: Sequence[str]) -> None:
        tx.execute(update(runs).where(runs.c.run_id.in_(keys)).values(**self._changes()))
        found = tx.execute(select(runs).where(runs.c.run_id.in_(keys))).mappings().all()
        note_each(tx, [written(row["run_id"], self._now, row) for row in found], OWNED_FACT, self._facts)

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
            # Only a takeover counts, not the acquisition of a released run.
            "takeovers": runs.c.takeovers + case((runs.c.status == RunStatus.RUNNING.value, 1), else_=0),
            "last_entry": runs.c.last_entry + 1,
            **NOT_WAITING,
            **UNCLAIMED,
        }

    def _chosen(self, tx: Connection) -> list[str]:
        """Runs of dead owners before those that wait; each in the order in which they are due."""
        limit = self._command.limit
        abandoned = tx.execute(self._lost().limit(limit).with_for_update(key_share=True)).all()
        waiting = [
            row
            for workflow in dict.fromkeys(self._command.workflows)
            for row in tx.execute(_READY, {"b_workflow": workflow, "b_now": self._now, "b_limit": limit}).all()
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
