"""What is said between the calls of a play and whoever ends it: answers, executions, reviews."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from belay_core.clock import Millis
from belay_core.engine.failures import read_failure
from belay_core.errors import BelayError, StepFailed
from belay_core.records.step_record import UNWANTED, StepRecord, StepState
from belay_core.values import json


class Answer(NamedTuple):
    """What a call gives to the author's code, at the place and the moment of the record it is read from."""

    record: StepRecord
    value: Any = None
    """What the record holds, decoded, where it holds a value."""

    @property
    def place(self) -> int:
        """The place in the order of records."""
        return self.record.recorded or 0

    @property
    def is_unwanted(self) -> bool:
        """Whether the author had not waited for it."""
        return self.record.state in UNWANTED

    @property
    def at_ms(self) -> Millis:
        """The moment the scope stands at from then on; what nobody waited for moves no clock."""
        if self.is_unwanted:
            return 0
        return self.record.finished_at_ms or self.record.started_at_ms

    def given(self) -> Any:
        """The value. Raises ``StepFailed`` where the record says so.

        The error is made here: one that was kept would hold the frames it is raised in, and these hold the answer.
        """
        record = self.record
        if record.state is StepState.SUCCEEDED:
            return self.value
        if record.state is StepState.FAILED:
            raise StepFailed(record.step, *read_failure(record.error), step_key=record.step_key)
        return self.value


class ExecutingStep(Protocol):
    """A step whose attempt is executing, as whoever ends the play sees it."""

    @property
    @abstractmethod
    def cuttable(self) -> bool:
        """Whether stopping its body half-way leaves no effect unknown."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The key of its call."""

    @property
    @abstractmethod
    def is_async(self) -> bool:
        """Whether its body runs on the event loop."""

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
