"""Observe a run: every execution of a step, and every effect with the step it belongs to."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from typing_extensions import override

from belay_core.records import commands
from belay_core.records.step_record import StepState
from belay_core.stores.attempts import AttemptStore, Recorded, RecordOutcome
from belay_core.workflows.middleware import Close, ExecutionFacts, GateFacts, Middleware, StartFacts, StepFacts


@dataclass
class ObservedRun:
    """The executions and effects of one run."""

    executed: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    """Executions of each attempt of each step."""
    idempotent: set[str] = field(default_factory=set[str])
    """The keys of the idempotent steps."""
    effects: list[tuple[Any, frozenset[str]]] = field(default_factory=list[tuple[Any, frozenset[str]]])
    """Each effect, with the keys of the steps that were executing at that time."""

    @property
    def times(self) -> Counter[str]:
        """Executions of each step, over all its attempts."""
        found: Counter[str] = Counter()
        for (key, _), number in self.executed.items():
            found[key] += number
        return found


class Observer(Middleware):
    """Observes the workers of one run; the workflow appends its effects to ``world``, in order."""

    def __init__(self, run_id: str, world: Sequence[Any]) -> None:
        self.seen = ObservedRun()
        self._run_id = run_id
        self._world = world
        self._known = len(world)
        self._open: list[str] = []

    def over(self, attempts: AttemptStore) -> AttemptStore:
        """The attempt store, wrapped: it reports steps that are about to execute."""
        return cast("AttemptStore", _ObservedAttempts(attempts, self))

    def read_effects(self) -> None:
        """Note the effects since the last call."""
        keys = frozenset(self._open)
        self.seen.effects += [(effect, keys) for effect in self._world[self._known :]]
        self._known = len(self._world)

    def began(self, run_id: str, key: str, attempt: int) -> None:
        """Note that the body of a step begins."""
        if run_id == self._run_id:
            self.seen.executed[key, attempt] += 1

    @override
    def start(self, facts: StartFacts) -> AbstractContextManager[str | None]:
        """Starts are not recorded."""
        return nullcontext()

    @override
    def execution(self, facts: ExecutionFacts) -> AbstractContextManager[Close]:
        """Executions are not recorded."""
        return nullcontext(_ignored)

    @contextmanager
    def step(self, facts: StepFacts) -> Generator[Close]:
        """Around one attempt; an idempotent step begins here, any other one when its start has been stored."""
        if facts.idempotent:
            self.began(facts.run_id, facts.step_key, facts.attempt)
            self.seen.idempotent.add(facts.step_key)
        self.read_effects()
        self._open.append(facts.step_key)
        try:
            yield _ignored
        finally:
            self.read_effects()
            self._open.remove(facts.step_key)

    @override
    def gate(self, facts: GateFacts) -> None:
        """Gates are not recorded."""


class _ObservedAttempts:
    """An attempt store that reports steps whose start is stored and acknowledged."""

    def __init__(self, inner: AttemptStore, observer: Observer) -> None:
        self._inner = inner
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def record(self, command: commands.Record) -> RecordOutcome:
        answer = await self._inner.record(command)
        if isinstance(answer, Recorded):
            for each in command.attempts:
                if each.state is StepState.RUNNING:
                    self._observer.began(command.lease.run_id, each.step_key, each.attempt)
        return answer


def _ignored(_outcome: str) -> None:
    """The end of an execution is not recorded."""
