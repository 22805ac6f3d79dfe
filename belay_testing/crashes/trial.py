"""One run of a workflow with a crash or a cancellation in it, and a check of how it ended."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from belay_core import Client, InvalidTransitionError, RunHandle, Worker
from belay_core.errors import StoreError
from belay_core.records.step_record import StepState
from belay_core.stores import Stores
from belay_core.workflows.registry import Registrable
from belay_testing.clock import ManualClock
from belay_testing.crashes.observer import ObservedRun, Observer
from belay_testing.drive import run_ready

GateReply: TypeAlias = Literal["approved", "rejected", "nobody"]
"""The decision at a gate; with ``nobody`` it lapses."""

OVER = frozenset({"completed", "failed", "cancelled", "needs_review"})
_AT_REST = OVER | {"running", "released"}
"""States of a run that a worker without due runs has no more to do with."""
SOON = 5_000
"""Milliseconds that a worker waits at most between polls; the clock is advanced over them."""
_ROUNDS = 200
_POLLS = 50
_POLL = 0.001
_STALE = 1
_FOR_WORKER: ContextVar[bool] = ContextVar("belay_testing_working", default=True)
"""Whether the current context belongs to the worker; by default yes: a group commit runs in a context of its own."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is tried: a workflow, its input, the decisions at its gates, its effects."""

    flow: Registrable[Any, Any]
    given: Any = None
    answers: Mapping[str, GateReply] = field(default_factory=dict[str, GateReply])
    world: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a run ended, and what was observed of it."""

    state: str
    because: str
    outcome: str | None
    """Its result or its error, as JSON text."""
    seen: ObservedRun
    ambiguous: bool
    """Whether a step that is not idempotent is left with an unknown end."""


class Trial:
    """A run, its workers one after the other, and the decisions at its gates."""

    def __init__(self, stores: Stores, clock: ManualClock, case: Case) -> None:
        self.stores = stores
        self.clock = clock
        self.case = case
        self.client = Client(stores, approver="tester", telemetry=False)
        self.run: RunHandle[Any]
        self.observer: Observer
        self.recorded: frozenset[str] = frozenset()
        """The steps that were recorded when the first worker was gone."""
        self.before: Counter[str] = Counter()
        """Executions of each step at that time."""

    async def begin(self) -> None:
        """Start the run."""
        self.run = await self.client.start(self.case.flow, self.case.given)
        self.observer = Observer(self.run.run_id, self.case.world)

    def worker(self, stores: Stores, *, background: bool = False) -> Worker:
        """An observed worker of the run, over these stores."""
        watched = replace(stores, attempts=self.observer.over(stores.attempts))
        flows, watchers = [self.case.flow], [self.observer]
        return Worker(watched, flows, telemetry=False, middleware=watchers, background=background)

    async def left(self) -> None:
        """The first worker is gone: note what it left, and let its leases become stale."""
        self.observer.read_effects()
        history = await self.client.history(self.run)
        self.recorded = frozenset(each.step_key for each in history.attempts if each.state is StepState.SUCCEEDED)
        self.before = self.observer.seen.times
        self.clock.advance(self.stores.lease.stale_after_ms + _STALE)

    async def finished(self) -> TrialEnd:
        """Let another worker finish the run; returns how it ended."""
        async with self.worker(self.stores) as worker:
            for _ in range(_POLLS):
                await self.worked(worker, lambda: False)
                if await self.state() != "running":
                    break
                # The last statement of the first worker may still lock the run; an acquire skips it.
                await asyncio.sleep(_POLL)  # noqa: TID251  (real time, which the database takes)
        return await self.end()

    async def end(self) -> TrialEnd:
        """The state of the run, and what was observed of it."""
        self.observer.read_effects()
        history, explained = await self.client.history(self.run), await self.client.explain(self.run)
        outcome = history.run.result if history.run.error is None else history.run.error
        ambiguous = any(each.state is StepState.ORPHANED and not each.idempotent for each in history.attempts)
        return TrialEnd(explained.state, explained.because, outcome, self.observer.seen, ambiguous)

    async def worked(
        self, worker: Worker, gone: Callable[[], bool], vanish: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Let a worker run, and decide at gates, until the run has ended or is released, or the worker is gone."""
        people = _FOR_WORKER.set(False)
        try:
            for _ in range(_ROUNDS):
                await self._execute_until(worker, gone, vanish)
                if gone() or await self.state() in _AT_REST:
                    return
                await self.answered()
        finally:
            _FOR_WORKER.reset(people)

    async def _execute_until(
        self, worker: Worker, gone: Callable[[], bool], vanish: Callable[[], Awaitable[None]] | None
    ) -> None:
        executing = asyncio.ensure_future(_execute_run(worker))
        while not executing.done():
            await asyncio.wait({executing}, timeout=_POLL)
            if gone() and vanish is not None:
                await vanish()
            self.tick()
        # A worker that cannot reach its database polls again.
        if not isinstance(executing.exception(), StoreError):
            await executing

    def tick(self) -> None:
        """Advance the clock to the next sleeper, if a worker sleeps between polls."""
        due = self.clock.next_due()
        if due is not None and due <= SOON:
            self.clock.advance(due)

    async def state(self) -> str:
        """The state of the run, as one word."""
        return (await self.client.explain(self.run)).state

    async def answered(self) -> None:
        """Decide at the open gates, or let the time pass that the run waits for."""
        run = await self.client.get(self.run)
        if run.waiting is None or run.ready_at_ms is not None:
            return
        for approval in await self.client.approvals(self.run):
            said = self.case.answers.get(approval.gate, "approved")
            if said != "nobody":
                with suppress(InvalidTransitionError):
                    await self.client.decide(approval, said, by="tester")
                    return
        if run.waiting.wake_at_ms is not None:
            self.clock.advance(max(0.0, run.waiting.wake_at_ms - self.clock.now()))


