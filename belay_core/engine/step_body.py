"""Running the body of a step, which may be cut, may outlast its time, and may raise anything."""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from belay_core.engine.body_execution import BodyExecution
from belay_core.engine.engine_task import EngineTask, current_engine_task
from belay_core.engine.replay import Call
from belay_core.workflows.backend import Arguments, Invoke
from belay_core.workflows.raised import Raised, caught, outcome_of
from belay_core.workflows.step import Step


class Body:
    """The body of one step: run in the engine's task for the call or, where it has a time limit, in one of its own."""

    __slots__ = ("_call", "_execution", "_given", "_step", "_task", "_work", "was_cut")

    def __init__(self, execution: BodyExecution, call: Call, step: Step[..., Any], given: Arguments | Invoke) -> None:
        self.was_cut = False
        """Set once the engine has cancelled it."""
        self._execution = execution
        self._call = call
        self._step = step
        self._given = given
        self._work: EngineTask[Any] | None = None
        """The engine's task that it runs in."""
        self._task: asyncio.Future[Any] | None = None
        """Its own task, where it has a time limit."""

    @property
    def runs(self) -> bool:
        """Whether it runs just now."""
        return self._task is not None or (self._work is not None and self._work.lent)

    def cut(self) -> None:
        """Stop it, as far as it can be stopped: what runs in a thread goes on there."""
        self.was_cut = True
        for task in (self._task, self._work):
            if task is not None:
                task.cancel()

    def run(self) -> Awaitable[Any | Raised]:
        """What it gives or raises."""
        if self._step.timeout is not None:
            return self._limited(self._step.timeout)
        self._work = current_engine_task()
        return self._work.run_author_code(self._invoked if self._step.is_async else self._in_thread, self._execution)

    async def _limited(self, span: timedelta) -> Any | Raised:
        self._task = body = asyncio.ensure_future(caught(self._invoked))
        clock = self._execution.services.stores.clock
        waits: set[asyncio.Future[Any]] = {body, asyncio.ensure_future(clock.sleep(span.total_seconds()))}
        late = False
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not body.done():
                late = body.cancel()
                await asyncio.wait({body})
        finally:
            self._task = None
            for each in waits:
                each.cancel()
        value = outcome_of(body)
        if isinstance(value, Raised) and isinstance(value.error, KeyboardInterrupt):
            # The process ends, and with it the play; it is no end of the step.
            await self._execution.never()
        # What was done although its time was up is done.
        return Raised(TimeoutError(f"not done within {span}")) if late and isinstance(value, Raised) else value

    def _invoked(self) -> Any:
        if callable(self._given):
            return self._given(self._call.key)
        args, kwargs = self._given
        return self._step.fn(*args, **kwargs)

    async def _in_thread(self) -> Any | Raised:
        in_context = contextvars.copy_context().run
        pool = self._execution.services.threads
        found = await asyncio.wrap_future(pool.submit(in_context, _contained, self._invoked))
        return await found if inspect.isawaitable(found) else found


def _contained(function: Callable[[], Any]) -> Any | Raised:
    """Call a function in a thread; an exception might not get across (``StopIteration`` does not)."""
    try:
        return function()
    except BaseException as error:  # noqa: BLE001  (whatever an author raises is data)
        return Raised(error)
