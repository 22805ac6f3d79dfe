"""The attempt of the engine: one execution of one named step, gate or sleep."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from belay_core.clock import Millis


class StepKind(StrEnum):
    """What a ``ctx`` call was."""

    STEP = "step"
    """A function that was executed."""
    GATE = "gate"
    """A question to a person."""
    SLEEP = "sleep"
    """A wait for a duration."""


class StepState(StrEnum):
    """The state of an attempt."""

    RUNNING = "running"
    """Its body may have begun; written before the body of a step that is not idempotent."""
    WAITING = "waiting"
    """A gate or a sleep that has no result yet."""
    SUCCEEDED = "succeeded"
    """It has a result."""
    FAILED = "failed"
    """It has an error."""
    SKIPPED = "skipped"
    """A gate that needed no decision."""
    CANCELLED = "cancelled"
    """Its workflow no longer awaited it, and it was stopped before its end."""
    ABANDONED = "abandoned"
    """Its workflow no longer awaited it, and it ran to its end."""
    ORPHANED = "orphaned"
    """Its owner died while it ran, and it is unknown whether its effect took place; or it has an ``error``, which
    says why the result of an effect that took place could not be stored.

    An operator's resolution is kept with it (``resolved_by``, ``resolved_at_ms``, and ``resolution`` in ``meta``:
    ``happened``, with the outcome, or ``retry``); the next owner acts on it.
    """


OPEN: frozenset[StepState] = frozenset({StepState.RUNNING, StepState.WAITING, StepState.ORPHANED})
"""States that a later record replaces; every other one is final."""

RETRY_AT: Final = "retry_at"
"""Member of the ``meta`` of a failed attempt: the moment of the next one, in milliseconds; without it there is none."""
RETRIED: Final = "retried"
"""Member of the ``meta`` of a failed attempt that an operator's retry of the run took back: the last place then."""

SCHEMA = "schema"
"""In the ``meta`` of a gate that waits, and of a step that is orphaned: the JSON schema of what a person may write."""

UNWANTED: frozenset[StepState] = frozenset({StepState.CANCELLED, StepState.ABANDONED})
"""States of a call that its workflow no longer awaited; a replay cancels it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One attempt; ``outcome``, ``error`` and ``meta`` are JSON text.

    ``step_key`` is the scope path, the name and the occurrence, unique in its run. ``recorded`` counts the results
    of the run in their order, and is None while the attempt is in progress. ``epoch`` is that of the
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
    """Whether it may be executed again when its end is unknown."""
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
    """The operator who resolved it."""
    resolved_at_ms: Millis | None = None
