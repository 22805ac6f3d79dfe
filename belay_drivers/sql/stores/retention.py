"""Retention in SQL: a run is deleted with all its rows except its journal."""

from typing import Final

from sqlalchemy import Connection, bindparam, delete, exists, func, select, update

from belay_core.clock import Millis
from belay_core.errors import RetentionError
from belay_core.ids import RunId
from belay_core.records.attempt import JsonValue
from belay_core.stores.retention import ChildrenLive, Deleted, DeleteOutcome, Retention, StillLive
from belay_core.stores.run_contract import NotFound, RunInput
from belay_core.values import json
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.fences import OVER, Held, lock_out, written
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import status_of
from belay_drivers.sql.statements.run_rows import DELETED, Noted, note_at, note_each, remove_all
from belay_drivers.sql.stores.auxiliary_base import StoreRole

_child: Final = runs.alias("child")
_LIVE: Final = (
    select(func.count()).select_from(runs).where(runs.c.parent_run_id == bindparam("b_run"), runs.c.status.not_in(OVER))
)
_ORPHAN: Final = (
    update(runs)
    .where(runs.c.parent_run_id == bindparam("b_run"), runs.c.status.in_(OVER))
    .values(parent_run_id=None, last_entry=runs.c.last_entry + 1)
    .returning(runs.c.run_id, runs.c.last_entry)
)
_VALUES: Final = delete(values).where(values.c.run_id == bindparam("b_run"))
_DELETE: Final = (
    delete(runs)
    .where(
        runs.c.run_id == bindparam("b_run"),
        runs.c.status.in_(OVER),
        ~exists().where(_child.c.parent_run_id == bindparam("b_run")),
    )
    .returning(runs.c.run_id)
)


class SqlRetention(StoreRole, Retention):
    """Deletion of runs, over one database."""

    error = RetentionError

    async def delete(self, run_id: RunId) -> DeleteOutcome:
        """Delete a run that has ended, as all its children have."""
        run_id = RunInput("delete", RetentionError).run_id(run_id)
        deletion = _Deletion(run_id, self._now())
        return await self._guard("delete", self._database.write(deletion, deletion.again))


class _Deletion:
    """One deletion; it keeps its journal entry, to detect after a lost reply that it was committed."""

    def __init__(self, run_id: RunId, now_ms: Millis) -> None:
        self._run_id = run_id
        self._key = key_of(run_id)
        self._now = now_ms
        self._sent: Noted | None = None

    def __call__(self, tx: Connection) -> DeleteOutcome:
        """Lock, check, delete. The creation of a child waits for the lock, and then finds no parent."""
        return self._judged(tx, lock_out(tx, self._key, self._now))

    def again(self, tx: Connection) -> DeleteOutcome:
        """Delete once more after a lost reply; the entry shows whether the first try was committed."""
        held = lock_out(tx, self._key, self._now)
        if self._sent is not None and self._sent.is_stored(tx):
            return undone(tx, Deleted(self._now))
        return self._judged(tx, held)

    def _judged(self, tx: Connection, held: Held | None) -> DeleteOutcome:
        if held is None:
            return undone(tx, NotFound())
        if held.row["status"] not in OVER:
            return undone(tx, StillLive(status_of(held.row)))
        live = self._live(tx)
        if live:
            return undone(tx, ChildrenLive(live))
        self._remove(tx, held)
        if tx.execute(_DELETE, {"b_run": self._key}).one_or_none() is None:
            # An operator has retried a child since the children were counted.
            return undone(tx, ChildrenLive(self._live(tx)))
        return Deleted(self._now)

    def _live(self, tx: Connection) -> int:
        count: int = tx.execute(_LIVE, {"b_run": self._key}).scalar_one()
        return count

    def _remove(self, tx: Connection, held: Held) -> None:
        entry: int = held.row["last_entry"] + 1
        facts: dict[str, JsonValue] = {"status": held.row["status"]}
        if self._key != self._run_id:
            facts["run_id"] = self._run_id
        note_at(tx, held, entry, DELETED, facts)
        self._sent = Noted(self._key, entry, self._now, DELETED, json.encode(facts))
        orphans = tx.execute(_ORPHAN, {"b_run": self._key}).mappings().all()
        if orphans:
            note_each(tx, [written(row["run_id"], self._now, row) for row in orphans], "parent_deleted", "{}")
        remove_all(tx, held)
        tx.execute(_VALUES, {"b_run": self._key})
