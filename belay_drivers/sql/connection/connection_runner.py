"""Run work on a connection: on the event loop, or in a dedicated thread."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from belay_drivers.sql.connection.driver_thread import DriverThread

T = TypeVar("T")


class Session(Protocol):
    """One connection, kept for several pieces of work, one after another."""

    @abstractmethod
    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run the work on the connection; its transaction stays open."""

    @abstractmethod
    async def close(self, *, broken: bool) -> None:
        """Return the connection; one that is ``broken`` is not reused."""


class ConnectionRunner(Protocol):
    """Opens a connection for a piece of work, runs it, and returns the connection."""

    @property
    @abstractmethod
    def sync_engine(self) -> Engine:
        """The engine whose events report what is sent."""

    @abstractmethod
    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run the work on a connection; an open transaction is rolled back at its end."""

    @abstractmethod
    async def hold(self) -> Session:
        """A connection until the caller closes it."""

    @abstractmethod
    async def close(self) -> None:
        """Close every connection."""


class LoopSession(Session):
    """A connection of an asyncio driver."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run the work on the connection."""
        return await self._connection.run_sync(work)

    async def close(self, *, broken: bool) -> None:
        """Return the connection."""
        if broken:
            await self._connection.invalidate()
        await self._connection.close()


class LoopRunner(ConnectionRunner):
    """A runner over an asyncio driver, on the running event loop."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @property
    def sync_engine(self) -> Engine:
        """The engine below the asyncio one."""
        return self.engine.sync_engine

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run the work on a connection."""
        async with self.engine.connect() as connection:
            return await connection.run_sync(work)

    async def hold(self) -> Session:
        """A connection until the caller closes it."""
        return LoopSession(await self.engine.connect())

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


class ThreadRunner(ConnectionRunner):
    """A runner over a blocking driver, in one thread: a whole transaction costs one switch to it and back."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._thread = DriverThread(name)

    @property
    def sync_engine(self) -> Engine:
        """The engine itself."""
        return self._engine

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run the work on a connection."""

        def connected() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        return await self._thread.do(connected)

    async def do(self, work: Callable[[], T]) -> T:
        """Run work in the thread."""
        return await self._thread.do(work)

    async def hold(self) -> Session:
        """A connection until the caller closes it."""
        return _ThreadSession(await self._thread.do(self._engine.connect), self._thread)

    async def close(self) -> None:
        """Close every connection, in the thread that opened them, and end it."""
        await self._thread.end(self._engine.dispose)


class _ThreadSession(Session):
    """A connection that is used only in its own thread."""

    def __init__(self, connection: Connection, thread: DriverThread) -> None:
        self._connection = connection
        self._thread = thread

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run the work on the connection."""
        return await self._thread.do(lambda: work(self._connection))

    async def close(self, *, broken: bool) -> None:
        """Return the connection."""
        if broken:
            await self._thread.do(self._connection.invalidate)
        await self._thread.do(self._connection.close)
