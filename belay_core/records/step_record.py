"""The attempt as the engine sees it: one execution of one named step, gate or sleep."""

from dataclasses import dataclass
from enum import StrEnum

from belay_core.clock import Millis


class StepKind(StrEnum):
    """What a ``ctx`` call was."""

    STEP = "step"
    """A function that was executed."""
    GATE = "gate"
    """A question to a person."""
    SLEEP = "sleep"
    """A wait for a stretch of time."""


class StepState(StrEnum):
    """Where an attempt stands."""

    RUNNING = "running"
    """Its body may have begun; written before the body of a step that is not idempotent."""
    WAITING = "waiting"
    """A gate or a sleep that has no answer yet."""
    SUCCEEDED = "succeeded"
    """It has a result."""
    FAILED = "failed"
    """It has an error."""
    SKIPPED = "skipped"
    """A gate that nobody had to look at."""
    CANCELLED = "cancelled"
    """Its author no longer wanted it, and it was stopped before its end."""
    ABANDONED = "abandoned"
    """Its author no longer wanted it, and it ran to its end."""
    ORPHANED = "orphaned"
    """Its owner was gone while it ran, and nobody knows whether its effect took place; or it has an ``error``, which
    says why the result of an effect that took place could not be kept.

    An operator's word is kept beside it (``resolved_by``, ``resolved_at_ms``, and ``resolution`` in ``meta``:
    ``happened``, with the outcome, or ``retry``); the next owner acts on it.
    """


OPEN: frozenset[StepState] = frozenset({StepState.RUNNING, StepState.WAITING, StepState.ORPHANED})
"""States a later record replaces; every other one stands."""

UNWANTED: frozenset[StepState] = frozenset({StepState.CANCELLED, StepState.ABANDONED})
"""States of what its author no longer waited for; a replay tells it so again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One attempt; ``outcome``, ``error`` and ``meta`` are JSON text.

    ``step_key`` is the scope path, the name and the occurrence, unique in its run. ``recorded`` counts the answers
    of the run in the order they were given, and is None while the attempt is in progress. ``epoch`` is that of the
    lease it was last written under; writers leave it 0 and the store fills it in.
    """

    step_key: str
    attempt: int
    """The number of the execution, from 1."""
    step: str
    """The name of the step or gate."""
    kind: StepKind
    state: StepState
    idempotent: bool
    """Whether it may be executed again where nobody knows how it ended."""
    started_at_ms: Millis
    input_digest: str | None = None
    """SHA-256 over the arguments, in lower-case hex; None where it has none of its own."""
    recorded: int | None = None
    finished_at_ms: Millis | None = None
    outcome: str | None = None
    error: str | None = None
    meta: str = "{}"
    epoch: int = 0
    resolved_by: str | None = None
    """Who gave an operator's word on it."""
    resolved_at_ms: Millis | None = None
