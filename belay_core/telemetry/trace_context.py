"""The trace context of a run: a W3C trace context as a JSON object, stored with the run."""

import json
from typing import Final, cast

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR: Final = TraceContextTextMapPropagator()

_MAXIMUM_LENGTH: Final = 4_096
"""Longer texts were not written here: a header of the standard has at most 512 characters, plus escapes."""


def written() -> str | None:
    """The current trace context as text; None if there is none."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers)
    return json.dumps(headers, separators=(",", ":")) if headers else None


def read(text: str | None) -> Context:
    """A context whose current span is the one that was written; an empty one if the text is invalid.

    Never raises: a damaged text must not keep a run from being executed. The run then begins a new trace.
    """
    return _PROPAGATOR.extract(_headers(text), Context())


def _headers(text: str | None) -> dict[str, str]:
    if text is None or len(text) > _MAXIMUM_LENGTH:
        return {}
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(parsed, dict):
        return {}
    members = cast("dict[str, object]", parsed)
    return {name: value for name, value in members.items() if isinstance(value, str)}
