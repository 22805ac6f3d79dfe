"""What a run does while it is disturbed: every execution of a step, and every effect, with the step it belongs to."""

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
class Seen:
    """What was seen of one run."""

    executed: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    """How often each attempt of each step was begun."""
    idempotent: set[str] = field(default_factory=set[str])
    """The keys of the steps that may be executed again."""
    effects: list[tuple[Any, frozenset[str]]] = field(default_factory=list[tuple[Any, frozenset[str]]])
    """Each effect, with the keys of the steps that were executing then."""

    @property
    def times(self) -> Counter[str]:
        """How often each step was executed, over all its attempts."""
        found: Counter[str] = Counter()
        for (key, _), number in self.executed.items():
            found[key] += number
        return found


class Observer(Middleware):
    """Watches the workers of one run; ``world`` is what the workflow's effects are appended to, in order."""

    def __init__(self, run_id: str, world: Sequence[Any]) -> None:
        self.seen = Seen()
        self._run_id = run_id
        self._world = world
        self._known = len(world)
        self._open: list[str] = []

    def over(self, attempts: AttemptStore) -> AttemptStore:
        """The store, watched for what is about to be executed."""
        return cast("AttemptStore", _Begun(attempts, self))

    def look(self) -> None:
        """Note what was done to the world since the last look."""
        keys = frozenset(self._open)
        self.seen.effects += [(effect, keys) for effect in self._world[self._known :]]
        self._known = len(self._world)

    def began(self, run_id: str, key: str, attempt: int) -> None:
        """Note that a step's body begins."""
        if run_id == self._run_id:
            self.seen.executed[key, attempt] += 1

    @override
    def start(self, facts: StartFacts) -> AbstractContextManager[str | None]:
        """Nothing is kept of starts."""
        return nullcontext()

    @override
    def execution(self, facts: ExecutionFacts) -> AbstractContextManager[Close]:
        """Nothing is kept of stretches."""
        return nullcontext(_ignored)

    @contextmanager
    def step(self, facts: StepFacts) -> Generator[Close]:
        """Round one attempt; that of an idempotent step begins at once, any other when its beginning is stored."""
        if facts.idempotent:
            self.began(facts.run_id, facts.step_key, facts.attempt)
            self.seen.idempotent.add(facts.step_key)
        self.look()
        self._open.append(facts.step_key)
        try:
            yield _ignored
        finally:
            self.look()
            self._open.remove(facts.step_key)

    @override
    def gate(self, facts: GateFacts) -> None:
        """Nothing is kept of gates."""


class _Begun:
    """An attempt store that reports steps whose beginning is stored and acknowledged."""

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
    """Nothing is kept of how a stretch ended."""
