"""Pending signals: the mark of a run that its owner has to read (kernel, ``ready_at``)."""

from typing import Final

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, case, func, or_, update

from belay_core.records.run import RunStatus
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import Held

_now: Final[ColumnElement[int]] = bindparam("b_now", type_=BigInteger)

MARKED: Final[ColumnElement[int]] = case(
    # An owner compares marks to detect an unread one: each is later than the one before.
    (
        and_(runs.c.status == RunStatus.RUNNING.value, runs.c.ready_at >= _now),
        runs.c.ready_at + 1,
    ),
    # The mark of a run without owner is unread; one that was due earlier stays so.
    (
        and_(runs.c.status != RunStatus.RUNNING.value, runs.c.ready_at < _now),
        runs.c.ready_at,
    ),
    else_=_now,
)
"""The next value of ``ready_at`` for a signal at ``b_now``."""

UNSEEN: Final[ColumnElement[bool]] = and_(
    runs.c.ready_at.is_not(None),
    runs.c.ready_at.is_distinct_from(bindparam("b_seen")),
)
"""The run has a mark that its owner has not read."""


def earlier_ready(moment: ColumnElement[int]) -> ColumnElement[int]:
    """The earlier of the run's mark, if any, and a time."""
    return case((func.coalesce(runs.c.ready_at, moment) < moment, runs.c.ready_at), else_=moment)


DUE: Final[ColumnElement[bool]] = and_(
    runs.c.status == RunStatus.SUSPENDED.value,
    # A run without a workflow is never made ready: its caller finds it through the ``WaitingStore``.
    runs.c.workflow.is_not(None),
    runs.c.waiting_reason.is_not(None),
    runs.c.waiting_wake_at <= _now,
    or_(runs.c.ready_at.is_(None), runs.c.ready_at > _now),
)
"""The wake time of the run has come, and it is not ready yet."""

_MARK: Final = update(runs).where(runs.c.run_id == bindparam("b_run")).values(ready_at=MARKED)


def mark(tx: Connection, held: Held) -> None:
    """Set the pending signal of a run, owned or not."""
    tx.execute(_MARK, {"b_run": held.key, "b_now": held.now_ms})
