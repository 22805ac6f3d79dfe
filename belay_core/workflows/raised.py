"""Calling an author's code: whatever it raises is data, and harms nobody but its own run."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Raised:
    """What an author's code raised instead of giving a value."""

    error: BaseException


async def caught(code: Callable[[], Awaitable[T]]) -> T | Raised:
    """What the code gives or raises, ``SystemExit`` included, which would end the event loop with all its runs.

    Let through is only what ends a task or the process: ``CancelledError``, ``GeneratorExit``, ``KeyboardInterrupt``.
    """
    try:
        return await code()
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  (whatever an author raises is data)
        return Raised(error)


def see_end(task: "asyncio.Future[object]") -> None:
    """Take notice of how a finished task ended: the loop need not report it.

    A task holds its cancellation until somebody has asked for it, and that holds all the frames it went through, some
    of which may hold it.
    """
    try:
        task.exception()
    except asyncio.CancelledError as cancelled:
        cancelled.with_traceback(None)


def outcome_of(task: "asyncio.Future[T | Raised]") -> T | Raised:
    """What a finished task over ``caught`` code gave or raised, its cancellation included."""
    if task.cancelled():
        return Raised(asyncio.CancelledError())
    error = task.exception()
    return task.result() if error is None else Raised(error)
