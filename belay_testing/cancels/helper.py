"""Cancel a workflow's worker at its awaits, once or several times (``belay_cancels``)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from belay_core import Worker
from belay_core.stores import Stores
from belay_core.workflows.registry import Registrable
from belay_drivers.sql.connection.engine_lookup import engines_of
from belay_testing.cancels.awaits import CancelledCall, cancel_at
from belay_testing.clock import ManualClock
from belay_testing.crashes.helper import PointCounts, Report
from belay_testing.crashes.trial import OVER, Case, GateReply, Trial
from belay_testing.handles import StoresHandle

_POLL = 0.001
STRIKES = (1, 2, 3)
MOST = 50
"""By default, at most so many awaits are tried for each number of cancellations."""


class Cancels:
    """Runs a workflow once without a cancellation, and once for every await at which its worker may be cancelled."""

    def __init__(self, handle: StoresHandle, clock: ManualClock) -> None:
        self._handle = handle
        self._clock = clock

    async def __call__(
        self,
        workflow: Registrable[Any, Any],
        given: Any = None,
        *,
        answers: Mapping[str, GateReply] | None = None,
        effects: Sequence[Any] = (),
        times: Iterable[int] = STRIKES,
        most: int | None = MOST,
    ) -> Report:
        """Cancel the worker at its awaits, and let another one finish each run.

        The worker has its background tasks, as in production. For each of ``times``, it is cancelled so many times in
        a row, starting at one await after the other; at most ``most`` awaits are tried, evenly spread (None: all).
        ``answers`` and ``effects`` are as for ``belay_crashes``.

        Raises ``AssertionError`` that names the await and the failure: a step that ran twice, a run that is stuck,
        another result, a task or a connection that is left.
        """
        case = Case(workflow, given, answers or {}, effects)
        async with self._handle as stores:
            trial, ended = await self._disturbed(stores, case, 0, 1)
            account = PointCounts("cancelled", await trial.end())
            for number in times:
                for at in _spread(ended.awaits, most):
                    await self._point(stores, case, at, number, account)
        return account.report()

    async def _point(self, stores: Stores, case: Case, at: int, times: int, account: PointCounts) -> None:
        around = asyncio.all_tasks()
        trial, ended = await self._disturbed(stores, case, at, times)
        if not ended.was_struck:
            return
        left = [f"{len(tasks)} tasks are left"] if (tasks := asyncio.all_tasks() - around) else []
        left += [f"it raised {type(ended.error).__name__}"] if ended.error is not None else []
        left += _checked_out(stores)
        await trial.left()
        account.note(f"cancelled {times} times from await {at} on", trial, await trial.finished(), left)

    async def _disturbed(self, stores: Stores, case: Case, at: int, times: int) -> tuple[Trial, CancelledCall]:
        trial = Trial(stores, self._clock, case)
        await trial.begin()
        over = asyncio.Event()
        people = asyncio.ensure_future(_people(trial, over))
        try:
            return trial, await cancel_at(_work(trial.worker(stores, background=True), over), at, times)
        finally:
            people.cancel()
            with suppress(asyncio.CancelledError):
                await people


async def _work(worker: Worker, over: asyncio.Event) -> None:
    async with worker:
        await over.wait()


async def _people(trial: Trial, over: asyncio.Event) -> None:
    """Let time pass and decide at the gates, until the run has ended."""
    while True:
        await asyncio.sleep(_POLL)  # noqa: TID251  (the worker's threads run in real time)
        trial.tick()
        if not over.is_set():
            await trial.answered()
            if await trial.state() in OVER:
                over.set()


def _spread(awaits: int, most: int | None) -> Iterable[int]:
    stride = 1 if most is None else max(1, -(-awaits // most))
    return range(1, awaits + 1, stride)


def _checked_out(stores: Stores) -> list[str]:
    """Connections that were not returned, of the pools that count them."""
    pools: list[Any] = [engine.pool for engine in engines_of(stores)]
    counts = [int(pool.checkedout()) for pool in pools if hasattr(pool, "checkedout")]
    return [f"{count} connections are not given back" for count in counts if count]
