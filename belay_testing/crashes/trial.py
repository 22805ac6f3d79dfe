"""One run of a workflow that is disturbed on the way, and what is brought against it afterwards."""

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
from belay_testing.crashes.observer import Observer, Seen
from belay_testing.drive import run_ready

Said: TypeAlias = Literal["approved", "rejected", "nobody"]
"""What is said at a gate; with ``nobody`` it lapses."""

OVER = frozenset({"completed", "failed", "cancelled", "needs_review"})
_OUT_OF_HAND = OVER | {"running", "released"}
"""How a run stands that a worker, having drained all there was, has no more to do with."""
SOON = 5_000
"""Milliseconds a worker waits at most of its own accord; the clock is moved over them."""
_ROUNDS = 200
_LOOKS = 50
_LOOK = 0.001
_STALE = 1
_WORKING: ContextVar[bool] = ContextVar("belay_testing_working", default=True)
"""Writes that several share are sent in a context of their own, and are the worker's as well."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is tried: a workflow, its input, and the world around it."""

    flow: Registrable[Any, Any]
    given: Any = None
    answers: Mapping[str, Said] = field(default_factory=dict[str, Said])
    world: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended, and what was seen of it."""

    state: str
    because: str
    outcome: str | None
    """Its result or its error, as JSON text."""
    seen: Seen
    ambiguous: bool
    """Whether a step that is not idempotent is left whose end nobody knows."""


class Trial:
    """A run, the workers that have it in hand one after the other, and the people who decide."""

    def __init__(self, stores: Stores, clock: ManualClock, case: Case) -> None:
        self.stores = stores
        self.clock = clock
        self.case = case
        self.client = Client(stores, approver="tester", telemetry=False)
        self.run: RunHandle[Any]
        self.observer: Observer
        self.recorded: frozenset[str] = frozenset()
        """The steps that had been recorded when the first worker was gone."""
        self.before: Counter[str] = Counter()
        """How often each step had been executed then."""

    async def begin(self) -> None:
        """Start the run."""
        self.run = await self.client.start(self.case.flow, self.case.given)
        self.observer = Observer(self.run.run_id, self.case.world)

    def worker(self, stores: Stores, *, background: bool = False) -> Worker:
        """A worker for the run, watched; it reaches the database through these stores."""
        watched = replace(stores, attempts=self.observer.over(stores.attempts))
        flows, watchers = [self.case.flow], [self.observer]
        return Worker(watched, flows, telemetry=False, middleware=watchers, background=background)

    async def left(self) -> None:
        """The first worker is gone: note what it leaves, and let its leases go stale."""
        self.observer.look()
        history = await self.client.history(self.run)
        self.recorded = frozenset(each.step_key for each in history.attempts if each.state is StepState.SUCCEEDED)
        self.before = self.observer.seen.times
        self.clock.advance(self.stores.lease.stale_after_ms + _STALE)

    async def finished(self) -> End:
        """Have another worker bring the run to its end, whatever had happened to it; how it ended."""
        async with self.worker(self.stores) as worker:
            for _ in range(_LOOKS):
                await self.worked(worker, lambda: False)
                if await self.state() != "running":
                    break
                # What the first worker sent last may hold the run for a moment longer; who looks passes over it.
                await asyncio.sleep(_LOOK)  # noqa: TID251  (real time, which the database takes)
        return await self.end()

    async def end(self) -> End:
        """How the run stands."""
        self.observer.look()
        history, explained = await self.client.history(self.run), await self.client.explain(self.run)
        outcome = history.run.result if history.run.error is None else history.run.error
        ambiguous = any(each.state is StepState.ORPHANED and not each.idempotent for each in history.attempts)
        return End(explained.state, explained.because, outcome, self.observer.seen, ambiguous)

    async def worked(
        self, worker: Worker, gone: Callable[[], bool], vanish: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Have a worker work, and the world answer, until the run is over, out of its hand, or the worker gone."""
        people = _WORKING.set(False)
        try:
            for _ in range(_ROUNDS):
                await self._drained(worker, gone, vanish)
                if gone() or await self.state() in _OUT_OF_HAND:
                    return
                await self.answered()
        finally:
            _WORKING.reset(people)

    async def _drained(
        self, worker: Worker, gone: Callable[[], bool], vanish: Callable[[], Awaitable[None]] | None
    ) -> None:
        draining = asyncio.ensure_future(_execute_run(worker))
        while not draining.done():
            await asyncio.wait({draining}, timeout=_LOOK)
            if gone() and vanish is not None:
                await vanish()
            self.tick()
        # A worker that cannot reach its database looks again.
        if not isinstance(draining.exception(), StoreError):
            await draining

    def tick(self) -> None:
        """Move the clock where somebody waits for it who waits of his own accord."""
        due = self.clock.next_due()
        if due is not None and due <= SOON:
            self.clock.advance(due)

    async def state(self) -> str:
        """How the run stands, in a word."""
        return (await self.client.explain(self.run)).state

    async def answered(self) -> None:
        """Say what is said at the gates, or let the time pass that the run waits for."""
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
    _WORKING.set(True)
    await run_ready(worker)


def is_working() -> bool:
    """Whether the code that asks works for a worker on trial, and not for the people round it."""
    return _WORKING.get()


def held_against(trial: Trial, end: End, undisturbed: End) -> Iterable[str]:
    """What a disturbed run did that it must not: each in words."""
    if end.state == "needs_review" != undisturbed.state:
        if not end.ambiguous:
            yield f"run {trial.run.run_id} waits for an operator although nobody is in doubt: {end.because}"
    elif end.state != undisturbed.state:
        yield f"run {trial.run.run_id} is stuck, {end.state}: {end.because}"
    elif end.outcome != undisturbed.outcome:
        yield f"run {trial.run.run_id} ended otherwise than undisturbed: {end.outcome}"
    yield from _repeated_steps(trial, end.seen)
    yield from _effects(end, undisturbed)


def _repeated_steps(trial: Trial, seen: Seen) -> Iterable[str]:
    for (key, attempt), times in seen.executed.items():
        if times > 1 and key not in seen.idempotent:
            yield f"step {key} is not idempotent, and its attempt {attempt} was executed {times} times"
    for key in sorted(trial.recorded):
        if seen.times[key] > trial.before[key]:
            yield f"step {key} had been recorded, and was executed again"


def _effects(end: End, undisturbed: End) -> Iterable[str]:
    usual = Counter(repr(effect) for effect, _ in undisturbed.seen.effects)
    found = Counter(repr(effect) for effect, _ in end.seen.effects)
    repeated = {key for key in end.seen.idempotent if end.seen.times[key] > undisturbed.seen.times[key]}
    for effect, times in found.items():
        where = [keys for each, keys in end.seen.effects if repr(each) == effect]
        if times <= usual[effect]:
            continue
        if not all(where):
            yield f"the effect {effect} took place outside of any step, {times} times instead of {usual[effect]}"
        # What an idempotent step does may be done again; that is what the word says.
        elif not all(keys & repeated for keys in where):
            yield f"the effect {effect} took place {times} times instead of {usual[effect]}"
    if end.state == "completed":
        for effect in usual - found:
            yield f"the effect {effect} did not take place"
