"""What is said between the calls of a play and whoever ends it: answers, executions, reviews."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from belay_core.admission import json
from belay_core.engine.work import Work
from belay_core.errors import BelayError, StepCancelled
from belay_core.moments import Millis
from belay_core.records.step_record import StepRecord


class Answer(NamedTuple):
    """What a call gives to the author's code, at the place and the moment of the record it is read from."""

    record: StepRecord
    value: Any = None
    error: BelayError | None = None

    @property
    def place(self) -> int:
        """The place in the order of records."""
        return self.record.recorded or 0

    @property
    def at_ms(self) -> Millis:
        """The moment the scope stands at from then on; what nobody waited for moves no clock."""
        if isinstance(self.error, StepCancelled):
            return 0
        return self.record.finished_at_ms or self.record.started_at_ms

    def given(self) -> Any:
        """The value. Raises the error there is instead of one."""
        try:
            if self.error is not None:
                raise self.error
            return self.value
        finally:
            del self  # an error holds this frame, which is not to hold it


Abandon: TypeAlias = Callable[[Work[Answer | None]], Awaitable[StepRecord | None]]


class Executing(Protocol):
    """A step whose attempt is executing, as whoever ends the play sees it."""

    @property
    @abstractmethod
    def cuttable(self) -> bool:
        """Whether stopping its body half-way leaves nothing that nobody knows of."""

    @abstractmethod
    def cut(self) -> None:
        """Stop its body, as far as it can be stopped."""


@dataclass(frozen=True, slots=True)
class Review:
    """Why a run cannot go on without an operator: ``diverged``, ``undecodable``, ``poison`` or ``orphan``."""

    why: str
    step_key: str | None
    detail: str

    def request(self) -> str:
        """As the JSON text that is kept with the suspended run."""
        return json.encode({"kind": "needs_review", "why": self.why, "step": self.step_key, "detail": self.detail})


class ReviewNeeded(BelayError):
    """Ends the engine's own work on a call: the run goes to review."""
