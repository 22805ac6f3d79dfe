"""Spans and counters for OpenTelemetry: stores are observed by stores, the engine by a middleware.

This package alone imports OpenTelemetry, and of it the API alone: without an SDK it does next to nothing. What is
written, and under which names, is in ``docs/reference/span-names.md``; which answer of which operation is counted
where is in the tables of ``outcome_counts``. No payload, no value and no text of an exception is ever written.
"""

from belay_core.telemetry.engine_spans import EngineSpans
from belay_core.telemetry.observed import observed

__all__ = ["EngineSpans", "observed"]
