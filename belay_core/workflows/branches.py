"""Run branches concurrently, each in its own scope and task (kernel 14)."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from belay_core.errors import DefinitionError
from belay_core.workflows.backend import ContextBackend
from belay_core.workflows.raised import Raised, caught, failed_steps, note_failed_steps, outcome_of, see_end
from belay_core.workflows.scope import Scope
from belay_core.workflows.step import Step

if TYPE_CHECKING:
    from belay_core.workflows.context import Context


def takes_context(body: Any) -> bool:
    """Whether a body takes ``(ctx, item)`` rather than ``(item)``, by the number of arguments it requires.

    A step never does. Raises ``DefinitionError`` for any other number.
    """
    if isinstance(body, Step):
        return False
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        raise DefinitionError("map: the signature of its body cannot be read") from None
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    needed = sum(1 for each in parameters if each.kind in positional and each.default is inspect.Parameter.empty)
    if needed not in {1, 2}:
        raise DefinitionError("map: its body takes an item, or a context and an item")
    return needed == 2  # noqa: PLR2004  (context and item)


class Branches:
    """Bodies to run concurrently below one scope, under ``path[0]``, ``path[1]`` and so on."""

    def __init__(
        self,
        backend: ContextBackend,
        parent: Scope,
        path: str,
        bodies: "Sequence[Callable[[Context], Awaitable[Any]]]",
    ) -> None:
        self._backend = backend
        self._parent = parent
        self.path = path
        self._bodies = bodies
        self._waiting: Iterator[int] = iter(range(len(bodies)))
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._scopes: list[Scope] = []
        self._running = 0
        self._joined: Callable[[], None] = lambda: None

    async def run(self, make_context: "Callable[[Scope], Context]", limit: int | None) -> list[Any]:
        """Run each body, at most ``limit`` at a time, until every one has ended; returns their results in order.

        Then the error of the lowest index is raised. A cancellation is passed on to every branch, and raised when
        all of them have ended.
        """
        self._backend.awaited(self.path)
        for _ in range(min(limit or len(self._bodies), len(self._bodies))):
            self._launch(make_context)
        self._joined = self._backend.join(self._parent)
        try:
            await self._all_ended()
            self._parent.now = max([self._parent.now, *(scope.now for scope in self._scopes)])
            self._tell_of_siblings()
            return [_given(self._tasks[index]) for index in range(len(self._bodies))]
        finally:
            self._joined()
            # The error of a branch holds the frames of its traceback, and by them this object.
            self._tasks.clear()
            for scope in self._scopes:
                scope.forget_task()

    def _launch(self, make_context: "Callable[[Scope], Context]") -> None:
        index = next(self._waiting, None)
        if index is None:
            return
        scope = self._backend.open_scope(self._parent, f"{self.path}[{index}]/")
        self._running += 1
        task = asyncio.ensure_future(self._one(scope, index, make_context))
        scope.task = task
        self._scopes.append(scope)
        self._tasks[index] = task

    async def _one(self, scope: Scope, index: int, make_context: "Callable[[Scope], Context]") -> Any:
        try:
            return await caught(lambda: self._bodies[index](make_context(scope)))
        finally:
            # The next branch opens its scope, or the waiting parent is busy again, before this one closes: so the
            # run is never taken for idle in between.
            self._launch(make_context)
            self._running -= 1
            if not self._running:
                self._joined()
            self._backend.close_scope(scope)

    async def _all_ended(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while running := [task for task in self._tasks.values() if not task.done()]:
            try:
                await asyncio.wait(running)
            except asyncio.CancelledError as request:
                cancelled = request
                self._waiting = iter(())
                for task in self._tasks.values():
                    task.cancel()
        for task in self._tasks.values():
            see_end(task)
        try:
            if cancelled is not None:
                raise cancelled
        finally:
            del cancelled  # breaks a reference cycle with this frame

    def _tell_of_siblings(self) -> None:
        """Only the first error is raised; it names the failed steps of all, which a retry of the run tries again."""
        found = [outcome_of(self._tasks[index]) for index in range(len(self._bodies))]
        try:
            errors = [each.error for each in found if isinstance(each, Raised)]
            if len(errors) > 1:
                note_failed_steps(errors[0], [key for each in errors for key in failed_steps(each)])
            errors.clear()
        finally:
            found.clear()  # breaks a reference cycle of the errors with this frame


def _given(task: "asyncio.Task[Any]") -> Any:
    found = outcome_of(task)
    try:
        if isinstance(found, Raised):
            raise found.error
        return found
    finally:
        del found, task  # breaks a reference cycle of the error with this frame
