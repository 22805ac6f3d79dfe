"""Cancellation: a write that was sent is awaited, so that its outcome is known (kernel 8)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Cancelled:
    """Whether the caller was cancelled: what is not sent yet need not be sent."""

    def __init__(self) -> None:
        self.now = False


async def run_uncancelled(work: Coroutine[Any, Any, T], cancelled: Cancelled, patience: float | None) -> T:
    """Run the work in its own task, and return its result.

    If the caller is cancelled, the work is awaited, also through repeated cancellations, up to ``patience`` seconds
    (None: to its end); then it is cancelled itself, which closes its connection. Then ``CancelledError`` is raised.
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
            # A repeated cancellation changes nothing; returning now would leave the write without a waiter.
            continue
    if not task.cancelled():
        task.exception()
