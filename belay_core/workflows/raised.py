"""Call an author's code: any exception becomes a value, and affects only its own run."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception of an author's code."""

    error: BaseException


async def caught(code: Callable[[], Awaitable[T]]) -> T | Raised:
    """The result or the exception of the code, ``SystemExit`` included, which would end the event loop with all runs.

    Only what ends a task or the process is raised: ``CancelledError``, ``GeneratorExit``, ``KeyboardInterrupt``.
    """
    try:
        return await code()
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  (any exception of an author is a value)
        return Raised(error)


def see_end(task: "asyncio.Future[object]") -> None:
    """Retrieve the exception of a finished task, so that the event loop does not report it.

    A task holds its ``CancelledError`` until it is retrieved, and with its traceback all frames, some of which may
    hold the task.
    """
    try:
        task.exception()
    except asyncio.CancelledError as cancelled:
        cancelled.with_traceback(None)


def outcome_of(task: "asyncio.Future[T | Raised]") -> T | Raised:
    """The result or the exception of a finished task over ``caught`` code, its cancellation included."""
    if task.cancelled():
        return Raised(asyncio.CancelledError())
    error = task.exception()
    return task.result() if error is None else Raised(error)
