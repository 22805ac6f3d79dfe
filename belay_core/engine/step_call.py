"""Steps: executed once, kept, retried, replayed (kernel 17 and 18)."""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import floor
from typing import Any, Final, NamedTuple, cast

from belay_core.clock import Millis
from belay_core.engine.answers import Answer
from belay_core.engine.body_execution import BodyExecution, EngineTask
from belay_core.engine.failures import failure
from belay_core.engine.log_lines import attempt_failed, code_of
from belay_core.engine.recorded_order import is_retried
from belay_core.engine.recorded_steps import INSTEAD_OF, is_orphan
from belay_core.engine.replay import Call
from belay_core.engine.retry import next_attempt
from belay_core.errors import StoreError, ValueRefused, refuses_content
from belay_core.records.attempt import JsonValue
from belay_core.records.step_record import RETRIED, RETRY_AT, SCHEMA, UNWANTED, StepKind, StepRecord, StepState
from belay_core.records.workflow_run import RunWait
from belay_core.values import json
from belay_core.values.own_copy import OwnArguments, own_copy
from belay_core.workflows.backend import Arguments, Invoke
from belay_core.workflows.current_step import CURRENT
from belay_core.workflows.middleware import StepFacts
from belay_core.workflows.raised import Raised, caught, outcome_of
from belay_core.workflows.step import Step

_TAKEN_BACK: Final = f'{{"{RETRY_AT}":0,"{RETRIED}":0}}'
"""The ``meta`` of an attempt that a retry of the run had no longer stand: the next one is due, as a first one."""


class Body:
    """The body of one step: run in the engine's task for the call or, where it has a time limit, in one of its own."""

    __slots__ = ("_call", "_execution", "_given", "_step", "_task", "_work", "was_cut", "was_late")

    def __init__(self, execution: BodyExecution, call: Call, step: Step[..., Any], given: Arguments | Invoke) -> None:
        self.was_cut = False
        """Set once the engine has cancelled it."""
        self.was_late = False
        """Set once its time was up."""
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
        work = cast("EngineTask[Any]", asyncio.current_task())
        self._work = work
        return work.run_author_code(self._invoked if self._step.is_async else self._in_thread, self._execution)

    async def _limited(self, span: timedelta) -> Any | Raised:
        self._task = body = asyncio.ensure_future(caught(self._invoked))
        clock = self._execution.services.stores.clock
        waits: set[asyncio.Future[Any]] = {body, asyncio.ensure_future(clock.sleep(span.total_seconds()))}
        late = False
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not body.done():
                late = self.was_late = body.cancel()
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
        if type(self._given) is OwnArguments:
            # A further attempt is given what this one was.
            args, kwargs = own_copy(self._given)
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


class Begun(NamedTuple):
    """An attempt that has begun; a record is made of it when it is written."""

    number: int
    at_ms: Millis


