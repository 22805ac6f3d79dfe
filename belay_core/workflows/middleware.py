"""How something may watch the engine work without the engine knowing what it is (telemetry does)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Close: TypeAlias = Callable[[str], None]
"""Says how the watched stretch ended: ``completed``, ``failed``, ``suspended``, ``succeeded``, ``fence_lost`` …"""


@dataclass(frozen=True, slots=True)
class StartFacts:
    """A run about to be stored."""

    run_id: str
    """The id it will have."""
    workflow: str
    """The name of its workflow."""


@dataclass(frozen=True, slots=True)
class ExecutionFacts:
    """One owner's stretch of work on a run; ``trace`` is the text ``Middleware.start`` gave for it."""

    run_id: str
    """The run."""
    workflow: str
    """The name of its workflow."""
    epoch: int
    """How often the run has been acquired."""
    host_id: str
    """The machine of the owner."""
    trace: str | None


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One attempt of a step, about to execute; a replayed step is none."""

    run_id: str
    """The run."""
    workflow: str
    """The name of its workflow."""
    step: str
    """The name of the step."""
    step_key: str
    """The call in its run: scope, name and count."""
    attempt: int
    """The number of the execution, from 1."""
    idempotent: bool
    """Whether it may be executed again where nobody knows how it ended."""


@dataclass(frozen=True, slots=True)
class GateFacts:
    """A gate that was asked, or that was answered (``answer``: approved, rejected, lapsed, not_needed)."""

    run_id: str
    """The run."""
    workflow: str
    """The name of its workflow."""
    gate: str
    """The name of the gate."""
    step_key: str
    """The call in its run: scope, name and count."""
    answer: str | None = None


class Middleware(Protocol):
    """Wrapped round what the engine and the client do; the outermost is the first of the list.

    A context manager of this protocol never changes what happens inside it.
    """

    @property
    def idle(self) -> bool:
        """Whether watching a step would leave no trace just now; asked before each, so that it costs nothing then."""
        return False

    def start(self, facts: StartFacts) -> AbstractContextManager[str | None]:
        """Round the storing of a run; gives the text to keep with it, from which later stretches go on."""
        ...

    def execution(self, facts: ExecutionFacts) -> AbstractContextManager[Close]:
        """Round one owner's work on a run."""
        ...

    def step(self, facts: StepFacts) -> AbstractContextManager[Close]:
        """Round one attempt of a step; current in the step's own context, in threads too."""
        ...

    def gate(self, facts: GateFacts) -> None:
        """A gate was asked or answered, once, and not again on a replay."""
        ...
