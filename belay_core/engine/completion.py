"""Letting a run go, in one write: settled, parked, sent to review, released (kernel 12, 15, 18 and 21)."""

import asyncio
from dataclasses import replace
from typing import Any

from belay_core.clock import Millis
from belay_core.engine.answers import Review
from belay_core.engine.body_execution import BodyExecution
from belay_core.engine.failures import read_facts, read_failure, run_failure
from belay_core.engine.lease import LeaseHandle, LeaseLost
from belay_core.engine.log_lines import code_of, in_review, left_to_other_code, run_failed
from belay_core.engine.recorded_steps import INSTEAD_OF, RecordedSteps
from belay_core.engine.services import Services
from belay_core.errors import StoreError, ValueRefused, refuses_content
from belay_core.records import commands
from belay_core.records.run import RunStatus, TerminalRunStatus
from belay_core.records.step_record import StepRecord, StepState
from belay_core.records.workflow_run import RunEnd, RunSummary, RunWait
from belay_core.stores.attempts import RunNotFound
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import PendingSignal, RunParkOutcome, SettleOutcome
from belay_core.values import json
from belay_core.workflows.definition import Definition
from belay_core.workflows.raised import Raised, outcome_of

OTHER_CODE = "other_code"
"""The kind of what a run waits for whose input this worker's code does not read."""
_OTHER_CODE_MS = 5_000
"""How long it is before a worker, perhaps one with other code, may take the run."""
_RANK = ("needs_review", "approval", "timer", "backoff", "released")


