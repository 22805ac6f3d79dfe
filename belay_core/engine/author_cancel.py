"""Cancelling an author's task again at the place where its wait for a call ended before.

The author's own timeout has to end the wait again, so that ``asyncio.timeout`` and ``wait_for`` turn the cancellation
into ``TimeoutError`` as they did. Where a timeout of the task is scheduled, it expires now instead of after its span.
"""

import asyncio
from collections.abc import Callable
from typing import Any


def cancel_again(task: "asyncio.Task[Any]") -> None:
    """Let the task's next timeout expire; without one, cancel the task."""
    handle = _next_timeout(task)
    if handle is None:
        task.cancel()
        return
    run: Callable[..., object] = getattr(handle, "_callback")  # noqa: B009  (asyncio has no public way to it)
    given: tuple[Any, ...] = getattr(handle, "_args")  # noqa: B009
    handle.cancel()
    run(*given)


def _next_timeout(task: "asyncio.Task[Any]") -> asyncio.TimerHandle | None:
    """The timer that ends first of those that would cancel the task; None on a loop that does not show its timers."""
    timers: list[asyncio.TimerHandle] = getattr(task.get_loop(), "_scheduled", [])
    own = [timer for timer in timers if not timer.cancelled() and _cancels(timer, task)]
    return min(own, key=asyncio.TimerHandle.when, default=None)


def _cancels(timer: asyncio.TimerHandle, task: "asyncio.Task[Any]") -> bool:
    callback = getattr(timer, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if owner is task:  # loop.call_later(seconds, task.cancel)
        return True
    # asyncio.timeout has its task as _task, a cancel scope of anyio as _host_task.
    if task in (getattr(owner, "_task", None), getattr(owner, "_host_task", None)):
        return True
    # Before Python 3.12 wait_for waits in another task, and its timer releases that.
    waiters = getattr(timer, "_args", None) or ()
    releases = [getattr(each, "args", ()) for each, *_ in getattr(task, "_callbacks", None) or ()]
    return any(waiter in args for args in releases for waiter in waiters if isinstance(waiter, asyncio.Future))
