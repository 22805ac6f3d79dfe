"""Run work on a connection: on the event loop, or in a dedicated thread."""

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
    """Runs pieces of work one after another, in the order of their calls; the first one starts the thread.

    It ends by ``end``, or when this object is collected. It is a daemon thread: a transaction that is open when the
    interpreter exits is rolled back at the next opening of the database.
    """

    def __init__(self, name: str) -> None:
        self._jobs: _Jobs = SimpleQueue()
        self._thread = threading.Thread(target=_do_all, args=(self._jobs,), name=name, daemon=True)
        self._ended = False
        weakref.finalize(self, self._jobs.put, None)

    async def do(self, work: Callable[[], T]) -> T:
        """The result or exception of the work; a caller that is cancelled before the work begins withdraws it.

        Raises ``RuntimeError`` after the end.
        """
        return await self._submit(work)

    async def end(self, last: Callable[[], None]) -> None:
        """Run ``last`` after all other work, and return when the thread has ended."""
        answered = self._submit(last)
        self._ended = True
        self._jobs.put(None)
        # A cancelled caller does not wait, but ``last`` is run.
        await asyncio.shield(answered)
        self._thread.join()

    def _submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        if self._ended:
            raise RuntimeError("the thread has ended")
        if self._thread.ident is None:
            self._thread.start()
        job = _Job(work)
        self._jobs.put(job)
        return job.answered


class _Job(Generic[T]):
    """A piece of work with the future and the loop of its caller."""

    __slots__ = ("_context", "_loop", "_work", "answered")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        # The caller's context, in which instrumentations of the driver find the current span.
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[T] = self._loop.create_future()

    def do(self) -> None:
        """In the thread: run the work, and pass its result to the loop."""
        if self.answered.cancelled():
            return
        try:
            value = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001  (raised to the caller; the thread goes on)
            # A future accepts no StopIteration, and its caller would wait for ever.
            raised = RuntimeError("the work raised StopIteration") if isinstance(error, StopIteration) else error
            self._report(self.answered.set_exception, raised)
        else:
            self._report(self.answered.set_result, value)

    def _report(self, how: Callable[[Any], None], result: object) -> None:
        # A closed loop has no waiters.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, how, result)

    def _deliver(self, how: Callable[[Any], None], result: object) -> None:
        if not self.answered.done():
            how(result)


def _do_all(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        # Drops the references of this job before the wait for the next one.
        del job


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
        self.thread = DriverThread(name)

    @property
    def sync_engine(self) -> Engine:
        """The engine itself."""
        return self._engine

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run the work on a connection."""

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
