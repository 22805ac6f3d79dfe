"""Every place at which a call waits, in all tasks that work for it, and a cancellation at one of them."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Struck:
    """How a call ended: cancelled, or with an answer or an exception it gave all the same."""

    awaits: int
    """How often the call, and the tasks made for it, waited."""
    was_struck: bool
    """Whether it came as far as the await at which it was to be cancelled."""
    was_cancelled: bool
    error: BaseException | None = None


async def struck(
    call: Coroutine[Any, Any, Any],
    at: int = 0,
    times: int = 1,
    beside: Callable[[], None] | None = None,
    look: float | None = None,
) -> Struck:
    """Run a call in a task, and cancel it at its ``at``-th await, counted from 1, and at those after it.

    Awaits of the tasks made meanwhile count as well: the caller is cancelled while they work. ``beside`` is called
    every ``look`` seconds while the call goes on. Comes back when the call has ended, whatever it ended with.
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
        await asyncio.wait({victim}, timeout=look)
        if beside is not None:
            beside()
    counting.victim = None
    error = None if victim.cancelled() else victim.exception()
    return Struck(counting.met, counting.struck, victim.cancelled(), error)


class _Counting:
    """Counts the awaits of the tasks that are made by it, and by those."""

    def __init__(self, at: int, times: int) -> None:
        self.met = 0
        self.struck = False
        self.victim: asyncio.Future[Any] | None = None
        self._at = at
        self._times = times

    def factory(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Task[Any]":
        """A task whose awaits are counted."""
        stepping = cast("Coroutine[Any, Any, Any]", self._stepping(work))
        task = asyncio.Task(stepping, loop=loop, **more)
        # A task that is cancelled before its first step never hands over to what it was made for.
        task.add_done_callback(lambda _: work.close())
        return task

    def _meet(self) -> None:
        if self.victim is None:
            return
        self.met += 1
        if self._at <= self.met < self._at + self._times:
            self.struck = True
            self.victim.cancel()

    @types.coroutine
    def _stepping(self, inner: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        value: Any = None
        error: BaseException | None = None
        loop = asyncio.get_running_loop()
        while True:
            # Tasks that are made while this one takes a step are counted too, and no others.
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
            except BaseException as thrown:  # noqa: BLE001  (handed on to the coroutine)
                error = thrown
