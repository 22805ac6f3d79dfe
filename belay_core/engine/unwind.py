"""Ending a play: the author's code is cancelled while the run is still ours (kernel 15)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from belay_core.engine.body_execution import BodyExecution
from belay_core.workflows.raised import Raised, outcome_of, see_end

_LOG = logging.getLogger("belay")
_ROUNDS = 10
_TURNS = 32
_PATIENCE = 1.0
"""Seconds an author's ``finally`` may take undisturbed."""
_LOOK = 0.1
"""Seconds between two looks at whether there still is time for a step to end."""


async def unwind(
    execution: BodyExecution, body: "asyncio.Task[Any]", *, let_steps_end: bool, hurry: Callable[[], bool]
) -> None:
    """Cancel the body and everything that awaits a call, until all of it has ended.

    Steps that are executing run to their end first, and are recorded, unless their run is lost or there is no more
    time (``hurry``); where their run is being cancelled, only those that leave nothing unknown are stopped.
    """
    execution.unwinding = True
    await _end_body(execution, body)
    for step in list(execution.executing):
        if step.cuttable and not let_steps_end:
            step.cut()
    await _end_work(execution, hurry)


def forget(execution: BodyExecution, body: "asyncio.Task[Any]") -> None:
    """The play has ended: let go of what would hold it.

    Calls its author did not come to await are no mistake, but where the body returned. An error or a cancellation that
    a task ended with holds the frames it went through, and these hold the play.
    """
    for call in execution.unawaited.values():
        if not body.done() or isinstance(outcome_of(body), Raised):
            call.close()
    execution.unawaited.clear()
    if body.done():
        see_end(body)
    execution.work.clear()
    execution.root.forget_task()


async def _end_body(execution: BodyExecution, body: "asyncio.Task[Any]") -> None:
    awaiting = {call.task for call in execution.replay.calls.values() if call.task is not None}
    for _ in range(_ROUNDS):
        pending = [task for task in {body, *awaiting} if not task.done()]
        if not pending:
            return
        for task in pending:
            task.cancel()
        for _ in range(_TURNS):
            await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
        # An author's `finally` may await something that takes time; one that swallows the cancel is asked again.
        if still := [task for task in pending if not task.done()]:
            await asyncio.wait(still, timeout=_PATIENCE)
    _LOG.error("a workflow's body swallows every cancellation; its run is left to its lease", extra=_of(execution))
    execution.handle.let_go()


def _of(execution: BodyExecution) -> dict[str, str]:
    return {"run_id": execution.run.run_id, "workflow": execution.workflow}


async def _end_work(execution: BodyExecution, hurry: Callable[[], bool]) -> None:
    """Let executing steps end, and drop what only waits."""
    while execution.executing and not execution.handle.lost and not hurry():
        execution.executed.clear()
        ended = asyncio.ensure_future(execution.executed.wait())
        await asyncio.wait([ended], timeout=_LOOK)
        ended.cancel()
    execution.over = True
    for step in list(execution.executing):
        step.cut()
    work = list(execution.work)
    for task in work:
        task.end()
    for _ in range(_TURNS):
        if all(task.done() for task in work):
            break
        await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
    else:
        # A step that swallows its cancellation goes on unheard: nothing of it is recorded any more.
        await asyncio.wait(work, timeout=_PATIENCE)
    for task in work:
        if task.done():
            see_end(task)  # what ends the process has been raised by the loop, and need not be reported too
