"""What the parts of the engine share: stores, time, luck, threads, watchers."""

from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from belay_core.chance import Chance
from belay_core.commands import Start
from belay_core.engine.settings import Settings
from belay_core.engine.ticking import Ticks
from belay_core.moments import Millis, reading
from belay_core.outcomes.engine import StartOutcome
from belay_core.stores.bundle import Stores
from belay_core.workflows.middleware import Close, DrainFacts, GateFacts, Middleware, StartFacts, StepFacts


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
            return await stores.engine.start(command if trace is None else replace(command, trace=trace))

    def drain(self, facts: DrainFacts) -> AbstractContextManager[Close]:
        """Every middleware's ``drain``, the first outermost."""
        return _together([each.drain(facts) for each in self.middleware])

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
    chance: Chance
    threads: Executor
    watchers: Watchers
    ticks: Ticks = field(default_factory=Ticks)

    def now(self) -> Millis:
        """The store's moment in whole milliseconds."""
        return reading(self.stores.clock)

    async def until(self, moment: Millis) -> None:
        """Come back when the store's clock has reached this moment."""
        while (left := moment - self.stores.clock.now()) > 0:
            await self.stores.clock.sleep(left / 1000)
