"""News: how a run is marked as having something to look at (kernel, ``ready_at``)."""

from typing import Final

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, case, func, or_, update

from belay_core.records.run import RunStatus
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import Held

_now: Final[ColumnElement[int]] = bindparam("b_now", type_=BigInteger)

MARKED: Final[ColumnElement[int]] = case(
    # An owner compares marks to see whether it has read this one: each is later than the one before.
    (
        and_(runs.c.status == RunStatus.RUNNING.value, runs.c.ready_at >= _now),
        runs.c.ready_at + 1,
    ),
    # Nobody has read the mark of a run without owner; one that was due earlier stays so.
    (
        and_(runs.c.status != RunStatus.RUNNING.value, runs.c.ready_at < _now),
        runs.c.ready_at,
    ),
    else_=_now,
)
"""The next value of ``ready_at`` when something happens to a run at ``b_now``."""

UNSEEN: Final[ColumnElement[bool]] = and_(
    runs.c.ready_at.is_not(None),
    runs.c.ready_at.is_distinct_from(bindparam("b_seen")),
)
"""The run has a mark other than the one its owner has read."""


def earlier_ready(moment: ColumnElement[int]) -> ColumnElement[int]:
    """The earlier of the mark on the run, if any, and a moment."""
    return case((func.coalesce(runs.c.ready_at, moment) < moment, runs.c.ready_at), else_=moment)


DUE: Final[ColumnElement[bool]] = and_(
    runs.c.status == RunStatus.SUSPENDED.value,
    # A run without a workflow is nobody's to make ready: who parked it looks for it (``WaitingStore``).
    runs.c.workflow.is_not(None),
    runs.c.waiting_reason.is_not(None),
    runs.c.waiting_wake_at <= _now,
    or_(runs.c.ready_at.is_(None), runs.c.ready_at > _now),
)
"""The run waits for a moment that has come, and is not ready yet."""

_MARK: Final = update(runs).where(runs.c.run_id == bindparam("b_run")).values(ready_at=MARKED)


def mark(tx: Connection, held: Held) -> None:
    """Say that a run has something to look at, whoever owns it."""
    tx.execute(_MARK, {"b_run": held.key, "b_now": held.now_ms})