class StepCall:
    """One ``ctx.step`` call of one play."""

    __slots__ = ("_attempts", "_body", "_call", "_digest", "_execution", "_fresh", "_step")

    def __init__(
        self, execution: BodyExecution, step: Step[..., Any], given: Arguments | Invoke, digest: str | None, call: Call
    ) -> None:
        self._execution = execution
        self._call = call
        self._step = step
        self._digest = digest
        self._body = Body(execution, call, step, given)
        self._attempts: list[StepRecord] = []
        self._fresh: tuple[StepRecord, Any] | None = None
        """The attempt that was executed here, and its result as it will be read back."""

    def answer(self) -> Coroutine[Any, Any, Any]:
        """The step's result, from the records or from executing it. Raises ``StepFailed``."""
        attempts = self._execution.records.reach(self._call.key)
        self._attempts = standing = self._standing(attempts) if attempts else []
        if attempts or self._execution.suspects:
            digest = None if standing != attempts or (attempts and is_retried(attempts[-1])) else self._digest
            self._execution.check(self._call.key, StepKind.STEP, digest, attempts)
        if standing and (kept := self._kept(standing[-1])):
            return self._execution.give(self._call, kept)
        return self._execution.perform(self._call, self._execute, self._abandon)

    def _standing(self, attempts: list[StepRecord]) -> list[StepRecord]:
        """The attempts as a retry of the run leaves them: what followed a failure that was taken back may not stand."""
        if not self._execution.replay.order.follows_failure(last := attempts[-1]):
            return [*attempts]
        if last.state is StepState.ABANDONED and last.outcome is not None:
            # It ran to its end, and the failure for which the body did not wait counts no more.
            return [*attempts[:-1], replace(last, state=StepState.SUCCEEDED)]
        if last.state in UNWANTED and len(attempts) > 1 and attempts[-2].state is StepState.SUCCEEDED:
            return attempts[:-1]
        ended = last.state in {StepState.SUCCEEDED, StepState.FAILED}
        if last.state not in UNWANTED and not (ended and last.input_digest != self._digest):
            return [*attempts]
        if last.state is StepState.SUCCEEDED and not self._step.idempotent:
            # Its effect took place with another input: an operator says whether that stands for this one.
            return [*attempts, self._running(Begun(last.attempt + 1, self._execution.services.now()))]
        return [*attempts[:-1], replace(last, state=StepState.FAILED, meta=_TAKEN_BACK)]

    def cut(self) -> None:
        """Stop the body, as far as it can be stopped: what runs in a thread goes on there."""
        self._body.cut()

    @property
    def key(self) -> str:
        """The key of its call."""
        return self._call.key

    @property
    def is_async(self) -> bool:
        """Whether its body runs on the event loop."""
        return self._step.is_async

    @property
    def cuttable(self) -> bool:
        """Whether stopping the body half-way leaves no effect unknown."""
        return self._step.idempotent and self._step.is_async

    def _kept(self, last: StepRecord) -> Answer | None:
        if last.state is StepState.SUCCEEDED:
            if self._fresh is not None and self._fresh[0] is last:
                return Answer(last, self._fresh[1])
            try:
                return Answer(last, self._step.codec.decode(last.outcome or "null"))
            except ValueRefused as refused:
                self._execution.send_to_review("undecodable", last.step_key, str(refused))
        has_failed = last.state is StepState.FAILED and _meta(last).get(RETRY_AT) is None
        return Answer(last) if has_failed or last.state in UNWANTED else None

    async def _execute(self) -> Answer:
        """Go on from the attempts there are until there is an answer."""
        attempts, given = self._attempts, copy_context()
        executed = False
        if not attempts:
            await self._require_new()
        while True:
            number, failed = 1, 0
            if attempts:
                if kept := self._kept(attempts[-1]):
                    return kept
                attempts[-1] = last = await self._cleared(attempts[-1])
                if kept := self._kept(last):
                    return kept
                number, failed = 1 + last.attempt, _failed_in_a_row(attempts)
            if self._execution.held or self._execution.unwinding:
                await self._execution.require_unheld(self._call)
            if executed:
                ended = await self._attempt_in(given, number, failed)
            else:
                ended = await (self._seen if self._execution.watched else self._executed)(number, failed)
            attempts.append(ended)
            executed = True

    async def _attempt_in(self, context: Context, number: int, failed_before: int) -> StepRecord:
        """A further attempt, in a copy of the context the first one was given: what that left there is not for this."""
        attempt = self._seen if self._execution.watched else self._executed
        work = self._execution.working(partial(attempt, number, failed_before), context.copy())
        ended = await work
        self._execution.work.discard(work)
        return ended

    async def _cleared(self, last: StepRecord) -> StepRecord:
        """Come back when there may be a further attempt, or with the outcome an operator has given."""
        if last.state is StepState.FAILED:
            return await self._back_off(last)
        if last.state is StepState.RUNNING:
            last = await self._record(
                replace(
                    last,
                    state=StepState.ORPHANED,
                    finished_at_ms=self._execution.services.now(),
                    meta=json.encode({**_meta(last), **self._schema()}),
                )
            )
        if self._step.idempotent and not _meta(last).get("unencodable"):
            return last
        while is_orphan(last):
            last = await self._reviewed(last)
        if _meta(last).get("resolution") == "happened":
            last = await self._record(self._as_it_happened(last))
        return last

    async def _require_new(self) -> None:
        """Come back when nothing recorded may be this call under another name, or an operator has to say so."""
        execution = self._execution
        if execution.replay.order.behind:
            await execution.replay.caught_up()
        if not self._step.idempotent and (known := execution.untaken(self._call.key)):
            self._attempts.append(await self._record(self._maybe_renamed(known)))

    def _maybe_renamed(self, known: StepRecord) -> StepRecord:
        """An attempt that is not begun: an operator says whether it took place, under the other name."""
        begun = Begun(1, self._execution.services.now())
        facts: dict[str, JsonValue] = {INSTEAD_OF: known.step_key}
        return self._ended(begun, StepState.ORPHANED, placed=False, meta=facts)

    def _schema(self) -> dict[str, JsonValue]:
        """What an operator may write as the result, for the client that checks it."""
        return {SCHEMA: self._step.codec.schema} if self._step.codec.schema else {}

    def _as_it_happened(self, orphan: StepRecord) -> StepRecord:
        """An operator knows how it ended: what went wrong with keeping that counts no more."""
        try:
            self._step.codec.decode_written(orphan.outcome or "null")
        except ValueRefused as refused:
            # Before it is recorded as the result: until then the operator's word can be replaced.
            self._execution.send_to_review("undecodable", orphan.step_key, f"the given result does not fit: {refused}")
        now, place = self._execution.services.now(), self._execution.replay.next_place(self._call)
        return replace(orphan, state=StepState.SUCCEEDED, recorded=place, finished_at_ms=now, error=None)

    async def _reviewed(self, orphan: StepRecord) -> StepRecord:
        """The attempt with an operator's word on it; without one, an author who goes on does not go on."""
        try:
            found: StepRecord = await self._execution.wait_for(self._call, RunWait("needs_review", orphan.step_key))
        except asyncio.CancelledError:
            if not self._call.given_up or self._execution.unwinding:
                raise
            self._execution.send_to_review(
                "orphan", orphan.step_key, "nobody waits for it any more, or knows how it ended"
            )
        return found if found.attempt == orphan.attempt else orphan

    async def _back_off(self, failed: StepRecord) -> StepRecord:
        self._execution.replay.release(self._call)
        due = _meta(failed)[RETRY_AT]
        try:
            await self._execution.wait_for(self._call, RunWait("backoff", failed.step_key, due), due)
        except asyncio.CancelledError:
            if not self._call.given_up or self._execution.unwinding:
                raise
            begun = Begun(failed.attempt + 1, self._execution.services.now())
            return await self._record(self._ended(begun, StepState.CANCELLED))
        return failed

    async def _seen(self, number: int, failed_before: int) -> StepRecord:
        """Execute it while somebody watches."""
        execution, step = self._execution, self._step
        facts = StepFacts(execution.run.run_id, execution.workflow, step.name, self._call.key, number, step.idempotent)
        with execution.services.watchers.step(facts) as close:
            ended = await self._executed(number, failed_before)
            close(ended.state.value)
        return ended

    async def _executed(self, number: int, failed_before: int) -> StepRecord:
        execution = self._execution
        execution.executing.add(self)
        try:
            begun = Begun(number, floor(execution.services.stores.clock.now()))
            if not self._step.idempotent:
                await self._record(self._running(begun))
            ended = await self._outcome(begun, failed_before)
            try:
                await execution.handle.record(ended)
            except StoreError as refusal:
                if not refuses_content(refusal):
                    raise
                ended = self._unencodable(begun, ValueRefused(f"the database refuses it: {code_of(refusal)}"))
                await execution.handle.record(ended)
            execution.records.add(ended)
            return ended
        finally:
            # While the step stands there, whoever ends the play waits for this attempt.
            execution.executing.discard(self)
            if execution.unwinding:
                execution.executed.set()

    async def _record(self, attempt: StepRecord) -> StepRecord:
        await self._execution.handle.record(attempt)
        self._execution.records.add(attempt)
        return attempt

    async def _outcome(self, begun: Begun, failed_before: int) -> StepRecord:
        """Execute the body, and say how it ended."""
        if self._call.given_up:
            return self._ended(begun, StepState.CANCELLED)
        CURRENT.set((self._execution.run.run_id, self._step.name, self._call.key, begun.number))
        value = await self._body.run()
        if isinstance(value, Raised):
            if isinstance(value.error, asyncio.CancelledError) and self._body.was_cut:
                if not self._call.given_up:
                    raise asyncio.CancelledError
                return self._ended(begun, StepState.CANCELLED)
            if self._body.was_late and not self._step.idempotent:
                return self._ended(begun, StepState.ORPHANED, placed=False, error=failure(value.error))
            return self._failed(begun, value.error, failed_before)
        try:
            outcome, read_back = self._step.codec.round_trip(value)
        except Exception as error:  # noqa: BLE001  (an author's own __eq__ or serializer may raise anything)
            return self._unencodable(begun, error)
        state = StepState.ABANDONED if self._call.given_up else StepState.SUCCEEDED
        ended = self._ended(begun, state, outcome=outcome)
        self._fresh = (ended, read_back)
        return ended

    async def _abandon(self, task: EngineTask[Answer | None]) -> None:
        """The author no longer waits: what may be done again is cut; the rest runs to its end, and is recorded then.

        What is cut in a thread goes on there, unheard.
        """
        if self._step.idempotent:
            self.cut()
        if self._step.idempotent or not self._body.runs:
            await asyncio.wait([task])

    def _failed(self, begun: Begun, error: BaseException, failed_before: int) -> StepRecord:
        text = failure(error)
        # Its words are kept. Its frames are not: those of a thread hold it.
        BaseException.with_traceback(error, None)
        if self._call.given_up:
            return self._ended(begun, StepState.ABANDONED, error=text)
        meta: dict[str, JsonValue] = {}
        services = self._execution.services
        wait = next_attempt(self._step.retry, error, failed_before, services.jitter)
        if wait is not None:
            meta[RETRY_AT] = services.now() + wait
        attempt_failed(self._execution.run, self._call.key, begun.number, error, wait)
        return self._ended(begun, StepState.FAILED, error=text, meta=meta)

    def _unencodable(self, begun: Begun, error: Exception) -> StepRecord:
        """The effect took place and its result cannot be kept: another try could do it twice."""
        if self._step.idempotent:
            return self._ended(begun, StepState.FAILED, error=failure(error))
        meta: dict[str, JsonValue] = {"unencodable": True}
        return self._ended(begun, StepState.ORPHANED, placed=False, error=failure(error), meta=meta)

    def _ended(
        self,
        begun: Begun,
        state: StepState,
        *,
        placed: bool = True,
        outcome: str | None = None,
        error: str | None = None,
        meta: dict[str, JsonValue] | None = None,
    ) -> StepRecord:
        return StepRecord(
            step_key=self._call.key,
            attempt=begun.number,
            step=self._step.name,
            kind=StepKind.STEP,
            state=state,
            idempotent=self._step.idempotent,
            started_at_ms=begun.at_ms,
            input_digest=self._digest,
            recorded=self._execution.replay.next_place(self._call) if placed else None,
            meta=self._execution.replay.origin(self._call, meta if placed else {**(meta or {}), **self._schema()}),
            finished_at_ms=floor(self._execution.services.stores.clock.now()),
            outcome=outcome,
            error=error,
        )

    def _running(self, begun: Begun) -> StepRecord:
        return StepRecord(
            step_key=self._call.key,
            attempt=begun.number,
            step=self._step.name,
            kind=StepKind.STEP,
            state=StepState.RUNNING,
            idempotent=self._step.idempotent,
            started_at_ms=begun.at_ms,
            input_digest=self._digest,
            meta=self._execution.replay.origin(self._call),
        )


def _meta(attempt: StepRecord) -> dict[str, Any]:
    value = json.decode(attempt.meta)
    return value if isinstance(value, dict) else {}


def _failed_in_a_row(attempts: list[StepRecord]) -> int:
    """How many attempts failed since the run was retried last."""
    failed = 0
    for each in attempts:
        if each.state is StepState.FAILED:
            failed = 0 if is_retried(each) else failed + 1
    return failed
