"""Straight to SQLite: transactions in the thread that writes, whose statements go to the driver itself."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Engine
from typing_extensions import override

from belay_drivers.sql.connection.connection_runner import ThreadRunner
from belay_drivers.sql.connection.statement_channel import EngineEvents, StatementChannel
from belay_drivers.sql.statements.write_ops import Applied, WriteOp
from belay_drivers.sqlite.batch import done
from belay_drivers.sqlite.raw_cursor import RawCursor

T = TypeVar("T")

_BEGIN: Final = "BEGIN IMMEDIATE"
_COMMIT: Final = "COMMIT"


class SqliteChannel(StatementChannel):
    """Over the connection that everything else is written on as well."""

    def __init__(self, runner: ThreadRunner) -> None:
        self._engine = runner.sync_engine
        self._told = EngineEvents(self._engine)
        self._straight = RawCursor(runner)

    @property
    @override
    def sync_engine(self) -> Engine:
        return self._engine

    @override
    async def flush(self, works: Sequence[WriteOp]) -> Sequence[Applied | None]:
        return await self.transaction(lambda cursor: [done(cursor, work) for work in works])

    async def transaction(
        self, work: Callable[[Any], Sequence[T]], *, unless: Callable[[Any], bool] = lambda _cursor: False
    ) -> Sequence[T]:
        """Do work in one transaction; none is begun, and nothing done, where ``unless`` answers yes before it."""

        def transaction(cursor: Any) -> Sequence[T]:
            if unless(cursor):
                return ()
            self._execute(cursor, _BEGIN)
            answers = work(cursor)
            self._execute(cursor, _COMMIT)
            return answers

        return await self._straight.do(transaction)

    @override
    async def close(self) -> None:
        """The thread is not its own."""

    def _execute(self, cursor: Any, statement: str) -> None:
        context = self._told.before(statement)
        cursor.execute(statement)
        self._told.after(statement, context)
