"""One owner's execution of a run, as spans that form a tree even if the owner is killed."""

from contextvars import Token
from types import TracebackType
from typing import Final

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Tracer, get_current_span, set_span_in_context

from belay_core.telemetry import names, trace_context
from belay_core.telemetry.current_span import finish, is_idle
from belay_core.telemetry.operation_span import nanoseconds, outcome_of
from belay_core.workflows.middleware import Close, ExecutionFacts

ERRORS: Final = frozenset({"failed", "orphaned", names.FAILURE})
"""The outcomes that are errors; a lost lease and a cancellation are not."""


class ExecutionSpan:
    """Around an execution: a span of no duration at its begin, the parent of all others, and one at its end.

    The first is sent immediately, and so before its children; the last has duration and outcome of the execution. If
    the owner was killed, only the last one is missing, and spans that had not ended.
    """

    __slots__ = ("_began", "_facts", "_first", "_linked", "_outcome", "_token", "_tracer")

    def __init__(self, tracer: Tracer, facts: ExecutionFacts, *, linked: bool) -> None:
        self._tracer = tracer
        self._facts = facts
        self._linked = linked
        self._outcome: str | None = None
        self._first: Context | None = None

    def __enter__(self) -> Close:
        if self._facts.trace is None and is_idle(self._tracer):
            return self._close
        self._began = nanoseconds()
        started = trace_context.read(self._facts.trace)
        before = get_current_span(started).get_span_context()
        links = [Link(before)] if self._linked and before.is_valid else None
        # Never a child of the current span: a worker that was made inside a span would make that span the
        # parent of every run it ever executes.
        span = self._tracer.start_span(
            f"{names.INVOKE} {self._facts.workflow}",
            Context() if self._linked else started,
            attributes=_for_viewers(self._facts),
            links=links,
            start_time=self._began,
        )
        if span.get_span_context().is_valid:
            finish(span, names.ACQUIRED, end_time=self._began)
            # Not the span itself: an author who writes on the current span would get a warning.
            self._first = set_span_in_context(NonRecordingSpan(span.get_span_context()))
            self._token: Token[Context] = contexts.attach(self._first)
        return self._close

    def _close(self, outcome: str) -> None:
        self._outcome = outcome

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._first is None:
            return
        contexts.detach(self._token)
        span = self._tracer.start_span(
            f"{names.EXECUTE} {self._facts.workflow}",
            self._first,
            attributes=_identity(self._facts),
            start_time=self._began,
        )
        outcome = ending(self._outcome, error)
        finish(span, outcome, error=outcome if outcome in ERRORS else None)


def ending(closed: str | None, error: BaseException | None) -> str:
    """The outcome of an execution that was closed with this word (None: not at all), and raised this error or none."""
    if closed is None or (closed == names.FAILURE and error is not None):
        # Code that was cancelled from outside can only report a failure; the exception is more exact.
        return outcome_of(error)
    return closed


def _identity(facts: ExecutionFacts) -> dict[str, str | int]:
    return {
        names.BELAY_RUN_ID: facts.run_id,
        names.BELAY_WORKFLOW: facts.workflow,
        names.BELAY_EPOCH: facts.epoch,
        names.BELAY_HOST_ID: facts.host_id,
    }


def _for_viewers(facts: ExecutionFacts) -> dict[str, str | int]:
    return {
        **_identity(facts),
        names.GEN_AI_OPERATION_NAME: names.INVOKE,
        names.GEN_AI_AGENT_NAME: facts.workflow,
        names.GEN_AI_WORKFLOW_NAME: facts.workflow,
        names.GEN_AI_CONVERSATION_ID: facts.run_id,
        names.OPENINFERENCE_SPAN_KIND: names.OPENINFERENCE_CHAIN,
    }
