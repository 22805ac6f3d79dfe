"""Statement channels to PostgreSQL: one dedicated connection with prepared statements, or one through a pooler."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import asyncpg
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from typing_extensions import override

from belay_drivers.postgres.batch import flush_of
from belay_drivers.postgres.dialect import READ_ONLY
from belay_drivers.sql.connection.connection_runner import ConnectionRunner
from belay_drivers.sql.connection.statement_channel import EngineEvents, NotSent, StatementChannel
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.statements.write_ops import Applied, WriteOp


class StatementClient(StatementChannel):
    """A channel for single statements."""

    @abstractmethod
    async def ask(self, sql: str, given: tuple[Any, ...]) -> Sequence[Columns]:
        """The rows of a statement, which commits by itself."""

    @override
    async def flush(self, works: Sequence[WriteOp]) -> Sequence[Applied | None]:
        flush = flush_of(works)
        return flush.answers(await self.ask(flush.sql, flush.given))


class PostgresChannel(StatementClient):
    """A channel over one connection, opened on first use and after a loss."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._events = EngineEvents(engine.sync_engine)
        self._dispatch: Any = engine.sync_engine.dispatch
        self._turn = asyncio.Lock()
        self._held: _PreparedConnection | None = None

    @property
    @override
    def sync_engine(self) -> Engine:
        return self._engine.sync_engine

    @property
    def _listened(self) -> bool:
        """Whether anything listens to the engine's statements."""
        return bool(self._dispatch.before_cursor_execute or self._dispatch.after_cursor_execute)

    @override
    async def ask(self, sql: str, given: tuple[Any, ...]) -> Sequence[Columns]:
        async with self._turn:
            held = self._held
            if held is None:
                held = self._held = await _open(self._engine)
            context = self._events.before(sql) if self._listened else None
            try:
                rows = await held.fetch(sql, given)
            except BaseException as error:
                refused = getattr(error, "sqlstate", None) == READ_ONLY
                if not isinstance(error, asyncpg.PostgresError) or not held.is_open or refused:
                    self._held = None
                    await held.close(broken=True)
                raise
            if context is not None:
                self._events.after(sql, context)
            return rows

    @override
    async def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.close(broken=False)
        await self._engine.dispose()


class TransactionChannel(StatementClient):
    """A channel through a pooler in transaction mode: each statement is a transaction, on any connection."""

    def __init__(self, runner: ConnectionRunner) -> None:
        self._runner = runner

    @property
    @override
    def sync_engine(self) -> Engine:
        return self._runner.sync_engine

    @override
    async def ask(self, sql: str, given: tuple[Any, ...]) -> Sequence[Columns]:
        def sent(connection: Connection) -> Sequence[Columns]:
            with connection.begin():
                return connection.exec_driver_sql(sql, given).mappings().all()

        return await self._runner.run(sent)

    @override
    async def close(self) -> None:
        """Nothing to close: the connections belong to the pool."""


class _PreparedConnection:
    """An open connection and its prepared statements."""

    def __init__(self, connection: AsyncConnection, driver: Any) -> None:
        self._connection = connection
        self._driver = driver
        self._prepared: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """Whether it is still open."""
        return not self._driver.is_closed()

    async def fetch(self, sql: str, given: tuple[Any, ...]) -> list[Any]:
        """The rows of a statement, which commits by itself."""
        prepared = self._prepared.get(sql) or await self._prepare(sql)
        try:
            rows: list[Any] = await prepared.fetch(*given)
        except asyncpg.InvalidCachedStatementError:
            # A migration has changed the result type: the statement was not executed, and is prepared again.
            rows = await (await self._prepare(sql)).fetch(*given)
        return rows

    async def _prepare(self, sql: str) -> Any:
        prepared = self._prepared[sql] = await self._driver.prepare(sql)
        return prepared

    async def close(self, *, broken: bool) -> None:
        """Close it; a broken one without a message to the server."""
        if broken:
            await self._connection.invalidate()
        await self._connection.close()


async def _open(engine: AsyncEngine) -> _PreparedConnection:
    try:
        connection = await engine.connect()
        return _PreparedConnection(connection, (await connection.get_raw_connection()).driver_connection)
    except Exception as error:
        raise NotSent from error
