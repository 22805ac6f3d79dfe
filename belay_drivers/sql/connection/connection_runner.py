"""How work on a connection is carried to a database: on the event loop, or in one thread of its own."""

import asyncio
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")

_Jobs: TypeAlias = "SimpleQueue[_Job[Any] | None]"


class DriverThread:
    """Does one thing after the other, in the order in which they were asked for; it begins with the first.

    It ends by ``end``, or when nobody is left to ask. It does not keep the interpreter from leaving: a transaction that
    is under way then is rolled back by whoever opens the database next.
    """

    def __init__(self, name: str) -> None:
        self._jobs: _Jobs = SimpleQueue()
        self._thread = threading.Thread(target=_do_all, args=(self._jobs,), name=name, daemon=True)
        self._ended = False
        weakref.finalize(self, self._jobs.put, None)

    async def do(self, work: Callable[[], T]) -> T:
        """What the work answers or raises; a caller who is cancelled before it begins withdraws it.

        Raises ``RuntimeError`` after the end.
        """
        return await self._asked(work)

    async def end(self, last: Callable[[], None]) -> None:
        """Do one more thing, after all that was asked for, and come back when the thread is gone."""
        answered = self._asked(last)
        self._ended = True
        self._jobs.put(None)
        # Whoever is cancelled does not wait, but it is done.
        await asyncio.shield(answered)
        self._thread.join()

    def _asked(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        if self._ended:
            raise RuntimeError("the thread has ended")
        if self._thread.ident is None:
            self._thread.start()
        job = _Job(work)
        self._jobs.put(job)
        return job.answered


class _Job(Generic[T]):
    """A piece of work, and who waits for it on which loop."""

    __slots__ = ("_context", "_loop", "_work", "answered")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        # The caller's, in which whoever traces the driver's calls looks for their span.
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[T] = self._loop.create_future()

    def do(self) -> None:
        """In the thread: do it, and tell the loop."""
        if self.answered.cancelled():
            return
        try:
            value = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001  (it is raised to whoever waits, and the thread lives on)
            # A future takes no StopIteration, and its caller would wait for ever.
            told = RuntimeError("the work raised StopIteration") if isinstance(error, StopIteration) else error
            self._tell(self.answered.set_exception, told)
        else:
            self._tell(self.answered.set_result, value)

    def _tell(self, how: Callable[[Any], None], what: object) -> None:
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._told, how, what)

    def _told(self, how: Callable[[Any], None], what: object) -> None:
        if not self.answered.done():
            how(what)


def _do_all(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        # What it holds is not held until the next one comes.
        del job


class Session(Protocol):
    """One connection, kept for several pieces of work, one after another."""

    @abstractmethod
    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work on the connection; what it begins stays open."""

    @abstractmethod
    async def close(self, *, broken: bool) -> None:
        """Give the connection back; one that is ``broken`` is not used by anybody again."""


class ConnectionRunner(Protocol):
    """Opens a connection for a piece of work, does it, and gives the connection back."""

    @property
    @abstractmethod
    def sync_engine(self) -> Engine:
        """The engine whose events tell what is sent."""

    @abstractmethod
    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work on a connection; what it leaves open is rolled back."""

    @abstractmethod
    async def hold(self) -> Session:
        """A connection for as long as the caller keeps it."""

    @abstractmethod
    async def close(self) -> None:
        """Close every connection."""


class LoopSession(Session):
    """A connection of an asyncio driver."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work on the connection."""
        return await self._connection.run_sync(work)

    async def close(self, *, broken: bool) -> None:
        """Give the connection back."""
        if broken:
            await self._connection.invalidate()
        await self._connection.close()


class LoopRunner(ConnectionRunner):
    """Over an asyncio driver, on the running loop."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @property
    def sync_engine(self) -> Engine:
        """The engine below the asyncio one."""
        return self.engine.sync_engine

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work on a connection."""
        async with self.engine.connect() as connection:
            return await connection.run_sync(work)

    async def hold(self) -> Session:
        """A connection for as long as the caller keeps it."""
        return LoopSession(await self.engine.connect())

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


class ThreadRunner(ConnectionRunner):
    """Over a driver that blocks, in one thread: a whole transaction costs one hop there and back."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.thread = DriverThread(name)

    @property
    def sync_engine(self) -> Engine:
        """The engine itself."""
        return self._engine

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work on a connection."""

        def connected() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        return await self.thread.do(connected)

    async def do(self, work: Callable[[], T]) -> T:
        """Do work in the thread."""
        return await self.thread.do(work)

    async def hold(self) -> Session:
        """A connection for as long as the caller keeps it."""
        return _ThreadSession(await self.thread.do(self._engine.connect), self.thread)

    async def close(self) -> None:
        """Close every connection, in the thread that opened them, and end it."""
        await self.thread.end(self._engine.dispose)


class _ThreadSession(Session):
    """A connection used in its own thread only."""

    def __init__(self, connection: Connection, thread: DriverThread) -> None:
        self._connection = connection
        self._thread = thread

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work on the connection."""
        return await self._thread.do(lambda: work(self._connection))

    async def close(self, *, broken: bool) -> None:
        """Give the connection back."""
        if broken:
            await self._thread.do(self._connection.invalidate)
        await self._thread.do(self._connection.close)
