"""The handle of a started run."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, TypeAlias, TypeVar, cast

from belay_core.client.explanation import shown_state
from belay_core.clock import event_or_time, reading
from belay_core.engine.failures import read_failure
from belay_core.errors import ResultTimeout, RunCancelled, RunFailed, RunNotFoundError
from belay_core.ids import RunId
from belay_core.records.run import RunStatus, is_terminal_run_status
from belay_core.records.workflow_run import RunEnd, RunSummary
from belay_core.stores.bundle import Stores
from belay_core.stores.notifier import EndListener
from belay_core.values.codecs import Codec
from belay_core.workflows.names import admitted_span

Out = TypeVar("Out")

POLL = 0.1
"""Seconds between the first two polls of a run; doubled up to ``LONGEST_POLL``."""
LONGEST_POLL = 1.0
"""Seconds between two polls of a run that another process executes."""


@dataclass(frozen=True, slots=True)
class Completed(Generic[Out]):
    """The run has completed; ``result`` is what its body returned."""

    result: Out


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has failed or was cancelled; ``error`` is what ``result`` raises."""

    error: RunFailed | RunCancelled


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run waits for a person: ``reason`` is ``approval`` (at a gate) or ``needs_review`` (for an operator).

    ``step_key`` is the call that waits, if there is one.
    """

    reason: Literal["approval", "needs_review"]
    step_key: str | None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The time is up, and the run goes on; ``state`` is a status or what it waits for."""

    state: str


Settled: TypeAlias = Completed[Out] | Ended | Waiting | Unfinished
"""What ``RunHandle.settled`` returns."""


class RunHandle(Generic[Out]):
    """One run: its id, and its result once there is one."""

    def __init__(
        self, stores: Stores, run_id: RunId, codec: Codec[Out], *, created: bool, untouched: bool = False
    ) -> None:
        self.run_id = run_id
        """The id of the run."""
        self.created = created
        """Whether this call created the run; False if it existed already."""
        self._stores = stores
        self._codec = codec
        self._untouched = untouched
        """Whether no worker can have executed it yet: only during the loop iteration in which the handle was made."""
        if untouched:
            asyncio.get_running_loop().call_soon(self._touched)

    def _touched(self) -> None:
        self._untouched = False

    async def result(self, timeout: timedelta | None = None) -> Out:  # noqa: ASYNC109  (a wait by the stores' clock)
        """Wait for the end of the run, at most for ``timeout``, and return its result.

        A run that waits for a person does not end before somebody decides: see ``settled``. Raises ``RunFailed``,
        ``RunCancelled``, ``ResultTimeout``, ``RunNotFoundError``, and ``InvalidInput`` for a broken ``timeout``.
        """
        found = await self._seen(timeout, lambda _: False)
        if isinstance(found, RunSummary):
            raise ResultTimeout(self.run_id, shown_state(found))
        return self._result(found)

    async def settled(self, timeout: timedelta | None = None) -> Settled[Out]:  # noqa: ASYNC109  (as above)
        """Wait until the run has ended or waits for a person, at most for ``timeout``.

        Returns ``Completed``, ``Ended``, ``Waiting`` or, where the time is up, ``Unfinished``. For callers that must
        answer, such as a web request. Raises ``RunNotFoundError``, and ``InvalidInput`` for a broken ``timeout``.
        """
        found = await self._seen(timeout, self._waits_for_a_person)
        if isinstance(found, RunSummary):
            waiting = found.waiting
            if waiting is not None and self._waits_for_a_person(found):
                return Waiting(cast("Literal['approval', 'needs_review']", waiting.reason), waiting.token)
            return Unfinished(shown_state(found))
        try:
            return Completed(self._result(found))
        except (RunFailed, RunCancelled) as error:
            return Ended(error)

    async def _seen(self, span: timedelta | None, stops: Callable[[RunSummary], bool]) -> RunEnd | RunSummary:
        seconds = None if span is None else admitted_span("timeout", span).total_seconds()
        return await _watched(self._stores, self.run_id, seconds, stops, at_once=not self._untouched)

    def _waits_for_a_person(self, run: RunSummary) -> bool:
        """Whether only a person makes it go on; one that was decided is due, and a worker goes on with it."""
        if run.status is not RunStatus.SUSPENDED or run.waiting is None or run.cancel_requested_at_ms is not None:
            return False
        now = reading(self._stores.clock)
        due = any(at is not None and at <= now for at in (run.ready_at_ms, run.waiting.wake_at_ms))
        return run.waiting.reason in {"approval", "needs_review"} and not due

    def _result(self, end: RunEnd) -> Out:
        if end.status is RunStatus.CANCELLED:
            raise RunCancelled(self.run_id)
        if end.status is RunStatus.FAILED:
            raise RunFailed(self.run_id, *read_failure(end.error))
        return self._codec.decode(end.result or "null")


async def _watched(
    stores: Stores, run_id: RunId, seconds: float | None, stops: Callable[[RunSummary], bool], *, at_once: bool
) -> RunEnd | RunSummary:
    """The end of a run; or the run itself, once ``stops`` accepts it or the seconds are over.

    Without ``at_once`` the first read is after a notification or ``POLL`` seconds. Raises ``RunNotFoundError``.
    """
    woken, began, wait = EndListener(), stores.clock.elapsed(), POLL
    with stores.notifier.listening(run_id, woken):
        if not at_once:
            await event_or_time(woken, stores.clock, POLL if seconds is None else min(POLL, seconds))
            wait *= 2
        while woken.end is None:
            woken.clear()
            run = await stores.runs.find(run_id)
            if run is None and woken.end is not None:
                # Deleted after its end, of which this process was notified.
                return woken.end
            if run is None:
                raise RunNotFoundError(f"run: there is no run {run_id}")
            if is_terminal_run_status(status := run.status):
                return RunEnd(status, run.result, run.error)
            left = LONGEST_POLL if seconds is None else seconds - (stores.clock.elapsed() - began) / 1000
            if left <= 0 or stops(run):
                return run
            await event_or_time(woken, stores.clock, min(wait, left))
            wait = min(2 * wait, LONGEST_POLL)
        return woken.end
