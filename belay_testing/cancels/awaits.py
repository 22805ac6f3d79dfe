"""Count the awaits of a call, in all tasks that it starts, and cancel it at one of them."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CancelledCall:
    """How a cancelled call ended: cancelled, or with a result or an exception nevertheless."""

    awaits: int
    """Awaits of the call and of the tasks that it started."""
    was_struck: bool
    """Whether it reached the await at which it was to be cancelled."""
    was_cancelled: bool
    error: BaseException | None = None


async def cancel_at(
    call: Coroutine[Any, Any, Any],
    at: int = 0,
    times: int = 1,
    meanwhile: Callable[[], None] | None = None,
    interval: float | None = None,
) -> CancelledCall:
    """Run a call in a task, and cancel it at its ``at``-th await, counted from 1, ``times`` times in a row.

    Awaits of tasks started by the call count as well: the caller is cancelled while they run. ``meanwhile`` is called
    every ``interval`` seconds while the call runs. Returns when the call has ended, however it ended.
    """
    loop = asyncio.get_running_loop()
    counting = _Counting(at, times)
    former = loop.get_task_factory()
    loop.set_task_factory(counting.factory)
    try:
        counting.victim = victim = asyncio.ensure_future(call)
    finally:
        loop.set_task_factory(former)
    while not victim.done():
        await asyncio.wait({victim}, timeout=interval)
        if meanwhile is not None:
            meanwhile()
    counting.victim = None
    error = None if victim.cancelled() else victim.exception()
    return CancelledCall(counting.met, counting.cancel_at, victim.cancelled(), error)


class _Counting:
    """A task factory that counts the awaits of its tasks and of the tasks that they start."""

    def __init__(self, at: int, times: int) -> None:
        self.met = 0
        self.cancel_at = False
        self.victim: asyncio.Future[Any] | None = None
        self._at = at
        self._times = times

    def factory(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Task[Any]":
        """Make a task whose awaits are counted."""
        stepping = cast("Coroutine[Any, Any, Any]", self._stepping(work))
        task = asyncio.Task(stepping, loop=loop, **more)
        # A task that is cancelled before its first step never enters its coroutine.
        task.add_done_callback(lambda _: work.close())
        return task

    def _meet(self) -> None:
        if self.victim is None:
            return
        self.met += 1
        if self._at <= self.met < self._at + self._times:
            self.cancel_at = True
            self.victim.cancel()

    @types.coroutine
    def _stepping(self, inner: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        value: Any = None
        error: BaseException | None = None
        loop = asyncio.get_running_loop()
        while True:
            # Only tasks that are created during a step of this one are counted.
            former = loop.get_task_factory()
            loop.set_task_factory(self.factory)
            try:
                waited = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as done:
                return cast("T", done.value)
            finally:
                loop.set_task_factory(former)
            self._meet()
            value, error = None, None
            try:
                value = yield waited
            except BaseException as thrown:  # noqa: BLE001  (thrown into the coroutine)
                error = thrown
