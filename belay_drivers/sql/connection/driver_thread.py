"""A thread for a blocking driver.

For a single write the switch to the thread and back takes as long as its statements. So work goes through one queue
and its result returns by one call on the event loop; an executor of the standard library takes twice as long, since
it makes its own future with a lock, and chains it to that of the loop.
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
