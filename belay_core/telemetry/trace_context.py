"""The text that joins a run to its trace: a W3C trace context as a JSON object, kept with the run."""

import json
from typing import Final, cast

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR: Final = TraceContextTextMapPropagator()

_MAXIMUM_LENGTH: Final = 4_096
"""Longer texts are none of ours: a header of the standard has at most 512 characters, with escapes some more."""


def written() -> str | None:
    """The current trace context as text; None where there is none."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers)
    return json.dumps(headers, separators=(",", ":")) if headers else None


def read(text: str | None) -> Context:
    """A context whose current span is the one that was written; an empty one where that cannot be told.

    Never raises: a text somebody damaged must not keep a run from being executed. It then begins a trace of its own.
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
