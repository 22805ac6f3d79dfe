"""Writes to a run with one journal entry, by which a resent write detects that the first try was committed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

from sqlalchemy import Connection, bindparam, update

from belay_core.clock import Millis
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.fences import Held, lock
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.statements.run_rows import Noted, note_text

A = TypeVar("A")

_RUN: Final = update(runs).where(runs.c.run_id == bindparam("b_run"))
_VALUES: Final = update(values).where(values.c.run_id == bindparam("b_run"))


@dataclass(frozen=True, slots=True)
class Entry(Generic[A]):
    """A write: the entry, and columns of the run (``bound`` are their parameters) and of its values.

    ``answer`` makes the outcome from the number of the entry.
    """

    kind: str
    facts: str
    answer: Callable[[int], A]
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    bound: Mapping[str, Any] = field(default_factory=dict[str, Any])
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


Judge = Callable[[Connection, Columns | None], A | Entry[A]]
"""Decides from the locked run (None if there is none) on an outcome or a write; without a run on an outcome."""


class EntryWrite(Generic[A]):
    """One write to a locked run."""

    def __init__(self, run_key: str, now_ms: Millis, judge: Judge[A]) -> None:
        self._key = run_key
        self._now = now_ms
        self._judge = judge
        self._sent: tuple[Noted, A] | None = None

    def __call__(self, tx: Connection) -> A:
        """Decide and write."""
        return self._judged(tx, lock(tx, self._key, self._now))

    def again(self, tx: Connection) -> A:
        """Write once more after a lost reply; the entry shows whether the first try was committed.

        The lock comes first: the first try may still be about to commit.
        """
        held = lock(tx, self._key, self._now)
        if self._sent is not None:
            noted, answer = self._sent
            if noted.is_stored(tx):
                return undone(tx, answer)
        return self._judged(tx, held)

    def _judged(self, tx: Connection, held: Held | None) -> A:
        verdict = self._judge(tx, None if held is None else held.row)
        if held is None or not isinstance(verdict, Entry):
            return undone(tx, cast("A", verdict))
        return self._write(tx, held, cast("Entry[A]", verdict))

    def _write(self, tx: Connection, held: Held, entry: Entry[A]) -> A:
        number: int = held.row["last_entry"] + 1
        tx.execute(_RUN.values(**entry.columns, last_entry=number), {**entry.bound, "b_run": self._key})
        if entry.values:
            tx.execute(_VALUES.values(**entry.values), {"b_run": self._key})
        note_text(tx, held, number, entry.kind, entry.facts)
        answer = entry.answer(number)
        self._sent = Noted(self._key, number, self._now, entry.kind, entry.facts), answer
        return answer