class RunCompletion:
    """Each way gives the word for it, or None where there are news and nothing was written."""

    def __init__(
        self, services: Services, handle: LeaseHandle, definition: Definition[Any, Any], run: RunSummary
    ) -> None:
        self._services = services
        self._handle = handle
        self._definition = definition
        self._run = run

    async def finished(self, execution: BodyExecution, body: "asyncio.Task[Any]") -> str | None:
        """The body has ended: settle, unless an attempt is left whose end nobody knows."""
        for each in execution.records.unreached():
            execution.note("not_reached", each.step_key)
        orphan = execution.records.orphan()
        notes = tuple(execution.notes)
        if orphan is not None:
            await self._orphaned(orphan)
            review = Review("orphan", orphan.step_key, "the body has ended, and nobody knows how this did")
            return await self.park_for_review(review, notes)
        found = outcome_of(body) if execution.broken is None else Raised(execution.broken)
        if isinstance(found, Raised):
            return await self._settle(RunStatus.FAILED, notes, error=run_failure(found.error))
        try:
            result = self._definition.result_codec.encode(found)
        except ValueRefused as refused:
            return await self._settle(RunStatus.FAILED, notes, error=run_failure(ValueRefused(f"result: {refused}")))
        except Exception as error:  # noqa: BLE001  (an author's own __eq__ or serializer may raise anything)
            return await self._settle(RunStatus.FAILED, notes, error=run_failure(error))
        return await self._settle(RunStatus.COMPLETED, notes, result=result)

    async def _orphaned(self, attempt: StepRecord) -> None:
        """Nobody waits for the attempt any more: close it, so that an operator can say how it ended."""
        if attempt.state is not StepState.ORPHANED:
            await self._handle.record(replace(attempt, state=StepState.ORPHANED, finished_at_ms=self._services.now()))

    async def cancelled(self, records: RecordedSteps, notes: tuple[str, ...]) -> str | None:
        """The run was asked to stop, and has; attempts whose end is unknown are closed as orphaned, and noted."""
        unknown: list[str] = []
        for attempt in records.orphans():
            await self._orphaned(attempt)
            unknown.append(json.encode({"note": "orphaned", "step": attempt.step_key}))
        return await self._settle(RunStatus.CANCELLED, (*notes, *unknown))

    async def parked(self, waits: list[RunWait], records: RecordedSteps, notes: tuple[str, ...]) -> str | None:
        """Nothing can happen until somebody or the clock brings what the open calls wait for."""
        first = min(waits, key=lambda each: _RANK.index(each.reason))
        moments = [each.wake_at_ms for each in waits if each.wake_at_ms is not None]
        waiting = RunWait(first.reason, first.token, min(moments, default=None))
        review = _about(records, first.token) if first.reason == "needs_review" else None
        return await self._park_unless_signalled(waiting, review, notes)

    async def park_for_review(self, review: Review, notes: tuple[str, ...]) -> str | None:
        """An operator has to look."""
        return await self._park_unless_signalled(RunWait("needs_review", review.step_key), review, notes)

    async def _park_unless_signalled(
        self, waiting: RunWait, review: Review | None, notes: tuple[str, ...]
    ) -> str | None:
        request = None if review is None else review.request()
        command = commands.Park(self._handle.lease, waiting, request, None, self._handle.seen_ms, notes)
        word = await self._park(command)
        if word is not None and review is not None:
            in_review(self._run, review)
        return word

    async def left_to_other_code(self, place: str) -> str | None:
        """This worker's code would drop a part of the input: another worker may have the code that wrote it."""
        detail = f"its input has {place}, which the code of the worker that took it does not read"
        if self._run.run_id not in self._services.left:
            self._services.left.add(self._run.run_id)
            left_to_other_code(self._run, place)
        waiting = RunWait("released", None, self._services.now() + _OTHER_CODE_MS)
        request = json.encode({"kind": OTHER_CODE, "detail": detail})
        return await self._park(commands.Park(self._handle.lease, waiting, request, None, self._handle.seen_ms, ()))

    async def released(self, notes: tuple[str, ...]) -> str | None:
        """This worker leaves; any other may go on at once."""
        now: Millis = self._services.now()
        return await self._park(commands.Park(self._handle.lease, RunWait("released"), None, now, None, notes))

    async def _settle(
        self, status: TerminalRunStatus, notes: tuple[str, ...], result: str | None = None, error: str | None = None
    ) -> str | None:
        command = commands.Settle(self._handle.lease, status, result, error, self._handle.seen_ms, notes)
        try:
            answer = await self._last(self._services.stores.runs.settle, command)
        except StoreError as refusal:
            if not refuses_content(refusal):
                raise
            # Its result, or the text of its error: a run that can never be settled would be taken over for ever.
            what = "result" if status is RunStatus.COMPLETED else "error"
            refused = run_failure(ValueRefused(f"{what}: the database refuses it: {code_of(refusal)}"))
            command = replace(command, status=RunStatus.FAILED, result=None, error=refused)
            status, result, error = RunStatus.FAILED, None, refused
            answer = await self._last(self._services.stores.runs.settle, command)
        word = self._closed(answer, status.value, RunEnd(status, result, error))
        if word is not None and status is RunStatus.FAILED:
            run_failed(self._run, read_failure(error)[0])
        return word

    async def _park(self, command: commands.Park) -> str | None:
        return self._closed(await self._last(self._services.stores.runs.park, command), "suspended")

    async def _last(self, give: Any, command: Any) -> Any:
        self._handle.ending = True
        try:
            return await self._handle.send(give, command)
        finally:
            self._handle.ending = False

    def _closed(self, answer: RunParkOutcome | SettleOutcome, word: str, end: RunEnd | None = None) -> str | None:
        match answer:
            case PendingSignal():
                return None
            case FenceLost() | RunNotFound():
                raise LeaseLost
            case _:
                self._services.stores.notifier.notify(self._handle.lease.run_id, end=end)
                return word


def _about(records: RecordedSteps, key: str | None) -> Review:
    """What an operator is to say of the attempt that waits under this key."""
    orphan = records.orphan(key) if key else None
    known = None if orphan is None else read_facts(orphan.meta).get(INSTEAD_OF)
    if known is None:
        return Review("orphan", key, "nobody knows whether its effect took place")
    detail = f"it is new, and {known} is recorded and was not called: if it was renamed, its effect has taken place"
    return Review("diverged", key, detail)
