"""Changes in SQL (specs, run store 10), over the journal."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select

from belay_core.clock import Clock
from belay_core.errors import ChangesError, RunStoreError
from belay_core.ids import RunId
from belay_core.records.changes import (
    Acknowledgement,
    CancellationView,
    DeletedRun,
    FeedHead,
    FeedPosition,
    MissingRun,
    RunChange,
    RunFilters,
    RunView,
    SnapshotBatch,
    SnapshotEntry,
)
from belay_core.records.run import is_terminal_run_status
from belay_core.stores.changes import (
    MOST_CHANGES,
    MOST_RUNS,
    CancellationOutcome,
    Changes,
    ChangesInput,
    ChangesPage,
    ChangesSinceOutcome,
    ListOutcome,
    SourceChanged,
)
from belay_core.stores.checks import owner_fields, owner_of
from belay_core.stores.run_contract import NotFound
from belay_core.values import json
from belay_core.values.numbers import is_safe
from belay_drivers.sql.schema.tables import journal, runs, store, values
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns, Undecodable, status_of
from belay_drivers.sql.statements.run_pages import page_of
from belay_drivers.sql.statements.run_rows import DELETED
from belay_drivers.sql.stores.auxiliary_base import StoreRole
from belay_drivers.sql.stores.runs.read import RUNS, decoded
from belay_drivers.sql.stores.views import Views
from belay_drivers.sql.stores.waiting import waiting_row

_SOURCE: Final = select(store.c.source)
_VIEWS: Final = RUNS.add_columns(values.c.waiting_request).where(runs.c.run_id.in_(bindparam("b_runs", expanding=True)))
_CANCELLATION: Final = select(runs.c.status, runs.c.cancel_requested_at, runs.c.cancel_acknowledgement).where(
    runs.c.run_id == bindparam("b_run")
)
_latest: Final = (
    select(journal.c.run_id, func.max(journal.c.entry).label("entry"))
    .where(journal.c.run_id.in_(bindparam("b_runs", expanding=True)))
    .group_by(journal.c.run_id)
    .subquery()
)
_GONE: Final = select(journal.c.run_id, journal.c.entry, journal.c.at, journal.c.kind).join(
    _latest, (journal.c.run_id == _latest.c.run_id) & (journal.c.entry == _latest.c.entry)
)


class SqlChanges(StoreRole, Changes):
    """The change feed of one database."""

    error = ChangesError

    def __init__(self, views: Views, clock: Clock) -> None:
        super().__init__(views.together, clock)
        self._feed = views.feed

    async def current(self) -> FeedHead:
        """The database's name and the position of the newest change that can be read."""
        return await self._guard("current", self._database.read(self._head))

    async def changes_since(self, source: str, position: FeedPosition, limit: int = 100) -> ChangesSinceOutcome:
        """Changes after this position, in order, each run once with its latest."""
        given = ChangesInput("changes_since")
        source = given.source(source)
        position = given.position(position)
        limit = given.limit(limit, MOST_CHANGES)

        def read(tx: Connection) -> ChangesSinceOutcome:
            head = self._head(tx)
            if head.source != source or head.position < position:
                return SourceChanged(head.source)
            rows = self._feed.since(tx, position, limit + 1)
            changes = tuple(_change(row, self._feed.place_of(row)) for row in rows[:limit])
            last = changes[-1].position if changes else position
            return ChangesPage(source, changes, last, len(rows) > limit)

        return await self._guard("changes_since", self._database.read(read))

    async def snapshot(self, run_ids: Sequence[RunId]) -> SnapshotBatch:
        """The state of up to 200 runs at one position, in the order asked for."""
        ids = ChangesInput("snapshot").run_ids(run_ids)

        def read(tx: Connection) -> SnapshotBatch:
            head = self._head(tx)
            return SnapshotBatch(head.source, head.position, _entries(tx, ids) if ids else ())

        return await self._guard("snapshot", self._database.read(read))

    async def list_runs(
        self, filters: RunFilters | None = None, limit: int = 100, cursor: str | None = None
    ) -> ListOutcome:
        """A page of runs, the oldest first."""
        given = ChangesInput("list_runs")
        wanted = given.filters(filters)
        limit = given.limit(limit, MOST_RUNS)
        begin = given.cursor(cursor, wanted)

        def read(tx: Connection) -> ListOutcome:
            source = _source_of(tx)
            if begin is not None and begin.source != source:
                return SourceChanged(source)
            return page_of(tx, source, wanted, limit, begin)

        return await self._guard("list_runs", self._database.read(read))

    async def cancellation(self, run_id: RunId) -> CancellationOutcome:
        """Whether a cancel was requested, whether the owner acknowledged it, and whether the run has ended."""
        run_id = ChangesInput("cancellation").run_id(run_id)

        def read(tx: Connection) -> CancellationOutcome:
            row = tx.execute(_CANCELLATION, {"b_run": key_of(run_id)}).mappings().one_or_none()
            return NotFound() if row is None else _cancellation(run_id, row)

        return await self._guard("cancellation", self._database.read(read))

    def _head(self, tx: Connection) -> FeedHead:
        return FeedHead(_source_of(tx), self._feed.head(tx))


