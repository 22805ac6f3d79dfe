"""Reads of one moment, on a connection that is kept while they last."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn, TypeVar

from sqlalchemy import Connection, Engine

from belay_core.errors import DatabaseError
from belay_core.moments import Clock
from belay_core.stores.snapshots import SnapshotReads, Snapshots
from belay_drivers.sql.carrying import Line
from belay_drivers.sql.database import Sender
from belay_drivers.sql.dialect import SqlDialect
from belay_drivers.sql.run_store.lineages import LineageReading
from belay_drivers.sql.run_store.reading import Reading
from belay_drivers.sql.shielding import Abandoned, outlasting

T = TypeVar("T")


class SqlSnapshots(Snapshots):
    """Views of one database."""

    def __init__(self, database: Sender, hold: Callable[[], Awaitable[Line]], clock: Clock) -> None:
        self._database = database
        self._hold = hold
        self._clock = clock

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[SnapshotReads]:
        """Reads that see the database as it stood at the first of them."""
        moment = _Moment(self._hold, self._database)
        try:
            yield _SqlSnapshotReads(moment, self._clock)
        finally:
            await moment.end()


class _SqlSnapshotReads(Reading, LineageReading, SnapshotReads):
    """The reads."""


class _Moment(Sender):
    """Reads on one connection, in the transaction that the first of them begins."""

    def __init__(self, hold: Callable[[], Awaitable[Line]], database: Sender) -> None:
        self.dialect: SqlDialect = database.dialect
        self._hold = hold
        self._line: Line | None = None
        self._engines = database.sync_engines
        self._turn = asyncio.Lock()
        self._broken = False
        self._over = False

    @property
    def sync_engines(self) -> tuple[Engine, ...]:
        """The engines of the database."""
        return self._engines

    async def send(self, body: object, *, tried: int = 0) -> NoReturn:  # noqa: ARG002  nothing is written here, whatever it is
        """Refuse: this is for reads."""
        raise DatabaseError("unsupported")

    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body; nothing is repeated, since another moment would be another answer."""
        async with self._turn:
            if self._over:
                raise DatabaseError("unsupported")
            return await outlasting(self._reading(body), Abandoned(), None)

    async def _reading(self, body: Callable[[Connection], T]) -> T:
        try:
            # Here, so that one that cannot be had is told as any other failure, and one that is had is let go of.
            self._line = self._line or await self._hold()
            return await self._line.carry(body)
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
            self._broken = self._broken or failure.lost
        raise failure.error()

    async def end(self) -> None:
        """Let go of the connection once no read is under way; that is waited for, whoever is cancelled."""
        await outlasting(self._ended(), Abandoned(), None)

    async def _ended(self) -> None:
        async with self._turn:
            self._over = True
            if self._line is not None:
                await self._line.close(broken=self._broken)
