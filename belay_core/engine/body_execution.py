"""One play of a run's body, from its first line: what its ``ctx`` calls share (kernel 13 to 16)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar, cast

from belay_core.clock import Millis
from belay_core.engine.answers import Answer, ExecutingStep, Review, ReviewNeeded
from belay_core.engine.author_cancel import cancel_again
from belay_core.engine.lease import LeaseHandle, LeaseLost
from belay_core.engine.log_lines import code_of
from belay_core.engine.recorded_order import RecordedOrder
from belay_core.engine.recorded_steps import RecordedSteps
from belay_core.engine.replay import Call, ReplayScheduler
from belay_core.engine.services import Services
from belay_core.errors import BelayError, DefinitionError, StoreError
from belay_core.records.attempt import JsonValue
from belay_core.records.commands import RunHistory
from belay_core.records.step_record import StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait
from belay_core.values import json
from belay_core.workflows.raised import Raised
from belay_core.workflows.scope import Scope

T = TypeVar("T")
R = TypeVar("R")


class TaskOwner(Protocol):
    """What the work belongs to."""

    over: bool
    """Whether nothing more of it counts."""


class EngineTask(asyncio.Task[T]):
    """A task which code that runs in it can cancel only while it does: a cancellation it left behind comes too late."""

    lent = False
    """Whether an author's code runs in it just now."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the author's code, if it runs; whether there is any."""
        return self.lent and super().cancel(msg)

    def end(self) -> None:
        """Cancel whatever runs in it."""
        super().cancel()

    @property
    def given(self) -> T | None:
        """What it has given; None where it has not ended, or was cancelled, or raised what ends the process."""
        if not self.done() or self.cancelled() or self.exception() is not None:
            return None
        return self.result()

    async def run_author_code(self, code: Callable[[], Awaitable[R]], stretch: TaskOwner) -> R | Raised:
        """What an author's code gives or raises; this is the task that calls.

        A cancellation that was meant for the code ends with it. Raises ``CancelledError`` where all is over by then.
        """
        asked = self.cancelling()
        self.lent = True
        try:
            value: R | Raised = await code()
        except BaseException as error:
            # A coroutine that is closed gets GeneratorExit, outside of its task.
            if isinstance(error, KeyboardInterrupt) or asyncio.current_task() is not self:
                raise
            value = Raised(error)
        finally:
            self.lent = False
        try:
            if stretch.over:
                raise asyncio.CancelledError
            if self.cancelling() > asked:
                await self._keep_on(asked, stretch)
            return value
        finally:
            del value  # an error holds this frame, which is not to hold it

    async def _keep_on(self, asked: int, stretch: TaskOwner) -> None:
        while self.cancelling() > asked:
            self.uncancel()
        try:
            await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop: one that has not arrived yet arrives here)
        except asyncio.CancelledError:
            if stretch.over:
                raise


def current_engine_task() -> EngineTask[Any]:
    """The task of the engine that calls."""
    work: Any = asyncio.current_task()
    return work  # type: ignore[no-any-return]  # every caller runs in a task


Abandon: TypeAlias = Callable[[EngineTask["Answer | None"]], Awaitable[StepRecord | None]]
"""What is done about a call whose author no longer waits for it; gives the record it made of that, if any."""


_MOST_REFUSALS = 100


class BodyExecution:
    """The state of one play."""

    def __init__(self, services: Services, handle: LeaseHandle, history: RunHistory, code: str) -> None:
        self.services = services
        self.handle = handle
        self.run = history.run
        self.records = RecordedSteps(history)
        self.replay = _scheduler(services, RecordedOrder(history.attempts, code))
        self.root = Scope(self.run.run_id, "", self.run.started_at_ms or self.run.created_at_ms)
        self.replay.open_scope(self.root)
        self.watched = not services.watchers.idle
        """Whether anybody watches its steps."""
        self.unwinding = False
        self.held = False
        """Set while the worker leaves: calls that would begin something new wait for ever."""
        self.review: Review | None = None
        self.broken: BelayError | None = None
        self.notes: list[str] = []
        self.work: set[EngineTask[Any]] = set()
        """The engine's own tasks: executions of steps, which outlive the author's interest in them."""
        self.executing: set[ExecutingStep] = set()
        """Steps an attempt of which executes or is being recorded."""
        self.executed = asyncio.Event()
        """Set whenever one of them has ended while the play is being unwound."""
        self.over = False
        """Set once nothing more of this play is to be recorded."""
        self.unawaited: dict[str, Coroutine[Any, Any, Any]] = {}
        """Calls that were made and are not awaited yet."""
        self._refused = 0
        self._awaited: dict[str, asyncio.Future[Any]] = {}
        # Names of which a call was met with another input than the recorded one.
        self.suspects: set[str] = set()

    @property
    def workflow(self) -> str:
        """The name of the run's workflow."""
        return self.run.workflow or ""

    def async_steps(self) -> list[str]:
        """The keys of the async steps that are executing."""
        return [each.key for each in self.executing if each.is_async]

    async def perform(
        self,
        call: Call,
        work: Callable[[], Awaitable[Answer]],
        abandon: Abandon,
    ) -> Any:
        """Do a call's work in a task of the engine, and give its answer when it is its turn.

        Where the author stops waiting for it, ``abandon`` is told of the task, and gives the record it has made of
        that, if any.
        """
        turn: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        task = EngineTask(self._taken(call, work, turn))
        self.work.add(task)
        try:
            answer = await turn
        except asyncio.CancelledError:
            if not self.unwinding:
                await self._run_uncancelled(partial(self._give_up, call, task, abandon))
            self.replay.close(call)
            raise
        self.work.discard(task)
        return answer.given()

    async def give(self, call: Call, answer: Answer) -> Any:
        """Hand over an answer when it is its turn; where the author had not waited for it, end its wait again."""
        try:
            await self.replay.turn(call, answer.place, answer.at_ms)
            if answer.is_unwanted:
                cancel_again(cast("asyncio.Task[Any]", asyncio.current_task()))
                await self.never()
        except asyncio.CancelledError:
            if not self.unwinding and call.task is not None:
                await self._run_uncancelled(partial(self._decline, call, answer))
            self.replay.close(call)
            raise
        return answer.given()

    async def wait_for(self, call: Call, waiting: RunWait, until: Millis | None = None) -> Any:
        """Wait for what news bring under the call's key, or until a moment; None where the moment came first.

        Where the author no longer waits, nobody does.
        """
        if call.given_up:
            raise asyncio.CancelledError
        if until is not None and until <= self.services.now():
            return None
        arrival: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._awaited[call.key] = arrival
        self.replay.waits(call, waiting)
        tasks: list[asyncio.Future[Any]] = [arrival]
        if until is not None:
            tasks.append(asyncio.ensure_future(self.services.until(until)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._awaited.pop(call.key, None)
            for task in tasks[1:]:
                task.cancel()
        self.replay.works(call)
        return arrival.result() if arrival.done() else None

    def arrived(self, history: RunHistory) -> None:
        """Tell those who wait what a fresh reading of the run has brought."""
        for approval in history.approvals:
            self.records.approvals[approval.step_key] = approval
            if approval.decision is not None:
                self._arrive(approval.step_key, approval)
        # An operator's word counts for the attempt it was given for, so of each step only the last one is looked at.
        for attempt in {each.step_key: each for each in history.attempts}.values():
            if attempt.resolved_at_ms is not None:
                self._arrive(attempt.step_key, attempt)

    async def require_open(self) -> None:
        """Refuse a call while the body is being unwound: it is as if it had been cancelled there.

        Code that calls again and again whatever it is told is not answered any more.
        """
        if not self.unwinding:
            return
        self._refused += 1
        if self._refused > _MOST_REFUSALS:
            await self.never()
        await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, so that a stubborn body cannot stop it)
        raise asyncio.CancelledError

    async def require_unheld(self, call: Call) -> None:
        """Wait for ever where the worker leaves or the play ends: nothing new begins then."""
        if self.held or self.unwinding:
            self.replay.waits(call, RunWait("released", call.key))
            await self.never()

    async def never(self) -> None:
        """Wait for the end of the play."""
        await asyncio.get_running_loop().create_future()

    def send_to_review(self, why: str, step_key: str | None, detail: str) -> NoReturn:
        """Let the run go to review. Raises ``ReviewNeeded``."""
        if self.review is None:
            self.review = Review(why, step_key, detail)
        self.handle.signal.set()
        raise ReviewNeeded

    def break_off(self, error: DefinitionError) -> DefinitionError:
        """Keep an error that fails the run even where the author's code swallows it."""
        self.broken = self.broken or error
        return error

    def check(self, key: str, kind: str, digest: str | None, attempts: list[StepRecord]) -> None:
        """Compare a call with what is recorded under its key (kernel 16). Raises ``ReviewNeeded``."""
        if not attempts and not self.suspects:
            return
        name = key.rpartition("#")[0]
        if name in self.suspects:
            self.send_to_review("diverged", key, "called again after another input was met under this name")
        if not attempts:
            return
        if attempts[-1].kind.value != kind:
            self.send_to_review("diverged", key, f"recorded as a {attempts[-1].kind.value}, called as a {kind}")
        known = attempts[-1].input_digest
        if known is not None and digest is not None and known != digest:
            if self.records.namesakes(key) > 1:
                self.send_to_review("diverged", key, "another input under a name that is recorded more than once")
            self.suspects.add(name)
            self.note("other_input", key)

    def untaken(self, key: str) -> StepRecord | None:
        """A recorded step, not idempotent, that no call has taken where this one is new: it may have been renamed."""
        return self.records.untaken(key, self.unawaited, self.replay.order.follows_failure)

    def goes_on_without(self, key: str) -> bool:
        """A recorded call is not made again: by other code it need not be, by the same code it had to be."""
        if key and self.replay.order.is_foreign(key):
            return True
        if self.review is None:
            what = f"{key} is recorded, and" if key else "a call was open before the next answer, and"
            self.review = Review("diverged", key or None, f"{what} the body went on without calling it again")
        self.handle.signal.set()
        return False

    def note(self, what: str, key: str) -> None:
        """Keep something an operator may want to know; it is written when the run is parked or settled."""
        facts: dict[str, JsonValue] = {"note": what, "step": key}
        self.notes.append(json.encode(facts))

    def _arrive(self, key: str, what: ApprovalRecord | StepRecord) -> None:
        arrival = self._awaited.get(key)
        if arrival is not None and not arrival.done():
            arrival.set_result(what)
            self.replay.hand_over(key)

    async def _give_up(self, call: Call, task: EngineTask[Answer | None], abandon: Abandon) -> None:
        """The author no longer waits: whatever comes of the call, a replay has to tell it so, at the same place."""
        call.given_up = True
        if task.done():
            if (answer := task.given) is not None:
                await self._decline(call, answer)
            return
        if call.waiting is not None:
            task.end()
        self.replay.works(call)
        record = await abandon(task) or (answer.record if (answer := task.given) else None)
        if record is None or (place := record.recorded) is None:
            call.place = place = self.replay.next_place(call)
            done = self.replay.outlive()
            task.add_done_callback(lambda _task: done())
        await self.replay.turn(call, place)

    async def _taken(
        self, call: Call, work: Callable[[], Awaitable[Answer]], turn: "asyncio.Future[Answer]"
    ) -> Answer | None:
        try:
            answer = await work()
        except (LeaseLost, ReviewNeeded, StoreError) as error:
            return await self._stopped(error)
        except KeyboardInterrupt:
            raise
        except asyncio.CancelledError:
            turn.cancel()
            raise
        except BaseException as error:  # noqa: BLE001  (whatever an author's condition raises is the author's)
            if not turn.done():
                turn.set_exception(error)
            return None
        if call.given_up:
            return await self._guarded(lambda: self._forgone(call, answer))
        record = answer.record
        if record.state is StepState.SUCCEEDED:
            self.replay.deliver(call, record.recorded or 0, record.finished_at_ms or 0, turn, answer)
        else:
            self.replay.deliver(call, answer.place, answer.at_ms, turn, answer)
        return answer

    async def _decline(self, call: Call, answer: Answer) -> None:
        """The author no longer waits for an answer that is recorded."""
        answer = await self._forgone(call, answer)
        await self.replay.turn(call, answer.place)

    async def _forgone(self, call: Call, answer: Answer) -> Answer:
        """The answer is recorded and the author did not take it: keep that beside it."""
        if answer.is_unwanted:
            return answer
        unwanted = replace(
            answer.record,
            attempt=answer.record.attempt + 1,
            state=StepState.ABANDONED,
            recorded=self.replay.next_place(call),
            finished_at_ms=self.services.now(),
            outcome=None,
            error=None,
            meta="{}",
            resolved_by=None,
            resolved_at_ms=None,
        )
        await self.handle.record(unwanted)
        return Answer(unwanted)

    async def _run_uncancelled(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what has to be done, however often the caller is cancelled meanwhile; only the end of the play ends it."""
        task = self.working(work)
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if self.unwinding:
                    raise
        self.work.discard(task)

    def working(self, work: Callable[[], Awaitable[T]], context: Context | None = None) -> EngineTask[T]:
        """Begin work in a task of the engine, which ends with the play; who has its result takes it from ``work``."""
        task = EngineTask(self._guarded(work), context=context)
        self.work.add(task)
        return task

    async def _guarded(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do work; where it cannot go on, never answer: whoever ends the play knows why."""
        try:
            return await work()
        except (LeaseLost, ReviewNeeded, StoreError) as error:
            return await self._stopped(error)

    async def _stopped(self, error: BelayError) -> NoReturn:
        if isinstance(error, StoreError):
            self.review = self.review or Review("undecodable", None, f"a write was refused: {code_of(error)}")
            self.handle.signal.set()
        await self.never()
        raise error


def _scheduler(services: Services, order: RecordedOrder) -> ReplayScheduler:
    settings = services.settings
    return ReplayScheduler(services.stores.clock, settings.quiet, services.iterations, order, settings.catch_up)
