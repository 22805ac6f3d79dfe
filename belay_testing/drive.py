"""Driving a worker by hand: no background, no waiting, no chance."""

import asyncio
from typing import Any, Literal

from belay_core.client import RunHandle
from belay_core.errors import InvalidTransitionError
from belay_core.stores.approvals import Decided
from belay_core.worker import Worker

_ROUNDS = 1_000
_LOOK = 0.01


async def run_ready(worker: Worker) -> int:
    """Have the worker take and drain everything that is due, until nothing is; how many runs it took.

    Runs that wait are parked at once, however soon they would go on. Raises ``AssertionError`` where runs never come
    to rest.
    """
    taken = 0
    for _ in range(_ROUNDS):
        took = await worker.dispatcher.take()
        await worker.dispatcher.finish_all()
        taken += took
        if not took:
            return taken
    raise AssertionError("drain: the runs of this worker never come to rest")


async def vanish(worker: Worker) -> None:
    """Have the worker be gone as if its process had been killed: it writes nothing more and renews nothing.

    Its runs are free for others once their heartbeats are stale (30 seconds).
    """
    ending = asyncio.ensure_future(worker.dispatcher.finish_all())
    while not ending.done():
        # Again and again: a run that was just being taken begins after the first time.
        worker.dispatcher.drop()
        await asyncio.wait({ending}, timeout=_LOOK)


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
    """Decide at a gate of a run and drain; raises ``AssertionError`` where the decision does not count."""
    try:
        if decision == "approved":
            answer = await worker.client.approve(run, gate, by=by, reason=reason, **edit)
        else:
            answer = await worker.client.reject(run, gate, by=by, reason=reason)
    except InvalidTransitionError as error:
        raise AssertionError(str(error)) from None
    assert isinstance(answer, Decided), f"the decision does not count: {type(answer).__name__}"  # noqa: S101
    await run_ready(worker)
