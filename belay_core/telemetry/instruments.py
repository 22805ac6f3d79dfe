"""The instruments of telemetry: one tracer, five counters and a gauge of OpenTelemetry."""

from collections.abc import Callable, Iterable
from copy import copy
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TypeAlias
from weakref import WeakSet

from opentelemetry import metrics, trace

from belay_core.stores.writer import Hook, Writer
from belay_core.telemetry import names
from belay_core.telemetry.outcome_counts import Series

AfterCommit: TypeAlias = Callable[[Hook], bool]
"""Runs a hook once the open write has committed; returns whether there is one."""

_COUNTERS: Final = (
    (names.CLAIMS, "{claim}", "Attempts to own a run, by operation and outcome"),
    (names.HEARTBEATS, "{heartbeat}", "Signs of life of owned runs, by operation and outcome"),
    (names.TRANSITIONS, "{transition}", "Moves of owned runs, by requested status and outcome"),
    (names.THROUGHPUT, "{run}", "Runs that were completed, failed or cancelled"),
    (names.WRITE_RETRIES, "{retry}", "Writes that were sent again because the database asked for it"),
)


class Instruments:
    """The tracer and the counters of these providers, or of the global ones, also if those are set later."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self.tracer = tracer(tracer_provider)
        meter = metrics.get_meter(names.SCOPE, _release(), meter_provider)
        self._counters = {name: meter.create_counter(name, unit, text) for name, unit, text in _COUNTERS}
        self._writers: WeakSet[Writer] = WeakSet()
        meter.create_observable_up_down_counter(
            names.QUEUED_WRITES, [self._queued], "{write}", "Writes of this process that wait to be sent"
        )
        self._after_commit: AfterCommit = _committed_already

    def deferred(self, after_commit: AfterCommit) -> "Instruments":
        """The same instruments for operations inside a write."""
        twin = copy(self)
        twin._after_commit = after_commit  # noqa: SLF001  the twin is of this very class
        return twin

    def count(self, series: Series, units: int = 1) -> None:
        """Add to one series of a counter."""
        self._counters[series.counter].add(units, series.attributes)

    def count_ended(self) -> None:
        """Count a run that has ended, once the write that ended it has committed."""
        if not self._after_commit(self._add_ended):
            self._add_ended()

    def count_retry(self) -> None:
        """Count a retry of a write."""
        self._counters[names.WRITE_RETRIES].add(1)

    def observe_queue(self, writer: Writer) -> None:
        """Report the writes that wait at this writer, as long as it exists."""
        self._writers.add(writer)

    def _queued(self, _options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        yield metrics.Observation(sum(writer.queued for writer in self._writers))

    def _add_ended(self) -> None:
        self._counters[names.THROUGHPUT].add(1)


def _committed_already(_hook: Hook) -> bool:
    return False


def tracer(provider: trace.TracerProvider | None = None) -> trace.Tracer:
    """The tracer of this provider, or of the global one, also if that is set later."""
    return trace.get_tracer(names.SCOPE, _release(), provider)


@cache
def _global_instruments() -> Instruments:
    """One set a process: OpenTelemetry keeps every instrument it has made."""
    return Instruments()


def instruments(
    tracer_provider: trace.TracerProvider | None = None, meter_provider: metrics.MeterProvider | None = None
) -> Instruments:
    """The instruments of these providers; None means the global one."""
    if tracer_provider is None and meter_provider is None:
        return _global_instruments()
    return Instruments(tracer_provider, meter_provider)


@cache
def _release() -> str:
    try:
        return version("belay-core")
    except PackageNotFoundError:
        return ""
