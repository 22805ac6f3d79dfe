"""One thread beside the event loop, for a driver that blocks.

A lone write waits for the way there and back as long as for its statements. So a piece of work goes through one queue
and comes back by one call on the loop; an executor of the standard library takes twice as long, for a future of its own
with a lock, which is chained to that of the loop.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

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
