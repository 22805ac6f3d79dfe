"""Steps: executed once, kept, retried, replayed (kernel 17 and 18)."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from belay_core.admission import json
from belay_core.engine.board import Call
from belay_core.engine.failures import failure, read_failure
from belay_core.engine.play import Answer, Play
from belay_core.engine.records import is_orphan
from belay_core.errors import StepCancelled, StepFailed, ValueRefused
from belay_core.moments import Millis
from belay_core.records.attempt import JsonValue
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import Waiting
from belay_core.workflows.current import CURRENT, CurrentStep
from belay_core.workflows.middleware import StepFacts
from belay_core.workflows.step import Step

_LONGEST_BACKOFF_MS = 3_600_000


class StepCall:
    """One ``ctx.step`` call of one play."""

    def __init__(
        self, play: Play, call: Call, step: Step[..., Any], invoke: Callable[[str], Any], digest: str | None
    ) -> None:
        self._play = play
        self._call = call
        self._step = step
        self._invoke = invoke
        self._digest = digest
        self._body: asyncio.Future[Any] | None = None
        self._abandoned = False
        """Set once the author no longer waits."""
        self._cut = False
        """Set once the engine has cancelled the body."""

    async def answer(self) -> Any:
        """The step's result, from the records or from executing it. Raises ``StepFailed``, ``StepCancelled``."""
        attempts = self._play.records.reach(self._call.key)
        self._play.check(self._call.key, StepKind.STEP, self._digest, attempts)
        if attempts and (kept := self._kept(attempts[-1])):
            return await self._play.give(self._call, kept)
        return await self._play.perform(self._call, lambda: self._execute(list(attempts)), self._abandon)

    def cut(self) -> None:
        """Stop the body, if it is one that can be stopped."""
        self._cut = True
        if self._body is not None and self._step.is_async:
            self._body.cancel()

    @property
    def cuttable(self) -> bool:
        """Whether stopping the body half-way leaves nothing that nobody knows of."""
        return self._step.idempotent and self._step.is_async

    def _kept(self, last: StepRecord) -> Answer | None:
        place, at = last.recorded or 0, last.finished_at_ms or last.started_at_ms
        if last.state is StepState.SUCCEEDED:
            try:
                return Answer(place, at, value=self._step.codec.decode(last.outcome or "null"))
            except ValueRefused as refused:
                self._play.send_to_review("undecodable", last.step_key, str(refused))
        if last.state in {StepState.CANCELLED, StepState.ABANDONED}:
            return Answer(place, at, error=StepCancelled(last.step))
        if last.state is StepState.FAILED and _meta(last).get("retry_at") is None:
            return Answer(place, at, error=StepFailed(last.step, *read_failure(last.error)))
        return None

    async def _execute(self, attempts: list[StepRecord]) -> Answer:
        """Go on from the attempts there are until there is an answer."""
        while True:
            last = attempts[-1] if attempts else None
            if last is not None and (kept := self._kept(last)):
                return kept
            if last is not None:
                attempts[-1] = last = await self._cleared(last)
                if last.state is StepState.SUCCEEDED:
                    continue
            await self._play.require_unheld(self._call)
            failed = sum(1 for each in attempts if each.state is StepState.FAILED)
            attempts.append(await self._attempt(1 + (last.attempt if last else 0), failed))

    async def _cleared(self, last: StepRecord) -> StepRecord:
        """Come back when there may be a further attempt, or with the outcome an operator has given."""
        if last.state is StepState.FAILED:
            await self._back_off(last)
            return last
        if last.state is StepState.RUNNING:
            last = self._ended(last, StepState.ORPHANED, placed=False)
            await self._play.holding.record(last)
        if self._step.idempotent and not _meta(last).get("unencodable"):
            return last
        while is_orphan(last):
            last = await self._play.wait_for(self._call, Waiting("needs_review", last.step_key))
        if _meta(last).get("resolution") == "happened":
            last = self._ended(last, StepState.SUCCEEDED, outcome=last.outcome)
            await self._play.holding.record(last)
        return last

    async def _back_off(self, failed: StepRecord) -> None:
        due = _meta(failed)["retry_at"]
        try:
            await self._play.wait_for(self._call, Waiting("backoff", failed.step_key, due), due)
        except asyncio.CancelledError:
            if self._abandoned:
                await self._play.holding.record(self._ended(self._begun(failed.attempt + 1), StepState.CANCELLED))
            raise

    def _begun(self, number: int) -> StepRecord:
        return StepRecord(
            step_key=self._call.key,
            attempt=number,
            step=self._step.name,
            kind=StepKind.STEP,
            state=StepState.RUNNING,
            idempotent=self._step.idempotent,
            started_at_ms=self._play.services.now(),
            input_digest=self._digest,
        )

    async def _attempt(self, number: int, failed_before: int) -> StepRecord:
        begun = self._begun(number)
        run, step = self._play.run, self._step
        facts = StepFacts(run.run_id, self._play.workflow, step.name, self._call.key, number, step.idempotent)
        with self._executing(), self._play.services.watchers.step(facts) as close:
            if not self._step.idempotent:
                await self._play.holding.record(begun)
            ended = await self._outcome(begun, failed_before)
            await self._play.holding.record(ended)
            close(ended.state.value)
        return ended

    @contextmanager
    def _executing(self) -> Generator[None]:
        """While inside, whoever ends the play waits for this attempt."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._play.executing.add(over)
        try:
            yield
        finally:
            self._play.executing.discard(over)
            over.set_result(None)

    async def _outcome(self, begun: StepRecord, failed_before: int) -> StepRecord:
        """Execute the body, and say how it ended."""
        try:
            value = await self._run_body(begun.attempt)
        except asyncio.CancelledError as error:
            if not self._cut:
                return self._failed(begun, error, failed_before)
            if not self._abandoned:
                raise
            return self._ended(begun, StepState.CANCELLED)
        except Exception as error:  # noqa: BLE001  (whatever an author raises is data)
            return self._failed(begun, error, failed_before)
        try:
            outcome = self._step.codec.encode(value)
        except Exception as error:  # noqa: BLE001  (an author's own __eq__ or serializer may raise anything)
            return self._unencodable(begun, error)
        state = StepState.ABANDONED if self._abandoned else StepState.SUCCEEDED
        return self._ended(begun, state, outcome=outcome)

    async def _run_body(self, attempt: int) -> Any:
        services = self._play.services
        run_id, key = self._play.run.run_id, self._call.key
        CURRENT.set(CurrentStep(run_id, self._step.name, f"{run_id}/{key}", attempt))
        if not self._step.is_async:
            found = await self._in_thread(key)
            return await found if inspect.isawaitable(found) else found
        self._body = body = asyncio.ensure_future(self._invoke(key))
        if self._step.timeout is None:
            return await body
        timer = asyncio.ensure_future(services.stores.clock.sleep(self._step.timeout.total_seconds()))
        try:
            await asyncio.wait({body, timer}, return_when=asyncio.FIRST_COMPLETED)
            if body.done():
                return body.result()
            body.cancel()
            await asyncio.wait({body})
            raise TimeoutError(f"not done within {self._step.timeout}")
        finally:
            timer.cancel()

    def _in_thread(self, key: str) -> "asyncio.Future[Any]":
        call = contextvars.copy_context().run
        pool = self._play.services.threads
        return asyncio.wrap_future(pool.submit(call, self._invoke, key))

    async def _abandon(self, task: "asyncio.Task[Answer]") -> None:
        """The author no longer waits: stop what can be stopped and record it; the rest runs to its end."""
        self._abandoned = True
        if self._call.waiting is not None:
            task.cancel()
        elif self.cuttable:
            self.cut()
        else:
            return
        await asyncio.wait([task])

    def _failed(self, begun: StepRecord, error: BaseException, failed_before: int) -> StepRecord:
        if self._abandoned:
            return self._ended(begun, StepState.ABANDONED, error=failure(error))
        meta: dict[str, JsonValue] = {}
        if failed_before < self._step.retries:
            wait = self._step.backoff.total_seconds() * 1000 * 2**failed_before
            meta["retry_at"] = self._play.services.now() + int(min(wait, _LONGEST_BACKOFF_MS))
        return self._ended(begun, StepState.FAILED, error=failure(error), meta=meta)

    def _unencodable(self, begun: StepRecord, error: Exception) -> StepRecord:
        """The effect took place and its result cannot be kept: another try could do it twice."""
        if self._step.idempotent:
            return self._ended(begun, StepState.FAILED, error=failure(error))
        meta: dict[str, JsonValue] = {"unencodable": True}
        return self._ended(begun, StepState.ORPHANED, placed=False, error=failure(error), meta=meta)

    def _ended(
        self,
        begun: StepRecord,
        state: StepState,
        *,
        placed: bool = True,
        outcome: str | None = None,
        error: str | None = None,
        meta: dict[str, JsonValue] | None = None,
    ) -> StepRecord:
        at: Millis = self._play.services.now()
        place = self._play.records.next_place() if placed else None
        text = begun.meta if meta is None else json.encode(meta)
        return replace(begun, state=state, recorded=place, finished_at_ms=at, outcome=outcome, error=error, meta=text)


def _meta(attempt: StepRecord) -> dict[str, Any]:
    value = json.decode(attempt.meta)
    return value if isinstance(value, dict) else {}