async def _execute_run(worker: Worker) -> None:
    _FOR_WORKER.set(True)
    await run_ready(worker)


def is_working() -> bool:
    """Whether the calling context belongs to the worker under test, and not to the test's own decisions."""
    return _FOR_WORKER.get()


def violations(trial: Trial, end: TrialEnd, undisturbed: TrialEnd) -> Iterable[str]:
    """The rules that a run with a crash broke, one sentence each."""
    if end.state == "needs_review" != undisturbed.state:
        if not end.ambiguous:
            yield f"run {trial.run.run_id} waits for an operator although nobody is in doubt: {end.because}"
    elif end.state != undisturbed.state:
        yield f"run {trial.run.run_id} is stuck, {end.state}: {end.because}"
    elif end.outcome != undisturbed.outcome:
        yield f"run {trial.run.run_id} ended otherwise than undisturbed: {end.outcome}"
    yield from _repeated_steps(trial, end.seen)
    yield from _effects(end, undisturbed)


def _repeated_steps(trial: Trial, seen: ObservedRun) -> Iterable[str]:
    for (key, attempt), times in seen.executed.items():
        if times > 1 and key not in seen.idempotent:
            yield f"step {key} is not idempotent, and its attempt {attempt} was executed {times} times"
    for key in sorted(trial.recorded):
        if seen.times[key] > trial.before[key]:
            yield f"step {key} had been recorded, and was executed again"


def _effects(end: TrialEnd, undisturbed: TrialEnd) -> Iterable[str]:
    usual = Counter(repr(effect) for effect, _ in undisturbed.seen.effects)
    found = Counter(repr(effect) for effect, _ in end.seen.effects)
    repeated = {key for key in end.seen.idempotent if end.seen.times[key] > undisturbed.seen.times[key]}
    for effect, times in found.items():
        where = [keys for each, keys in end.seen.effects if repr(each) == effect]
        if times <= usual[effect]:
            continue
        if not all(where):
            yield f"the effect {effect} took place outside of any step, {times} times instead of {usual[effect]}"
        # The effect of an idempotent step may be repeated.
        elif not all(keys & repeated for keys in where):
            yield f"the effect {effect} took place {times} times instead of {usual[effect]}"
    if end.state == "completed":
        for effect in usual - found:
            yield f"the effect {effect} did not take place"
