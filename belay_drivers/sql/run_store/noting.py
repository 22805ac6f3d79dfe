"""Writes to a run that leave one ownership fact, by which they know their own work again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, bindparam, update

from belay_core.admission import json
from belay_core.moments import Millis
from belay_core.records.owner import OwnerId
from belay_drivers.sql.children import Noted, note_at
from belay_drivers.sql.database import undone
from belay_drivers.sql.fences import Held, lock
from belay_drivers.sql.rows import Columns
from belay_drivers.sql.run_store.base import ownership_facts
from belay_drivers.sql.tables import runs

A = TypeVar("A")

_RUN: Final = update(runs).where(runs.c.run_id == bindparam("b_run"))


@dataclass(frozen=True, slots=True)
class Change:
    """What is written to a run: the columns, and the fact that goes with them."""

    columns: Mapping[str, Any]
    kind: str
    owner: OwnerId
    granted_at_ms: Millis | None


@dataclass(frozen=True, slots=True)
class Verdict(Generic[A]):
    """What is answered about a run, and what is written to it, if anything."""

    answer: A
    change: Change | None = None


class NotedWrite(Generic[A]):
    """One verdict upon a locked run."""

    def __init__(self, run_key: str, now_ms: Millis, judge: Callable[[Columns | None], Verdict[A]]) -> None:
        self._key = run_key
        self._now = now_ms
        self._judge = judge
        self._sent: tuple[Noted, A] | None = None

    def __call__(self, tx: Connection) -> A:
        """Judge and write."""
        return self._judged(tx, lock(tx, self._key, self._now))

    def again(self, tx: Connection) -> A:
        """Write once more where no reply came; the fact tells whether the first one happened.

        The lock is waited for first: who sent the first one may still be about to commit it.
        """
        held = lock(tx, self._key, self._now)
        if self._sent is not None:
            noted, answer = self._sent
            if noted.stands(tx):
                return undone(tx, answer)
        return self._judged(tx, held)

    def _judged(self, tx: Connection, held: Held | None) -> A:
        verdict = self._judge(None if held is None else held.row)
        change = verdict.change
        if held is None or change is None:
            return undone(tx, verdict.answer)
        entry: int = held.row["last_entry"] + 1
        facts = ownership_facts(change.owner, change.granted_at_ms)
        tx.execute(_RUN.values(**change.columns, last_entry=entry), {"b_run": self._key})
        note_at(tx, held, entry, change.kind, facts)
        self._sent = Noted(self._key, entry, self._now, change.kind, json.encode(facts)), verdict.answer
        return verdict.answer
