"""Cancellation: a write that was sent is waited for, so that nobody is left not knowing (kernel 8)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Cancelled:
    """Whether the caller has gone away: what is not sent yet need not be sent any more."""

    def __init__(self) -> None:
        self.now = False


async def run_uncancelled(work: Coroutine[Any, Any, T], cancelled: Cancelled, patience: float | None) -> T:
    """Do the work in a task of its own and answer what it answers.

    When the caller is cancelled, the work is waited for, however often the cancellation is repeated, up to
    ``patience`` seconds (None: to its end); then it is cancelled itself, which ends its connection. Then the
    cancellation goes on.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.now = True
        await _end(task, patience)
        raise


async def _end(task: "asyncio.Future[Any]", patience: float | None) -> None:
    loop = asyncio.get_running_loop()
    deadline = None if patience is None else loop.time() + patience
    while not task.done():
        left = None if deadline is None else max(deadline - loop.time(), 0.0)
        if left == 0.0:
            task.cancel()
            deadline = None
            continue
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            # A second cancellation says nothing new; leaving now would leave the write behind unwatched.
            continue
    if not task.cancelled():
        task.exception()
