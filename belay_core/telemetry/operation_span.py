"""Observe one store operation: its span, its outcome, its counters."""

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Token
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

from opentelemetry import context as contexts
from opentelemetry.context import Context

from belay_core.clock import SystemClock
from belay_core.errors import AttemptStoreError, InvalidInput, StoreError
from belay_core.telemetry import names, trace_context
from belay_core.telemetry.current_span import CurrentSpan, around, finish, is_unseen, open_span
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.outcome_counts import Counted, outcome_name

Answer = TypeVar("Answer")
Rows = TypeVar("Rows", bound=tuple[object, ...])
Identity: TypeAlias = Callable[[], Mapping[str, str | int]]
"""Returns the attributes that identify what an operation was about; called after it, and only for a recorded span."""

_SUPPRESSED: Final = "suppress_instrumentation"
"""The context key that suppresses other instrumentations."""

_ENDED_TOO_EARLY: Final = "finish requires a terminal state and valid timestamp"
"""The complaint of ``finish`` that the contract raises when the identity is known to be valid."""


class OperationSpan:
    """A context manager around one operation; called with its outcome, which it returns unchanged.

    The arguments are not read before: only the store knows whether they are valid, and an invalid call gets no
    attribute but its outcome.
    """

    __slots__ = ("_answers", "_counted", "_found", "_identity", "_instruments", "_name", "_span", "_units")

    def __init__(
        self,
        instruments: Instruments,
        name: str,
        identity: Identity | None = None,
        counted: Counted | None = None,
        units: int = 1,
    ) -> None:
        self._instruments = instruments
        self._name = name
        self._identity = identity
        self._counted = counted
        self._units = units
        self._answers: tuple[type[object], ...] = ()
        self._found: int | None = None
        self._span: CurrentSpan | None = None

    def __call__(self, answer: Answer) -> Answer:
        """Note the outcome."""
        self._answers = (type(answer),)
        return answer

    def each(self, answers: Rows) -> Rows:
        """Note outcomes, one for each subject."""
        self._answers = tuple(type(answer) for answer in answers)
        return self.listed(answers)

    def listed(self, rows: Rows) -> Rows:
        """Note the number of rows."""
        self.found(len(rows))
        return rows

    def found(self, count: int) -> None:
        """Note the number of subjects that the operation found."""
        self._found = count

    @property
    def recording(self) -> bool:
        """Whether the span is recorded."""
        return self._span is not None and self._span.recording

    def joined(self, trace: str | None) -> None:
        """Link the span to the trace that is kept with a run."""
        if self._span is not None:
            self._span.link(trace_context.read(trace))

    def __enter__(self) -> Self:
        tracer = self._instruments.tracer
        self._span = None if is_unseen(tracer) else open_span(tracer, self._name, context=around())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count(error)
        if self._span is not None:
            attributes = self._attributes(error) if self.recording else None
            self._span.close(self._outcome(error), error=_error_code(error), attributes=attributes)

    def _count(self, error: BaseException | None) -> None:
        counted = self._counted
        if counted is None:
            return
        if error is None:
            self._count_answers(counted)
        elif self._units:
            broken = counted.interrupt if isinstance(error, CancelledError) else counted.failure
            self._instruments.count(broken, self._units)

    def _count_answers(self, counted: Counted) -> None:
        answers = Counter(self._answers).items() if len(self._answers) > 1 else [(each, 1) for each in self._answers]
        for answer, units in answers:
            if answer in counted.answers:
                self._instruments.count(counted.answers[answer], units)
            if answer is counted.over:
                self._instruments.count_ended()

    def _outcome(self, error: BaseException | None) -> str:
        """One name for all outcomes: theirs if they agree, ``success`` if the operation has none."""
        if error is not None or not self._answers:
            return outcome_of(error)
        first = self._answers[0]
        return outcome_name(first) if all(answer is first for answer in self._answers) else names.MIXED

    def _attributes(self, error: BaseException | None) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {}
        if self._identity is not None and not _invalid(error):
            # A store that accepts more than the contract must not fail because it is observed.
            with suppress(AttributeError, TypeError):
                attributes.update(self._identity())
        if self._found is not None:
            attributes[names.COUNT] = self._found
        return attributes


class PollSpan(OperationSpan):
    """Around an operation that polls, and mostly finds nothing.

    Its span is made afterwards, with the time it began, and only when something was found or it failed. Meanwhile
    instrumentations of databases are suppressed, so that idle workers send no spans.
    """

    __slots__ = ("_began", "_silence")

    def __enter__(self) -> Self:
        self._began = nanoseconds()
        self._silence: Token[Context] = contexts.attach(contexts.set_value(_SUPPRESSED, value=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        contexts.detach(self._silence)
        self._count(error)
        if not self._found and _error_code(error) is None:
            return
        span = self._instruments.tracer.start_span(self._name, around(), start_time=self._began)
        attributes = self._attributes(error) if span.is_recording() else None
        finish(span, self._outcome(error), error=_error_code(error), attributes=attributes)


def outcome_of(error: BaseException | None) -> str:
    """The outcome of an operation that returns none, or raised."""
    if error is None:
        return names.SUCCESS
    return names.INTERRUPT if isinstance(error, CancelledError) else names.FAILURE


def _error_code(error: BaseException | None) -> str | None:
    """The code of an error: a store's code, never a text; None without an error, or if it was a cancellation."""
    if error is None or isinstance(error, CancelledError):
        return None
    return error.code if isinstance(error, StoreError) else names.FAILURE


def _invalid(error: BaseException | None) -> bool:
    """Whether the arguments are invalid; the contract has two exceptions (run store 12.2)."""
    if isinstance(error, AttemptStoreError) and _identified(error):
        return False
    return isinstance(error, InvalidInput) or (isinstance(error, StoreError) and error.code.startswith("invalid_"))


def _identified(error: AttemptStoreError) -> bool:
    if error.method == "heartbeat":
        # Annotated once the owner is valid; the wrapper leaves out other arguments that are not.
        return not error.detail.startswith("owner ")
    return error.detail == _ENDED_TOO_EARLY


_CLOCK: Final = SystemClock()


def nanoseconds() -> int:
    """The machine's time as spans have it; not the stores' clock, which tests advance by hand."""
    return int(_CLOCK.now() * 1e6)
