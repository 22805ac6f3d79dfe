"""The step that the current code runs in, in threads too."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from belay_core.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class CurrentStep:
    """The step that is executing: ``key`` is the same on every attempt, for receivers that deduplicate."""

    run_id: str
    """The run it belongs to."""
    name: str
    """The name of the step."""
    key: str
    attempt: int
    """The number of this execution, from 1."""


ExecutingStep: TypeAlias = tuple[str, str, str, int]
"""Run, name, key within the run, attempt; ``CurrentStep`` is made only when a step asks for it."""

CURRENT: ContextVar[ExecutingStep | None] = ContextVar("belay_current_step", default=None)


def current_step() -> CurrentStep:
    """The step this code runs in. Raises ``DefinitionError`` outside of one."""
    found = CURRENT.get()
    if found is None:
        raise DefinitionError("current_step() is for code that runs inside a step")
    run_id, name, key, attempt = found
    return CurrentStep(run_id, name, f"{run_id}/{key}", attempt)
