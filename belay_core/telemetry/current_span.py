"""A span that is current for a while; almost free without tracing.

A span is sent when it ends: one that is open when its process is killed never arrives, and its children have no
parent. So the parents of belay's own spans are spans that have ended. Exporters send spans in the order in which they
ended; a child then never arrives without its parent.
"""

from collections.abc import Mapping
from contextvars import Token
from functools import cache
from typing import Final, cast

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    ProxyTracer,
    ProxyTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)

from belay_core.telemetry import names

_PROVIDER: Final = "_TRACER_PROVIDER"
"""The API's reference to the global provider; None until there is one."""
_AROUND: Final = contexts.create_key("belay-around")
"""The context key of an open span that must not be a parent of belay's own spans, with its outer context."""


class CurrentSpan:
    """An open span; spans that are opened until it is closed become its children."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span, *, for_others: bool = False) -> None:
        self._span: Final = span
        current = set_span_in_context(span)
        if for_others:
            current = contexts.set_value(_AROUND, (span, contexts.get_current()), current)
        self._token: Token[Context] = contexts.attach(current)

    @property
    def recording(self) -> bool:
        """Whether the span is recorded."""
        return self._span.is_recording()

    def link(self, context: Context) -> None:
        """Link the span to the current one of this context, if there is one."""
        other = get_current_span(context).get_span_context()
        if other.is_valid:
            self._span.add_link(other)

    def close(
        self, outcome: str, *, error: str | None = None, attributes: Mapping[str, str | int] | None = None
    ) -> None:
        """End the span; ``error`` is a fixed word for the error, if there was one."""
        contexts.detach(self._token)
        finish(self._span, outcome, error=error, attributes=attributes)


def is_idle(tracer: Tracer) -> bool:
    """Whether a span begun now would not be recorded: no provider is set."""
    if type(tracer) is not ProxyTracer or _is_set_already():
        return False
    # The API's own check reads the environment each time, which costs more than all the rest of an idle span.
    if _PROVIDER in vars(trace):
        return vars(trace)[_PROVIDER] is None
    return type(get_tracer_provider()) is ProxyTracerProvider


def is_unseen(tracer: Tracer) -> bool:
    """Whether a span begun now in the current context would not be recorded: as ``is_idle``, and no other is open."""
    return is_idle(tracer) and get_current_span() is INVALID_SPAN


@cache
def _is_set_already() -> bool:
    """Whether there is a provider at the first call; one that the environment names is loaded then."""
    return type(get_tracer_provider()) is not ProxyTracerProvider


def open_span(
    tracer: Tracer,
    name: str,
    *,
    context: Context | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, str | int] | None = None,
    for_others: bool = False,
) -> CurrentSpan | None:
    """Begin a span and make it current; None if neither a recorded nor a remote trace would go through it.

    A span that was not sampled becomes current too: its children must not begin traces of their own. With
    ``for_others``, spans of belay's stores get the outer span as their parent (``around``).
    """
    if context is None and is_unseen(tracer):
        return None
    span = tracer.start_span(name, context, kind, attributes)
    return CurrentSpan(span, for_others=for_others) if span.get_span_context().is_valid else None


def around() -> Context | None:
    """The context in which the span of a store begins; None is the current one."""
    kept = cast("tuple[Span, Context] | None", contexts.get_value(_AROUND))
    return kept[1] if kept is not None and get_current_span() is kept[0] else None


def finish(
    span: Span,
    outcome: str,
    *,
    error: str | None = None,
    attributes: Mapping[str, str | int] | None = None,
    end_time: int | None = None,
) -> None:
    """Set the outcome of a span, and end it."""
    if attributes:
        span.set_attributes(attributes)
    span.set_attribute(names.OUTCOME, outcome)
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(end_time)
