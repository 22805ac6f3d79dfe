"""Writes to a run that leave one ownership fact, by which they know their own work again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from belay_core.clock import Millis
from belay_core.records.owner import OwnerId
from belay_core.values import json
from belay_drivers.sql.statements.entry_write import Entry, EntryWrite
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.stores.runs.base import ownership_facts

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Change:
    """What is written to a run: the columns, and the fact that goes with them."""

    columns: Mapping[str, Any]
    kind: str
    owner: OwnerId
    granted_at_ms: Millis | None


@dataclass(frozen=True, slots=True)
class Verdict(Generic[A]):
    """What is answered about a run, and what is written to it, if anything; nothing where there is no run."""

    answer: A
    change: Change | None = None


def noted_write(run_key: str, now_ms: Millis, judge: Callable[[Columns | None], Verdict[A]]) -> EntryWrite[A]:
    """One verdict upon a locked run."""

    def judged(_tx: Connection, row: Columns | None) -> A | Entry[A]:
        verdict = judge(row)
        change = verdict.change
        if change is None:
            return verdict.answer
        facts = json.encode(ownership_facts(change.owner, change.granted_at_ms))
        return Entry(change.kind, facts, lambda _number: verdict.answer, change.columns)

    return EntryWrite(run_key, now_ms, judged)
