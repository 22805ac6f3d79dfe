"""What the parts of the engine share: stores, time, luck, threads, watchers."""

from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from belay_core.clock import Millis, reading
from belay_core.engine.log_lines import StoreTrouble
from belay_core.engine.loop_iterations import LoopIterations
from belay_core.engine.settings import Settings
from belay_core.jitter import Jitter
from belay_core.records.commands import Start
from belay_core.stores.bundle import Stores
from belay_core.stores.runs import StartOutcome
from belay_core.workflows.middleware import Close, ExecutionFacts, GateFacts, Middleware, StartFacts, StepFacts


@dataclass(frozen=True, slots=True)
class Watchers:
    """The middleware of a worker, as one."""

    middleware: Sequence[Middleware] = ()

    @property
    def idle(self) -> bool:
        """Whether nothing that is watched now would leave a trace."""
        return all(getattr(each, "idle", False) for each in self.middleware)

    async def start(self, facts: StartFacts, command: Start, stores: Stores) -> StartOutcome:
        """Store a run, watched by every middleware; the first that gives a text to keep with it is heard."""
        with ExitStack() as stack:
            traces = [stack.enter_context(each.start(facts)) for each in self.middleware]
            trace = next((each for each in traces if each is not None), None)
            return await stores.runs.start(command if trace is None else replace(command, trace=trace))

    def execution(self, facts: ExecutionFacts) -> AbstractContextManager[Close]:
        """Every middleware's ``drain``, the first outermost."""
        return _together([each.execution(facts) for each in self.middleware])

    def step(self, facts: StepFacts) -> AbstractContextManager[Close]:
        """Every middleware's ``step``, the first outermost."""
        return _together([each.step(facts) for each in self.middleware])

    def gate(self, facts: GateFacts) -> None:
        """Tell every middleware."""
        for each in self.middleware:
            each.gate(facts)


def _together(managers: list[AbstractContextManager[Close]]) -> AbstractContextManager[Close]:
    return managers[0] if len(managers) == 1 else _nested(managers)


@contextmanager
def _nested(managers: list[AbstractContextManager[Close]]) -> Generator[Close]:
    with ExitStack() as stack:
        closes = [stack.enter_context(manager) for manager in managers]

        def close(outcome: str) -> None:
            for each in closes:
                each(outcome)

        yield close


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to every part of the engine."""

    stores: Stores
    settings: Settings
    jitter: Jitter
    threads: Executor
    watchers: Watchers
    trouble: StoreTrouble
    """What is said of stores that fail."""
    left: set[str] = field(default_factory=set[str])
    """Runs that were left to workers with other code: it is said of each once."""
    iterations: LoopIterations = field(default_factory=LoopIterations)

    def now(self) -> Millis:
        """The store's moment in whole milliseconds."""
        return reading(self.stores.clock)

    async def until(self, moment: Millis) -> None:
        """Come back when the store's clock has reached this moment."""
        while (left := moment - self.stores.clock.now()) > 0:
            await self.stores.clock.sleep(left / 1000)
