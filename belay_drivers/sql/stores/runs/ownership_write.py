"""Writes to a run with one ownership fact, by which a resent write detects that the first try was committed."""

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
    """A write to a run: columns, and the ownership fact."""

    columns: Mapping[str, Any]
    kind: str
    owner: OwnerId
    granted_at_ms: Millis | None


@dataclass(frozen=True, slots=True)
class Verdict(Generic[A]):
    """An outcome and the write to the run, if any; no write without a run."""

    answer: A
    change: Change | None = None


def noted_write(run_key: str, now_ms: Millis, judge: Callable[[Columns | None], Verdict[A]]) -> EntryWrite[A]:
    """A write that ``judge`` decides on from the locked run."""

    def judged(_tx: Connection, row: Columns | None) -> A | Entry[A]:
        verdict = judge(row)
        change = verdict.change
        if change is None:
            return verdict.answer
        facts = json.encode(ownership_facts(change.owner, change.granted_at_ms))
        return Entry(change.kind, facts, lambda _number: verdict.answer, change.columns)

    return EntryWrite(run_key, now_ms, judged)
