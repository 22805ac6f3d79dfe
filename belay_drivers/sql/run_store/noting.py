"""Writes to a run that leave one ownership fact, by which they know their own work again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, bindparam, select, update

from belay_core.admission import json
from belay_core.moments import Millis
from belay_core.records.owner import OwnerId
from belay_drivers.sql.children import note_at
from belay_drivers.sql.database import undone
from belay_drivers.sql.fences import lock
from belay_drivers.sql.rows import Columns
from belay_drivers.sql.run_store.base import ownership_facts
from belay_drivers.sql.tables import journal, runs

A = TypeVar("A")

_RUN: Final = update(runs).where(runs.c.run_id == bindparam("b_run"))
_ENTRY: Final = select(journal.c.kind, journal.c.facts).where(
    journal.c.run_id == bindparam("b_run"), journal.c.entry == bindparam("b_entry")
)


@dataclass(frozen=True, slots=True)
class Change(Generic[A]):
    """What is written to a run that may be changed: the answer, the columns, and the fact that goes with them."""

    answer: A
    columns: Mapping[str, Any]
    kind: str
    owner: OwnerId
    granted_at_ms: Millis | None


@dataclass(slots=True)
class NotedWrite(Generic[A]):
    """One decision upon a locked run: an answer that changes nothing, or a ``Change``."""

    run_key: str
    now_ms: Millis
    decide: Callable[[Columns | None], A | Change[A]]
    _noted: tuple[int, Change[A]] | None = None

    def __call__(self, tx: Connection) -> A:
        """Decide and write."""
        held = lock(tx, self.run_key, self.now_ms)
        decided = self.decide(None if held is None else held.row)
        if held is None or not isinstance(decided, Change):
            return undone(tx, decided.answer if isinstance(decided, Change) else decided)
        entry: int = held.row["last_entry"] + 1
        tx.execute(_RUN.values(**decided.columns, last_entry=entry), {"b_run": self.run_key})
        note_at(tx, held, entry, decided.kind, ownership_facts(decided.owner, decided.granted_at_ms))
        self._noted = entry, decided
        return decided.answer

    def again(self, tx: Connection) -> A:
        """Write once more where no reply came; the fact tells whether the first one happened."""
        if self._noted is not None:
            entry, change = self._noted
            row = tx.execute(_ENTRY, {"b_run": self.run_key, "b_entry": entry}).one_or_none()
            facts = json.encode(ownership_facts(change.owner, change.granted_at_ms))
            if row is not None and tuple(row) == (change.kind, facts):
                return undone(tx, change.answer)
        return self(tx)
