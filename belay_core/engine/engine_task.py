"""Tasks of the engine in which an author's code may run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from belay_core.workflows.raised import Raised

T = TypeVar("T")
R = TypeVar("R")


class TaskOwner(Protocol):
    """What the work belongs to."""

    over: bool
    """Whether nothing more of it counts."""


class EngineTask(asyncio.Task[T]):
    """A task which code that runs in it can cancel only while it does: a cancellation it left behind comes too late."""

    lent = False
    """Whether an author's code runs in it just now."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the author's code, if it runs; whether there is any."""
        return self.lent and super().cancel(msg)

    def end(self) -> None:
        """Cancel whatever runs in it."""
        super().cancel()

    @property
    def given(self) -> T | None:
        """What it has given; None where it has not ended, or was cancelled, or raised what ends the process."""
        if not self.done() or self.cancelled() or self.exception() is not None:
            return None
        return self.result()

    async def run_author_code(self, code: Callable[[], Awaitable[R]], stretch: TaskOwner) -> R | Raised:
        """What an author's code gives or raises; this is the task that calls.

        A cancellation that was meant for the code ends with it. Raises ``CancelledError`` where all is over by then.
        """
        asked = self.cancelling()
        self.lent = True
        try:
            value: R | Raised = await code()
        except BaseException as error:
            # A coroutine that is closed is told so by GeneratorExit, outside of its task.
            if isinstance(error, KeyboardInterrupt) or asyncio.current_task() is not self:
                raise
            value = Raised(error)
        finally:
            self.lent = False
        try:
            if stretch.over:
                raise asyncio.CancelledError
            if self.cancelling() > asked:
                await self._keep_on(asked, stretch)
            return value
        finally:
            del value  # an error holds this frame, which is not to hold it

    async def _keep_on(self, asked: int, stretch: TaskOwner) -> None:
        while self.cancelling() > asked:
            self.uncancel()
        try:
            await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop: one that has not arrived yet arrives here)
        except asyncio.CancelledError:
            if stretch.over:
                raise


def current_engine_task() -> EngineTask[Any]:
    """The task of the engine that calls."""
    work: Any = asyncio.current_task()
    return work  # type: ignore[no-any-return]  # whoever calls runs in one
