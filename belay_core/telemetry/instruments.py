"""What telemetry writes with: one tracer and four counters, given by OpenTelemetry."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from opentelemetry import metrics, trace

from belay_core.telemetry import names
from belay_core.telemetry.answers import Series

_COUNTERS: Final = (
    (names.CLAIMS, "{claim}", "Attempts to own a run, by operation and outcome"),
    (names.HEARTBEATS, "{heartbeat}", "Signs of life of owned runs, by operation and outcome"),
    (names.TRANSITIONS, "{transition}", "Moves of owned runs, by requested status and outcome"),
    (names.THROUGHPUT, "{run}", "Runs that were completed, failed or cancelled"),
)


class Instruments:
    """The tracer and the counters of these providers, or of the global ones, also where those are set later."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self.tracer = tracer(tracer_provider)
        meter = metrics.get_meter(names.SCOPE, _release(), meter_provider)
        self._counters = {name: meter.create_counter(name, unit, text) for name, unit, text in _COUNTERS}

    def count(self, series: Series, units: int = 1) -> None:
        """Add to one line of a counter."""
        self._counters[series.counter].add(units, series.attributes)

    def count_over(self) -> None:
        """One more run is over."""
        self._counters[names.THROUGHPUT].add(1)


def tracer(provider: trace.TracerProvider | None = None) -> trace.Tracer:
    """The tracer of this provider, or of the global one, also where that is set later."""
    return trace.get_tracer(names.SCOPE, _release(), provider)


@cache
def _global_instruments() -> Instruments:
    """Shared by all that is observed in this process: OpenTelemetry keeps every instrument it has made."""
    return Instruments()


def instruments(
    tracer_provider: trace.TracerProvider | None = None, meter_provider: metrics.MeterProvider | None = None
) -> Instruments:
    """The instruments of these providers; the global ones stand in for what is None."""
    if tracer_provider is None and meter_provider is None:
        return _global_instruments()
    return Instruments(tracer_provider, meter_provider)


@cache
def _release() -> str:
    try:
        return version("belay-core")
    except PackageNotFoundError:
        return ""
