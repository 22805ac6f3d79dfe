"""A workflow whose worker is cancelled at its awaits, once and again (``belay_cancels``)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from belay_core import Worker
from belay_core.stores import Stores
from belay_core.workflows.registry import Registrable
from belay_drivers.sql.connection.engine_lookup import engines_of
from belay_testing.cancels.awaits import Struck, struck
from belay_testing.clock import ManualClock
from belay_testing.crashes.helper import Account, Report
from belay_testing.crashes.trial import OVER, Case, Said, Trial
from belay_testing.handles import StoresHandle

_LOOK = 0.001
STRIKES = (1, 2, 3)
MOST = 50
"""Awaits that are struck, for each number of cancellations, where nothing else is said."""


class Cancels:
    """Runs a workflow once undisturbed, and once for every await at which its worker may be cancelled."""

    def __init__(self, handle: StoresHandle, clock: ManualClock) -> None:
        self._handle = handle
        self._clock = clock

    async def __call__(
        self,
        workflow: Registrable[Any, Any],
        given: Any = None,
        *,
        answers: Mapping[str, Said] | None = None,
        effects: Sequence[Any] = (),
        times: Iterable[int] = STRIKES,
        most: int | None = MOST,
    ) -> Report:
        """Cancel the worker at its awaits, and have another one bring each run to its end.

        The worker is one with background, as in production. It is cancelled as often as each of ``times`` says, at
        one await after the other; of the awaits at most ``most`` are taken, evenly spread (None: all). ``answers``
        and ``effects`` are as for ``belay_crashes``.

        Raises ``AssertionError``, which says at which await what broke: a step that ran twice, a run that is stuck,
        another result, a task or a connection that is left.
        """
        case = Case(workflow, given, answers or {}, effects)
        async with self._handle as stores:
            trial, ended = await self._disturbed(stores, case, 0, 1)
            account = Account("cancelled", await trial.end())
            for number in times:
                for at in _spread(ended.awaits, most):
                    await self._point(stores, case, at, number, account)
        return account.report()

    async def _point(self, stores: Stores, case: Case, at: int, times: int, account: Account) -> None:
        around = asyncio.all_tasks()
        trial, ended = await self._disturbed(stores, case, at, times)
        if not ended.was_struck:
            return
        left = [f"{len(tasks)} tasks are left"] if (tasks := asyncio.all_tasks() - around) else []
        left += [f"it raised {type(ended.error).__name__}"] if ended.error is not None else []
        left += _checked_out(stores)
        await trial.left()
        account.note(f"cancelled {times} times from await {at} on", trial, await trial.finished(), left)

    async def _disturbed(self, stores: Stores, case: Case, at: int, times: int) -> tuple[Trial, Struck]:
        trial = Trial(stores, self._clock, case)
        await trial.begin()
        over = asyncio.Event()
        people = asyncio.ensure_future(_people(trial, over))
        try:
            return trial, await struck(_work(trial.worker(stores, background=True), over), at, times)
        finally:
            people.cancel()
            with suppress(asyncio.CancelledError):
                await people


async def _work(worker: Worker, over: asyncio.Event) -> None:
    async with worker:
        await over.wait()


async def _people(trial: Trial, over: asyncio.Event) -> None:
    """Let time pass, and answer, until the run is over."""
    while True:
        await asyncio.sleep(_LOOK)  # noqa: TID251  (the worker's threads live in real time)
        trial.tick()
        if not over.is_set():
            await trial.answered()
            if await trial.state() in OVER:
                over.set()


def _spread(awaits: int, most: int | None) -> Iterable[int]:
    stride = 1 if most is None else max(1, -(-awaits // most))
    return range(1, awaits + 1, stride)


def _checked_out(stores: Stores) -> list[str]:
    """Connections of the stores that were not given back, where their pools count them."""
    pools: list[Any] = [engine.pool for engine in engines_of(stores)]
    counts = [int(pool.checkedout()) for pool in pools if hasattr(pool, "checkedout")]
    return [f"{count} connections are not given back" for count in counts if count]
