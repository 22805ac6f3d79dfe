"""Snapshot reads, on a connection that is kept until they end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn, TypeVar

from sqlalchemy import Connection, Engine

from belay_core.clock import Clock
from belay_core.errors import DatabaseError
from belay_core.stores.snapshots import SnapshotReads, Snapshots
from belay_drivers.sql.connection.connection_runner import Session
from belay_drivers.sql.connection.database import Sender
from belay_drivers.sql.connection.dialect import SqlDialect
from belay_drivers.sql.connection.uncancelled import Cancelled, run_uncancelled
from belay_drivers.sql.stores.runs.lineages import ReadLineages
from belay_drivers.sql.stores.runs.read import ReadRuns

T = TypeVar("T")


class SqlSnapshots(Snapshots):
    """Snapshots of one database."""

    def __init__(self, database: Sender, hold: Callable[[], Awaitable[Session]], clock: Clock) -> None:
        self._database = database
        self._hold = hold
        self._clock = clock

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[SnapshotReads]:
        """Reads that see the state of the database at the first of them."""
        moment = _SnapshotSender(self._hold, self._database)
        try:
            yield _SqlSnapshotReads(moment, self._clock)
        finally:
            await moment.end()


class _SqlSnapshotReads(ReadRuns, ReadLineages, SnapshotReads):
    """The reads."""


class _SnapshotSender(Sender):
    """Reads on one connection, in the transaction that the first of them begins."""

    def __init__(self, hold: Callable[[], Awaitable[Session]], database: Sender) -> None:
        self.dialect: SqlDialect = database.dialect
        self._hold = hold
        self._session: Session | None = None
        self._database = database
        self._engines = database.sync_engines
        self._turn = asyncio.Lock()
        self._broken = False
        self._over = False

    @property
    def sync_engines(self) -> tuple[Engine, ...]:
        """The engines of the database."""
        return self._engines

    async def send(self, body: object, *, tried: int = 0) -> NoReturn:  # noqa: ARG002  every body is refused
        """Refuse: a snapshot is only for reads."""
        raise DatabaseError("unsupported")

    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body without retries, since a new transaction would be another snapshot."""
        self._database.check_usage()
        async with self._turn:
            if self._over:
                raise DatabaseError("unsupported")
            return await run_uncancelled(self._reading(body), Cancelled(), None)

    async def _reading(self, body: Callable[[Connection], T]) -> T:
        try:
            # Opened here, so that a failure is translated as any other, and the connection is always returned.
            self._session = self._session or await self._hold()
            return await self._session.run(body)
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
            self._broken = self._broken or failure.lost
        raise failure.error()

    async def end(self) -> None:
        """Return the connection after the read under way; awaited also if the caller is cancelled."""
        await run_uncancelled(self._ended(), Cancelled(), None)

    async def _ended(self) -> None:
        async with self._turn:
            self._over = True
            if self._session is not None:
                await self._session.close(broken=self._broken)
