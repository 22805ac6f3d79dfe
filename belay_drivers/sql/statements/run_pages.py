"""Pages of runs in the order of their creation."""

from sqlalchemy import Connection, tuple_

from belay_core.records.changes import RunFilters, RunsPage
from belay_core.stores.changes import Cursor, digest_of
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import SUMMARIES, run_summary


def page_of(tx: Connection, source: str, filters: RunFilters, limit: int, begin: Cursor | None) -> RunsPage:
    """The page of runs after this cursor that match the filters, with the next cursor."""
    statement = SUMMARIES.order_by(runs.c.created_at, runs.c.run_id).limit(limit + 1)
    if filters.status is not None:
        statement = statement.where(runs.c.status == filters.status.value)
    if filters.workflow is not None:
        statement = statement.where(runs.c.workflow == filters.workflow)
    if filters.parent_run_id is not None:
        statement = statement.where(runs.c.parent_run_id == key_of(filters.parent_run_id))
    if begin is not None:
        place = tuple_(begin.created_at_ms, begin.run_key)
        statement = statement.where(tuple_(runs.c.created_at, runs.c.run_id) > place)
    rows = tx.execute(statement).mappings().all()
    cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        cursor = str(Cursor(source, digest_of(filters), last["created_at"], last["run_id"]))
    return RunsPage(source, tuple(run_summary(row) for row in rows[:limit]), cursor)
