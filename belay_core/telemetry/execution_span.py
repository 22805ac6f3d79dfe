"""One owner's stretch of work on a run, as spans that hold together although the owner may be killed."""

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
"""The outcomes that are defects; losing a lease or being cancelled is none."""


class ExecutionSpan:
    """Round a drain: a span without length when it begins, on which all the others hang, and when it ends its last.

    The first is sent at once, and so before any span that hangs on it; the last says how long the drain took and how it
    ended. Of an owner that was killed the last is missing, and nothing else that had ended.
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
        # Never a child of what happens to be current: a worker that was made inside a span would
        # hang every run it ever drains below that one.
        span = self._tracer.start_span(
            f"{names.INVOKE} {self._facts.workflow}",
            Context() if self._linked else started,
            attributes=_for_viewers(self._facts),
            links=links,
            start_time=self._began,
        )
        if span.get_span_context().is_valid:
            finish(span, names.ACQUIRED, end_time=self._began)
            # Not the span itself: an author who writes on the current one would be told that it has ended.
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
    """The outcome of a stretch that was closed with this word, or not at all, and left with this exception or none."""
    if closed is None or (closed == names.FAILURE and error is not None):
        # Whoever was stopped from outside can only say that it failed; the exception knows better.
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
