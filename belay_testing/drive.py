"""Drive a worker by hand: without background tasks, waits or jitter."""

import asyncio
from typing import Any, Literal

from belay_core.client import RunHandle
from belay_core.errors import InvalidTransitionError
from belay_core.stores.approvals import Decided
from belay_core.worker import Worker

_ROUNDS = 1_000
_POLL = 0.01


async def run_ready(worker: Worker) -> int:
    """Let the worker acquire and execute every due run, until none is due; returns how many runs it acquired.

    Runs that wait are parked immediately, however soon they would continue. Raises ``AssertionError`` if there are
    still due runs after many rounds.
    """
    taken = 0
    for _ in range(_ROUNDS):
        took = await worker.dispatcher.take()
        await worker.dispatcher.finish_all()
        taken += took
        if not took:
            return taken
    raise AssertionError("run_ready: the worker still has due runs after many rounds")


async def vanish(worker: Worker) -> None:
    """Stop the worker as if its process had been killed: it writes nothing more and renews nothing.

    Other workers may acquire its runs once their heartbeats are stale (30 seconds).
    """
    ending = asyncio.ensure_future(worker.dispatcher.finish_all())
    while not ending.done():
        # Repeated: a run whose acquire was under way begins after the first time.
        worker.dispatcher.drop()
        await asyncio.wait({ending}, timeout=_POLL)


async def decide(
    worker: Worker,
    run: str | RunHandle[Any],
    gate: str | None = None,
    decision: Literal["approved", "rejected"] = "approved",
    *,
    by: str = "tester",
    reason: str | None = None,
    **edit: Any,
) -> None:
    """Decide at a gate of a run and execute due runs. Raises ``AssertionError`` if the decision does not count."""
    try:
        if decision == "approved":
            answer = await worker.client.approve(run, gate, by=by, reason=reason, **edit)
        else:
            answer = await worker.client.reject(run, gate, by=by, reason=reason)
    except InvalidTransitionError as error:
        raise AssertionError(str(error)) from None
    assert isinstance(answer, Decided), f"the decision does not count: {type(answer).__name__}"  # noqa: S101
    await run_ready(worker)
