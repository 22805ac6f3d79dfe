"""Straight to the driver: work on a cursor of its connection, past what SQLAlchemy does for each."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import event
from sqlalchemy.pool import ConnectionPoolEntry

from belay_drivers.sql.connection.connection_runner import ThreadRunner

T = TypeVar("T")


class RawCursor:
    """Over the one connection of a carrier's pool, in the carrier's thread.

    The connection stays in its pool: to take it out and give it back takes longer than a statement. Nobody else has it
    meanwhile, since whoever takes it out uses it in the same thread, and whoever keeps it keeps its turn to write too.
    """

    def __init__(self, runner: ThreadRunner) -> None:
        self._runner = runner
        self._entry: ConnectionPoolEntry | None = None
        event.listen(runner.sync_engine, "connect", self._connected)

    async def do(self, work: Callable[[Any], T]) -> T:
        """Do work on a cursor; a transaction that it leaves open where it raises is rolled back."""
        return await self._runner.do(lambda: self._done(work))

    def _done(self, work: Callable[[Any], T]) -> T:
        cursor: Any = self._driver().cursor()
        try:
            try:
                return work(cursor)
            finally:
                # First of all: the pool closes a connection on which it cannot roll back, and this would be the error.
                cursor.close()
        except BaseException:
            self._pass_through_pool()
            raise

    def _driver(self) -> Any:
        if self._entry is None or self._entry.dbapi_connection is None:
            self._pass_through_pool()
        assert self._entry is not None  # noqa: S101
        return self._entry.dbapi_connection

    def _pass_through_pool(self) -> None:
        """Have the pool open a connection where there is none, and roll back what is open, as it does with each."""
        self._runner.sync_engine.raw_connection().close()

    def _connected(self, _connection: object, entry: ConnectionPoolEntry) -> None:
        self._entry = entry
