"""What somebody outside sees of a database: the rows of a run, and what was left open."""

import asyncio
import re
import sqlite3
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any, Protocol

import asyncpg

from belay_core.stores import Stores
from belay_drivers.sql.connection.engine_lookup import engines_of

TABLES = ("belay_runs", "belay_run_values", "belay_attempts", "belay_approvals", "belay_journal")
PLACES = {"xid", "position"}
"""Columns that say when a row was written relative to those of other runs."""
MOMENT = re.compile(r"\b17\d{11}\b")
PATIENCE = 100
"""How often a database is looked at until it has noticed that a connection was ended."""


class Probe(Protocol):
    """A way of its own to one database."""

    @abstractmethod
    async def table(self, table: str, run_id: str) -> list[dict[str, Any]]:
        """The rows of a run in a table."""

    @abstractmethod
    async def left_open(self) -> list[str]:
        """Locks and transactions that are still held by others, in words."""


class SqliteProbe(Probe):
    """Over a connection of its own to the same file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def table(self, table: str, run_id: str) -> list[dict[str, Any]]:
        cursor = self._connection.execute(f"SELECT * FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    async def left_open(self) -> list[str]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return ["the write lock is held"]
        self._connection.execute("ROLLBACK")
        return []


_HELD = """
SELECT a.state || ' holds ' || coalesce(l.locktype, 'a transaction') FROM pg_stat_activity a
  LEFT JOIN pg_locks l ON l.pid = a.pid AND l.locktype IN ('relation', 'transactionid', 'tuple', 'advisory')
  WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
    AND (l.pid IS NOT NULL OR a.state LIKE 'idle in%')
"""


class PostgresProbe(Probe):
    """Over a connection of its own to the same database."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def table(self, table: str, run_id: str) -> list[dict[str, Any]]:
        rows = await self._connection.fetch(f"SELECT * FROM {table} WHERE run_id = $1", run_id)  # noqa: S608
        return [dict(row) for row in rows]

    async def left_open(self) -> list[str]:
        held: list[str] = []
        for _ in range(PATIENCE):
            held = [row[0] or "" for row in await self._connection.fetch(_HELD)]
            if not held:
                break
            await asyncio.sleep(0.01)
        return held


@asynccontextmanager
async def probing(url: str) -> AsyncIterator[Probe]:
    """A probe for the database behind a URL."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0, isolation_level=None)) as connection:
            yield SqliteProbe(connection)
        return
    watching = await asyncpg.connect(url)
    try:
        yield PostgresProbe(watching)
    finally:
        await watching.close()


async def snapshot(probe: Probe, label: str, base: int) -> str:
    """All rows of the label's run, told without its name and relative to a moment."""
    rows = [
        f"{table} {sorted((name, value) for name, value in row.items() if name not in PLACES)}"
        for table in TABLES
        for row in await probe.table(table, label)
    ]
    text = "\n".join(sorted(rows)).replace(label, "LABEL")
    return MOMENT.sub(lambda found: f"+{int(found[0]) - base}", text)


def checked_out(stores: Stores) -> list[str]:
    """Connections that were not given back."""
    pools: list[Any] = [engine.pool for engine in engines_of(stores)]
    counts = [pool.checkedout() for pool in pools if hasattr(pool, "checkedout")]
    return [f"{count} connections are not given back" for count in counts if count > 0]
