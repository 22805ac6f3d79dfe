"""Call an author's code: any exception becomes a value, and affects only its own run."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from belay_core.errors import StepFailed

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


_STEPS: Final = "__belay_failed_steps__"


def failed_steps(error: BaseException) -> list[str]:
    """The keys of the failed steps that led to an error: its own, of its causes, of its group, of its siblings."""
    keys: dict[str, None] = {}
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, StepFailed) and each.step_key is not None:
            keys[each.step_key] = None
        keys.update(dict.fromkeys(vars(each).get(_STEPS, ())))
        left += [each.__cause__, None if each.__suppress_context__ else each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += cast("tuple[BaseException, ...]", each.exceptions)
    return sorted(keys)


def note_failed_steps(error: BaseException, keys: Iterable[str]) -> None:
    """Keep with an error the keys of failed steps of its siblings, which are not raised."""
    vars(error)[_STEPS] = tuple(keys)
