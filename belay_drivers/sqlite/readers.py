"""Reads that happen often, straight to the driver."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from typing_extensions import override

from belay_drivers.sql.connection.connection_runner import ThreadRunner
from belay_drivers.sqlite.channel import RawCursor


class Reader(Protocol):
    """A way to read past whatever is being written."""

    @abstractmethod
    async def ask(self, sql: str, given: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        """The rows a statement answers."""

    @abstractmethod
    async def close(self) -> None:
        """Close its connection."""


class FileReader(Reader):
    """Over a reading connection of its own, opened when it is needed first and when it failed."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._turn = asyncio.Lock()
        self._held: AsyncConnection | None = None

    @override
    async def ask(self, sql: str, given: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        async with self._turn:
            held = self._held or await self._engine.connect()
            self._held = None
            try:
                driver: Any = (await held.get_raw_connection()).driver_connection
                rows: Sequence[tuple[Any, ...]] = await driver.execute_fetchall(sql, given)
            except BaseException:
                await held.invalidate()
                await held.close()
                raise
            self._held = held
            return rows

    @override
    async def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.close()
        await self._engine.dispose()


class MemoryReader(Reader):
    """Over the one connection there is."""

    def __init__(self, runner: ThreadRunner) -> None:
        self._straight = RawCursor(runner)

    @override
    async def ask(self, sql: str, given: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        def looked(cursor: Any) -> Sequence[tuple[Any, ...]]:
            rows: Sequence[tuple[Any, ...]] = cursor.execute(sql, given).fetchall()
            return rows

        return await self._straight.do(looked)

    @override
    async def close(self) -> None:
        """The connection is not its own."""
