"""Straight to SQLite: transactions in the thread that writes, whose statements go to the driver itself."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Engine, event
from sqlalchemy.pool import ConnectionPoolEntry
from typing_extensions import override

from belay_drivers.sql.connection.connection_runner import ThreadRunner
from belay_drivers.sql.connection.statement_channel import EngineEvents, StatementChannel
from belay_drivers.sql.statements.write_ops import Applied, WriteOp
from belay_drivers.sqlite.batch import done_together

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
        return await self._runner.thread.do(partial(self._done, work))

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


_BEGIN: Final = "BEGIN IMMEDIATE"
_COMMIT: Final = "COMMIT"


class SqliteChannel(StatementChannel):
    """Over the connection that everything else is written on as well."""

    def __init__(self, runner: ThreadRunner) -> None:
        self._engine = runner.sync_engine
        self._events = EngineEvents(self._engine)
        self._raw = RawCursor(runner)

    @property
    @override
    def sync_engine(self) -> Engine:
        return self._engine

    @override
    async def flush(self, works: Sequence[WriteOp]) -> Sequence[Applied | None]:
        return await self.transaction(partial(done_together, works))

    async def transaction(
        self, work: Callable[[Any], Sequence[T]], *, unless: Callable[[Any], bool] | None = None
    ) -> Sequence[T]:
        """Do work in one transaction; none is begun, and nothing done, where ``unless`` answers yes before it."""

        def transaction(cursor: Any) -> Sequence[T]:
            if unless is not None and unless(cursor):
                return ()
            self._execute(cursor, _BEGIN)
            answers = work(cursor)
            self._execute(cursor, _COMMIT)
            return answers

        return await self._raw.do(transaction)

    @override
    async def close(self) -> None:
        """The thread is not its own."""

    def _execute(self, cursor: Any, statement: str) -> None:
        dispatch: Any = self._engine.dispatch
        if not (dispatch.before_cursor_execute or dispatch.after_cursor_execute):
            cursor.execute(statement)
            return
        context = self._events.before(statement)
        cursor.execute(statement)
        self._events.after(statement, context)
