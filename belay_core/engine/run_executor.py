"""One owner's stretch of work on a run, from acquisition to settling, parking or losing it (kernel 13, 15, 21).

Read ``run`` first: it plays the body, ends the play in one of the ways of ``End``, and closes accordingly.
"""

import asyncio
from enum import Enum
from typing import Any

from belay_core.clock import event_or_time
from belay_core.engine.answers import Review
from belay_core.engine.body_execution import BodyExecution
from belay_core.engine.completion import RunCompletion
from belay_core.engine.context_backend import EngineBackend
from belay_core.engine.lease import LeaseHandle, LeaseLost
from belay_core.engine.log_lines import taken_over
from belay_core.engine.recorded_steps import RecordedSteps
from belay_core.engine.services import Services
from belay_core.engine.unwind import forget, unwind
from belay_core.errors import StoreError, ValueRefused
from belay_core.limits import TAKEOVERS_WITHOUT_PROGRESS
from belay_core.records.commands import History, RunHistory
from belay_core.records.workflow_run import RunWait, WorkflowRun
from belay_core.stores.runs import Acquired
from belay_core.values.json import JsonRefused
from belay_core.workflows.context import Context
from belay_core.workflows.definition import Definition
from belay_core.workflows.middleware import ExecutionFacts
from belay_core.workflows.raised import caught

_UNREADABLE = Review("undecodable", None, "what is recorded of it cannot be read")


class End(Enum):
    """How a play ended."""

    FINISHED = "finished"
    IDLE = "idle"
    CANCELLED = "cancelled"
    LEFT = "left"
    REVIEW = "review"
    LOST = "lost"


