"""Letting a run go, in one write: settled, parked, sent to review, released (kernel 12, 15, 18 and 21)."""

import asyncio
from dataclasses import replace
from typing import Any

from belay_core import commands
from belay_core.engine.answering import Review
from belay_core.engine.failures import failure
from belay_core.engine.holding import Holding, HoldLost
from belay_core.engine.play import Play
from belay_core.engine.services import Services
from belay_core.errors import ValueRefused
from belay_core.moments import Millis
from belay_core.outcomes.attempts import RunNotFound
from belay_core.outcomes.engine import News, ParkOutcome, SettleOutcome
from belay_core.outcomes.runs import FenceLost
from belay_core.records.run import RunStatus, TerminalRunStatus
from belay_core.records.step_record import StepRecord, StepState
from belay_core.records.workflow_run import RunEnd, Waiting
from belay_core.workflows.caught import Raised, outcome_of
from belay_core.workflows.definition import Definition

_RANK = ("needs_review", "approval", "timer", "backoff", "released")


class Closing:
    """Each way gives the word for it, or None where there are news and nothing was written."""

    def __init__(self, services: Services, holding: Holding, definition: Definition[Any, Any]) -> None:
        self._services = services
        self._holding = holding
        self._definition = definition

    async def finished(self, play: Play, body: "asyncio.Task[Any]") -> str | None:
        """The body has ended: settle, unless an attempt is left whose end nobody knows."""
        for each in play.records.unreached():
            play.note("not_reached", each.step_key)
        orphan = play.records.orphan()
        notes = tuple(play.notes)
        if orphan is not None:
            await self._orphaned(orphan)
            review = Review("orphan", orphan.step_key, "the body has ended, and nobody knows how this did")
            return await self.park_for_review(review, notes)
        found = outcome_of(body) if play.broken is None else Raised(play.broken)
        if isinstance(found, Raised):
            return await self._settle(RunStatus.FAILED, notes, error=failure(found.error))
        try:
            result = self._definition.result_codec.encode(found)
        except ValueRefused as refused:
            return await self._settle(RunStatus.FAILED, notes, error=failure(ValueRefused(f"result: {refused}")))
        except Exception as error:  # noqa: BLE001  (an author's own __eq__ or serializer may raise anything)
            return await self._settle(RunStatus.FAILED, notes, error=failure(error))
        return await self._settle(RunStatus.COMPLETED, notes, result=result)

    async def _orphaned(self, attempt: StepRecord) -> None:
        """Nobody waits for the attempt any more: close it, so that an operator can say how it ended."""
        if attempt.state is not StepState.ORPHANED:
            await self._holding.record(replace(attempt, state=StepState.ORPHANED, finished_at_ms=self._services.now()))

    async def cancelled(self, notes: tuple[str, ...]) -> str | None:
        """Somebody asked the run to stop, and it has."""
        return await self._settle(RunStatus.CANCELLED, notes)

    async def parked(self, waits: list[Waiting], notes: tuple[str, ...]) -> str | None:
        """Nothing can happen until somebody or the clock brings what the open calls wait for."""
        first = min(waits, key=lambda each: _RANK.index(each.reason))
        moments = [each.wake_at_ms for each in waits if each.wake_at_ms is not None]
        waiting = Waiting(first.reason, first.token, min(moments, default=None))
        request: str | None = None
        if first.reason == "needs_review":
            request = Review("orphan", first.token, "nobody knows whether its effect took place").request()
        return await self._park(
            commands.Park(self._holding.lease, waiting, request, None, self._holding.seen_ms, notes)
        )

    async def park_for_review(self, review: Review, notes: tuple[str, ...]) -> str | None:
        """An operator has to look."""
        waiting = Waiting("needs_review", review.step_key)
        seen = self._holding.seen_ms
        return await self._park(commands.Park(self._holding.lease, waiting, review.request(), None, seen, notes))

    async def released(self, notes: tuple[str, ...]) -> str | None:
        """This worker leaves; any other may go on at once."""
        now: Millis = self._services.now()
        return await self._park(commands.Park(self._holding.lease, Waiting("released"), None, now, None, notes))

    async def _settle(
        self, status: TerminalRunStatus, notes: tuple[str, ...], result: str | None = None, error: str | None = None
    ) -> str | None:
        command = commands.Settle(self._holding.lease, status, result, error, self._holding.seen_ms, notes)
        answer = await self._last(self._services.stores.engine.settle, command)
        return self._closed(answer, status.value, RunEnd(status, result, error))

    async def _park(self, command: commands.Park) -> str | None:
        return self._closed(await self._last(self._services.stores.engine.park, command), "suspended")

    async def _last(self, give: Any, command: Any) -> Any:
        self._holding.ending = True
        try:
            return await self._holding.send(give, command)
        finally:
            self._holding.ending = False

    def _closed(self, answer: ParkOutcome | SettleOutcome, word: str, end: RunEnd | None = None) -> str | None:
        match answer:
            case News():
                return None
            case FenceLost() | RunNotFound():
                raise HoldLost
            case _:
                self._services.stores.wakes.poke(self._holding.lease.run_id, end=end)
                return word
