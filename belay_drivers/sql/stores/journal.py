"""Journal in SQL: two streams in one table, distinguished by kind."""

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from sqlalchemy import Connection, Select, bindparam, select

from belay_core.clock import Clock
from belay_core.errors import JournalError
from belay_core.ids import RunId
from belay_core.records.attempt import JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.workflow_run import JournalEntry
from belay_core.stores.journal import OWNERSHIP_PREFIX, Appended, AppendOutcome, Journal, JournalInput
from belay_core.stores.run_contract import FenceLost, NotFound
from belay_drivers.sql.connection.database import Sender
from belay_drivers.sql.schema.tables import journal
from belay_drivers.sql.statements.entry_write import Entry, EntryWrite
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns, journal_entry
from belay_drivers.sql.stores.auxiliary_base import StoreRole
from belay_drivers.sql.stores.runs.base import is_owner

_PART: Final = (
    select(journal)
    .where(journal.c.run_id == bindparam("b_run"), journal.c.entry > bindparam("b_after"))
    .order_by(journal.c.entry)
    .limit(bindparam("b_limit"))
)
_EVENTS: Final = _PART.where(journal.c.kind.not_like(f"{OWNERSHIP_PREFIX}%"))
_OWNERSHIP: Final = _PART.where(journal.c.kind.like(f"{OWNERSHIP_PREFIX}%"))


class SqlJournal(StoreRole, Journal):
    """Events and ownership facts, over one database."""

    error = JournalError

    def __init__(self, database: Sender, clock: Clock) -> None:
        super().__init__(database, clock)
        # Appends to one run are serialized: after a lost reply an event is recognized by its entry, and an equal event
        # must not have that number.
        self._appending: WeakValueDictionary[RunId, asyncio.Lock] = WeakValueDictionary()

    async def append(self, run_id: RunId, owner: OwnerId, kind: str, facts: JsonValue) -> AppendOutcome:
        """Add an event of the caller's own to the run it owns."""
        given = JournalInput("append")
        run_id = given.run_id(run_id)
        owner = given.owner(owner)
        kind = given.kind(kind)
        text = given.facts(facts)

        def judge(_tx: Connection, row: Columns | None) -> AppendOutcome | Entry[AppendOutcome]:
            if row is None:
                return NotFound()
            if not is_owner(row, owner):
                return FenceLost()
            return Entry(kind, text, Appended, columns={"write_seq": row["write_seq"] + 1})

        write: EntryWrite[AppendOutcome] = EntryWrite(key_of(run_id), self._now(), judge)
        async with self._appending.setdefault(run_id, asyncio.Lock()):
            return await self._guard("append", self._database.write(write, write.again))

    async def read(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        """Events of a run after this entry."""
        return await self._part("read", _EVENTS, run_id, after, limit)

    async def ownership(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        """Ownership facts of a run after this entry."""
        return await self._part("ownership", _OWNERSHIP, run_id, after, limit)

    async def _part(
        self, method: str, stream: Select[tuple[object, ...]], run_id: RunId, after: int, limit: int
    ) -> tuple[JournalEntry, ...]:
        given = JournalInput(method)
        run_id = given.run_id(run_id)
        after, limit = given.part(after, limit)
        bound = {"b_run": key_of(run_id), "b_after": after, "b_limit": limit}

        def read(tx: Connection) -> tuple[JournalEntry, ...]:
            return tuple(journal_entry(row, run_id) for row in tx.execute(stream, bound).mappings().all())

        return await self._guard(method, self._database.read(read))
