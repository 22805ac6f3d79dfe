"""How work on a connection is carried to a database: on the event loop, or in one thread of its own."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")


class Carrier(Protocol):
    """Opens a connection for a piece of work, does it, and gives the connection back."""

    @property
    @abstractmethod
    def sync_engine(self) -> Engine:
        """The engine whose events tell what is sent."""

    @abstractmethod
    async def carry(self, work: Callable[[Connection], T]) -> T:
        """Do the work on a connection; what it leaves open is rolled back."""

    @abstractmethod
    async def close(self) -> None:
        """Close every connection."""


class LoopCarrier(Carrier):
    """Over an asyncio driver, on the running loop."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @property
    def sync_engine(self) -> Engine:
        """The engine below the asyncio one."""
        return self.engine.sync_engine

    async def carry(self, work: Callable[[Connection], T]) -> T:
        """Do the work on a connection."""
        async with self.engine.connect() as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


class ThreadCarrier(Carrier):
    """Over a driver that blocks, in one thread: a whole transaction costs one hop there and back."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    @property
    def sync_engine(self) -> Engine:
        """The engine itself."""
        return self._engine

    async def carry(self, work: Callable[[Connection], T]) -> T:
        """Do the work on a connection."""
        context = copy_context()

        def connected() -> T:
            with self._engine.connect() as connection:
                return context.run(lambda: work(connection))

        return await asyncio.wrap_future(self._thread.submit(connected))

    async def close(self) -> None:
        """Close every connection, in the thread that opened them, and end it."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.dispose)
        self._thread.shutdown()
