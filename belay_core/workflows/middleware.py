"""Middleware: observers of the engine, such as telemetry, which the engine does not know."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Close: TypeAlias = Callable[[str], None]
"""How an observed operation ended: ``completed``, ``failed``, ``suspended``, ``succeeded``, ``fence_lost`` …"""


@dataclass(frozen=True, slots=True)
class StartFacts:
    """A run about to be stored."""

    run_id: str
    """The id it will have."""
    workflow: str
    """The name of its workflow."""


@dataclass(frozen=True, slots=True)
class ExecutionFacts:
    """One owner's execution of a run; ``trace`` is the text that ``Middleware.start`` returned for it."""

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
    """One attempt of a step, about to execute; not for a replayed step."""

    run_id: str
    """The run."""
    workflow: str
    """The name of its workflow."""
    step: str
    """The name of the step."""
    step_key: str
    """The step key: scope, name and count."""
    attempt: int
    """The number of the execution, from 1."""
    idempotent: bool
    """Whether it may be executed again when its end is unknown."""


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
    """The step key: scope, name and count."""
    answer: str | None = None


class Middleware(Protocol):
    """Wrapped around operations of the engine and the client; the first of the list is the outermost.

    A context manager of this protocol never changes what happens inside it.
    """

    @property
    def idle(self) -> bool:
        """Whether observing a step would record nothing now; checked before each, so that it costs nothing then."""
        return False

    def start(self, facts: StartFacts) -> AbstractContextManager[str | None]:
        """Around the start of a run; returns the text to keep with it, with which its executions continue the trace."""
        ...

    def execution(self, facts: ExecutionFacts) -> AbstractContextManager[Close]:
        """Around one owner's execution of a run."""
        ...

    def step(self, facts: StepFacts) -> AbstractContextManager[Close]:
        """Around one attempt of a step; current in the step's own context, in threads too."""
        ...

    def gate(self, facts: GateFacts) -> None:
        """A gate was asked or answered; called once, and not again on a replay."""
        ...
