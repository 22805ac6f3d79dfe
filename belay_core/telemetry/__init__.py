"""Spans and counters for OpenTelemetry: stores are observed by wrappers, the engine by a middleware.

Only this package imports OpenTelemetry, and only its API: without an SDK it does almost nothing. The names of spans
and counters are in ``docs/reference/span-names.md``; which outcome of which operation is counted where is in the
tables of ``outcome_counts``. No payload, no value and no text of an exception is ever written.
"""

from belay_core.telemetry.engine_spans import EngineSpans
from belay_core.telemetry.observed import observed

__all__ = ["EngineSpans", "observed"]