def _source_of(tx: Connection) -> str:
    source: str = tx.execute(_SOURCE).scalar_one()
    return source


def _change(row: Columns, position: FeedPosition) -> RunChange:
    deleted = row["kind"] == DELETED
    full_id = row["full_id"] or (deleted_id(row["facts"]) if deleted else None)
    return RunChange(RunId(full_id or row["run_id"]), position, row["entry"], row["at"], row["kind"], deleted)


def deleted_id(facts: str) -> str | None:
    """The id in the entry of a deletion, if the key is not the id itself."""
    found = _object(facts, journal.name).get("run_id")
    return found if isinstance(found, str) else None


def _entries(tx: Connection, ids: Sequence[RunId]) -> tuple[SnapshotEntry, ...]:
    keys = sorted({key_of(run_id) for run_id in ids})
    found = {row["run_id"]: row for row in tx.execute(_VIEWS, {"b_runs": keys}).mappings().all()}
    absent = [key for key in keys if key not in found]
    gone = {row["run_id"]: row for row in tx.execute(_GONE, {"b_runs": absent}).mappings().all()} if absent else {}
    return tuple(_entry(run_id, found, gone) for run_id in ids)


def _entry(run_id: RunId, found: Mapping[str, Columns], gone: Mapping[str, Columns]) -> SnapshotEntry:
    row, last = found.get(key_of(run_id)), gone.get(key_of(run_id))
    if row is not None:
        return _view(run_id, row)
    if last is None or last["kind"] != DELETED:
        return MissingRun(run_id)
    return DeletedRun(run_id, last["entry"], last["at"])


def _view(run_id: RunId, row: Columns) -> RunView:
    run = None
    with suppress(RunStoreError):
        run = decoded(row, "snapshot")
    if run is None:
        raise Undecodable(runs.name)
    waits = row["waiting_reason"] is not None and not is_terminal_run_status(run.status)
    return RunView(run, row["last_entry"], waiting_row(row) if waits else None, _cancellation(run_id, row))


def _cancellation(run_id: RunId, row: Columns) -> CancellationView:
    status, words = status_of(row), row["cancel_acknowledgement"]
    return CancellationView(
        run_id=run_id,
        status=status,
        requested_at_ms=row["cancel_requested_at"],
        acknowledgement=None if words is None else _acknowledgement(words),
        terminal=is_terminal_run_status(status),
    )


def _acknowledgement(words: str) -> Acknowledgement:
    found = _object(words, runs.name)
    fields, at = owner_fields(found.get("owner")), found.get("observed_at_ms")
    owner = None if fields is None else owner_of(fields)
    if owner is None or not is_safe(at):
        raise Undecodable(runs.name)
    return Acknowledgement(owner, at)


def _object(text: str, table: str) -> dict[str, Any]:
    found: object = None
    with suppress(json.JsonRefused):
        found = json.decode(text)
    if not isinstance(found, dict):
        raise Undecodable(table)
    return found
