"""A database in memory has one connection: whoever wants to look at one moment for longer gets a copy of it."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, StaticPool, create_engine

from belay_drivers.sql.connection.connection_runner import ConnectionRunner, Session, ThreadRunner
from belay_drivers.sql.connection.database import Sender

T = TypeVar("T")


async def copied_session(database: Sender) -> Session:
    """A connection to a copy of the database as it stands; closing it forgets the copy."""
    copy = await database.read(_copied)
    runner = ThreadRunner(create_engine("sqlite://", poolclass=StaticPool, creator=lambda: copy), "belay-sqlite-copy")
    return _CopySession(runner, await runner.hold())


class _CopySession(Session):
    """The one connection to a copy."""

    def __init__(self, runner: ConnectionRunner, session: Session) -> None:
        self._runner = runner
        self._session = session

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work on the connection."""
        return await self._session.run(work)

    async def close(self, *, broken: bool) -> None:
        """Forget the copy."""
        await self._session.close(broken=broken)
        await self._runner.close()


def _copied(tx: Connection) -> sqlite3.Connection:
    # It is made in the thread of the database, and used in one of its own.
    copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    source = tx.connection.driver_connection
    assert isinstance(source, sqlite3.Connection)  # noqa: S101
    source.backup(copy)
    return copy
