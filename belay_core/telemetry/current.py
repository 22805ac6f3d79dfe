"""A span that is current for a while; nearly nothing where nobody traces."""

from collections.abc import Mapping
from contextvars import Token
from typing import Final

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from belay_core.telemetry import names


class CurrentSpan:
    """An open span; what is opened until it is closed becomes its child."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span: Final = span
        self._token: Token[Context] = contexts.attach(set_span_in_context(span))

    @property
    def recording(self) -> bool:
        """Whether anybody will see what is written on the span."""
        return self._span.is_recording()

    def close(
        self, outcome: str, *, error: str | None = None, attributes: Mapping[str, str | int] | None = None
    ) -> None:
        """End the span; ``error`` is a fixed word that says what went wrong, if anything did."""
        contexts.detach(self._token)
        finish(self._span, outcome, error=error, attributes=attributes)


def open_span(
    tracer: Tracer,
    name: str,
    *,
    context: Context | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, str | int] | None = None,
) -> CurrentSpan | None:
    """Begin a span and make it current; None where neither a recorded nor a remote trace would go through it.

    A span that was not sampled becomes current too: its children must not begin traces of their own.
    """
    span = tracer.start_span(name, context, kind, attributes)
    return CurrentSpan(span) if span.get_span_context().is_valid else None


def finish(
    span: Span,
    outcome: str,
    *,
    error: str | None = None,
    attributes: Mapping[str, str | int] | None = None,
    end_time: int | None = None,
) -> None:
    """Write on a span how it ended, and end it."""
    if attributes:
        span.set_attributes(attributes)
    span.set_attribute(names.OUTCOME, outcome)
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(end_time)