class RunExecutor:
    """Works on one run under one lease."""

    def __init__(
        self,
        services: Services,
        acquired: Acquired,
        history: RunHistory | None,
        definition: Definition[Any, Any],
    ) -> None:
        self.handle = LeaseHandle(services, acquired.lease, acquired.run.cancel_requested_at_ms)
        self._services = services
        self._run = acquired.run
        self._history = history
        """What is recorded of the run; None where it has yet to be read."""
        self._definition = definition
        self._closing = RunCompletion(services, self.handle, definition, acquired.run)
        self._idle: asyncio.Task[int] | None = None
        """Watches for the play to be idle, from the first moment at which it may be."""
        self._executed: BodyExecution | None = None
        self._leaving = False
        self._grace_over = False

    async def run(self) -> str:
        """Work until the run is settled, parked or lost; the word for which of them it was."""
        run, lease = self._run, self.handle.lease
        facts = ExecutionFacts(run.run_id, self._definition.name, lease.epoch, lease.owner.host_id, run.trace)
        outcome = "failure"
        if run.takeovers:
            taken_over(run, lease)
        with self._services.watchers.execution(facts) as close:
            try:
                with self._services.stores.notifier.listening(run.run_id, self.handle.signal):
                    outcome = await self._until_closed()
            except LeaseLost:
                outcome = "fence_lost"
            finally:
                close(outcome)
        return outcome

    @property
    def executing(self) -> list[str]:
        """The async steps that are executing, by run and key."""
        return [] if self._executed is None else [f"{self._run.run_id}/{key}" for key in self._executed.async_steps()]

    def leave(self) -> None:
        """Begin nothing new, and let the run go when its running steps have ended."""
        self._leaving = True
        self.handle.signal.set()

    def end_grace(self) -> None:
        """Cut what still runs, and let the run go."""
        self._grace_over = True
        self.handle.signal.set()

    async def _until_closed(self) -> str:
        history = self._history or await self._read()
        while (outcome := await self._once(history)) is None:
            history = await self._read()
        return outcome

    async def _once(self, history: RunHistory | None) -> str | None:
        """Play the body and close; None where there are news, and everything is to be played again."""
        if self._run.takeovers >= TAKEOVERS_WITHOUT_PROGRESS:
            review = Review("poison", None, "its owners died one after the other, and nothing was recorded")
            return await self._closing.park_for_review(review, ())
        if history is None and not self.handle.cancel_requested:
            return await self._closing.park_for_review(_UNREADABLE, ())
        if history is None or self.handle.cancel_requested:
            records = RecordedSteps(history or RunHistory(self._run, (), ()))
            return await self._closing.cancelled(records, ())
        if (place := self._unread_input(history.run)) is not None:
            return await self._closing.left_to_other_code(place)
        return await self._execution(BodyExecution(self._services, self.handle, history, self._definition.code))

    def _unread_input(self, run: WorkflowRun) -> str | None:
        """The place of a member of the input that this code would drop: newer code has written it."""
        if run.version == self._definition.version:
            return None
        try:
            return self._definition.input_codec.unread(run.input or "null")
        except (ValueRefused, JsonRefused):
            return None  # the body's input is reviewed as undecodable

    async def _execution(self, execution: BodyExecution) -> str | None:
        self._executed = execution
        execution.held = self._leaving
        execution.root.task = body = asyncio.create_task(caught(lambda: self._body(execution)))
        try:
            end = await self._supervise(execution, body)
            waits = execution.replay.waits_now()
            await unwind(execution, body, let_steps_end=end is not End.CANCELLED, hurry=lambda: self._grace_over)
        except BaseException:
            await unwind(execution, body, let_steps_end=False, hurry=lambda: True)
            raise
        finally:
            forget(execution, body)
        try:
            return await self._close(end, execution, body, waits)
        finally:
            execution.broken = None  # its frames hold the play
            self._executed = None

    async def _body(self, execution: BodyExecution) -> Any:
        """The author's body with its decoded input."""
        try:
            given = self._definition.input_codec.decode(execution.run.input or "null")
        except ValueRefused as refused:
            execution.review = Review("undecodable", None, f"input: {refused}")
            self.handle.signal.set()
            return await execution.never()
        return await self._definition.body(Context(EngineBackend(execution), execution.root), given)

    async def _supervise(self, execution: BodyExecution, body: "asyncio.Task[Any]") -> End:
        """Watch over a play until it ends; whatever may end it sets the signal."""
        signal = self.handle.signal
        body.add_done_callback(self._ended)
        execution.replay.on_rest = lambda: self._watch_idle(execution)
        execution.replay.on_missing = execution.goes_on_without
        try:
            while True:
                await signal.wait()
                if (end := self._end(execution, body)) is not None:
                    return end
                if self._idle is not None and self._idle.done():
                    # Something has happened since; a run is parked only where nothing has.
                    self._watch_idle(execution)
                signal.clear()
                execution.held = self._leaving
                await self._look(execution)
        finally:
            body.remove_done_callback(self._ended)
            execution.replay.forget_watchers()
            if self._idle is not None:
                self._idle.remove_done_callback(self._ended)
                self._idle.cancel()
                self._idle = None
            execution.replay.stop()

    def _watch_idle(self, execution: BodyExecution) -> None:
        self._idle = asyncio.create_task(self._idle_for_good(execution))
        self._idle.add_done_callback(self._ended)

    def _ended(self, _task: object) -> None:
        self.handle.signal.set()

    def _end(self, execution: BodyExecution, body: "asyncio.Task[Any]") -> End | None:
        if self.handle.lost:
            return End.LOST
        if self.handle.cancel_requested:
            return End.CANCELLED
        if execution.review is not None:
            return End.REVIEW
        if body.done():
            return End.FINISHED
        if self._grace_over:
            return End.LEFT
        idle = self._idle
        if idle is None or not idle.done() or idle.result() != execution.replay.moves:
            return None
        held_back = any(wait.reason == "released" for wait in execution.replay.waits_now())
        return End.LEFT if held_back else End.IDLE

    async def _look(self, execution: BodyExecution) -> None:
        """Something was signalled: if it is news, read them; if it is a poke, ask for news first."""
        if not self.handle.has_pending_signal and any(call.waiting for call in execution.replay.calls.values()):
            await self.handle.renew()
        if not self.handle.has_pending_signal:
            return
        history = await self._read()
        if history is not None:
            execution.arrived(history)
        elif execution.review is None:
            execution.review = _UNREADABLE
            self.handle.signal.set()

    async def _idle_for_good(self, execution: BodyExecution) -> int:
        """Come back when the run has been idle for as long as it may stay in memory, or at once when leaving.

        Gives the count of what has happened until then.
        """
        replay, clock = execution.replay, self._services.stores.clock
        while True:
            await replay.idle()
            moves = replay.moves
            linger = 0.0 if self._leaving else self._services.settings.linger
            if linger:
                replay.changed.clear()
                await event_or_time(replay.changed, clock, linger)
            if replay.moves == moves:
                return moves

    async def _close(
        self, end: End, execution: BodyExecution, body: "asyncio.Task[Any]", waits: list[RunWait]
    ) -> str | None:
        notes = tuple(execution.notes)
        match end:
            case End.LOST:
                raise LeaseLost
            case End.CANCELLED:
                return await self._closing.cancelled(execution.records, notes)
            case End.REVIEW if execution.review is not None:
                return await self._closing.park_for_review(execution.review, notes)
            case End.LEFT:
                return await self._closing.released(notes)
            case End.FINISHED:
                return await self._closing.finished(execution, body)
            case _:
                return await self._closing.parked(waits, execution.records, notes)

    async def _read(self) -> RunHistory | None:
        """Read the run, however long the database cannot be reached; None where what is recorded makes no sense.

        What had been news before the reading is seen then.
        """
        run_id = self.handle.lease.run_id
        try:
            found = await self.handle.send(self._services.stores.attempts.history, History((run_id,)))
        except StoreError:
            await self.handle.renew()
            self.handle.seen_ms = self.handle.pending_signal_ms
            return None
        if not found:
            self.handle.lose()
            raise LeaseLost
        self._run = found[0].run
        self.handle.seen_ms = self.handle.pending_signal_ms = found[0].run.ready_at_ms
        if found[0].run.cancel_requested_at_ms is not None:
            self.handle.cancel_requested = True
            self.handle.signal.set()
        return found[0]
