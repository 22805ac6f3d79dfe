"""Telemetry for tests: spans in memory, a tree to compare, counters as a dictionary.

OpenTelemetry lets a process set each global provider once. So one is set on first use and kept, and recordings share
it; any number may be open at a time, and each holds the spans that ended, or the counts, while it was open.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

Counts: TypeAlias = dict[str, int]
"""Counters by name and attributes, ``belay.run.claims{op=claim_and_own,outcome=activated}``; zeros are left out."""

_SCOPE = "belay"


class ProviderTaken(RuntimeError):
    """The process has another global provider of metrics, from which nothing can be recorded."""


@contextmanager
def recorded_spans() -> Generator["list[ReadableSpan]"]:
    """A list that every span is appended to as it ends, until the block is left; also those of other libraries."""
    spans: list[ReadableSpan] = []
    recordings = _recordings()
    recordings.append(spans)
    try:
        yield spans
    finally:
        # By identity: two recordings that saw the same spans are equal.
        recordings[:] = [other for other in recordings if other is not spans]


def tree(spans: "Iterable[ReadableSpan]") -> str:
    """The spans as indented lines, ``name [outcome]``, in the order they began; ``!`` marks a defect.

    A span whose parent is not among them is not indented.
    """
    known = {span.context.span_id: span for span in spans if span.context is not None}
    children: dict[int | None, list[ReadableSpan]] = {}
    for span in sorted(known.values(), key=lambda span: span.start_time or 0):
        parent = span.parent.span_id if span.parent is not None else None
        children.setdefault(parent if parent in known else None, []).append(span)
    return "\n".join(_lines(children, None, ""))


@contextmanager
def recorded_counters() -> Generator[Callable[[], Counts]]:
    """A function that reads what belay counted since the block was entered.

    Raises ``ProviderTaken`` if other code set the global provider of metrics first.
    """
    reader = _reader()
    before = _read(reader)

    def counted() -> Counts:
        now = _read(reader)
        return {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}

    yield counted


def _lines(children: "Mapping[int | None, Sequence[ReadableSpan]]", parent: int | None, margin: str) -> Generator[str]:
    for span in children.get(parent, ()):
        outcome = (span.attributes or {}).get("outcome")
        ending = f" [{outcome}]" if outcome is not None else ""
        yield f"{margin}{span.name}{ending}{' !' if span.status.status_code.name == 'ERROR' else ''}"
        if span.context is not None:
            yield from _lines(children, span.context.span_id, margin + "  ")


class _Recordings:
    """An exporter that gives each span to every open recording."""

    def __init__(self) -> None:
        self.open: list[list[ReadableSpan]] = []

    def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
        from opentelemetry.sdk.trace.export import SpanExportResult

        for recording in tuple(self.open):
            recording.extend(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.open.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        return True


@cache
def _recordings() -> "list[list[ReadableSpan]]":
    """The open recordings; on first use they are attached to the global provider of traces, or to a new one."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
        trace.set_tracer_provider(provider)
    recordings = _Recordings()
    provider.add_span_processor(SimpleSpanProcessor(cast("SpanExporter", recordings)))
    return recordings.open


@cache
def _reader() -> "InMemoryMetricReader":
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        metrics.set_meter_provider(provider)
    if metrics.get_meter_provider() is not provider:
        raise ProviderTaken("a global provider of metrics is set already; let belay_testing.spans be the first")
    return reader


def _read(reader: "InMemoryMetricReader") -> Counts:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    data = reader.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    return {
        _series(metric.name, point.attributes or {}): int(point.value)
        for scope in scopes
        if scope.scope.name == _SCOPE
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


def _series(name: str, attributes: Mapping[str, object]) -> str:
    labels = ",".join(f"{key}={attributes[key]}" for key in sorted(attributes))
    return f"{name}{{{labels}}}" if labels else name
