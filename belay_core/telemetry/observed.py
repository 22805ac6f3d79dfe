"""Stores that are watched while they do what they did before."""

from dataclasses import replace

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from belay_core.stores.bundle import Stores
from belay_core.telemetry.attempt_store import ObservedAttemptStore
from belay_core.telemetry.engine_store import ObservedEngineStore
from belay_core.telemetry.instruments import instruments
from belay_core.telemetry.run_store import ObservedRunStore


def observed(
    stores: Stores,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Stores:
    """The same stores with a span and a count of what each operation did; the global providers unless others are given.

    Answers and exceptions are those of the store, unchanged. A store that is observed already is left as it is.
    """
    tools = instruments(tracer_provider, meter_provider)
    runs, attempts, engine = stores.runs, stores.attempts, stores.engine
    return replace(
        stores,
        runs=runs if isinstance(runs, ObservedRunStore) else ObservedRunStore(runs, tools),
        attempts=attempts if isinstance(attempts, ObservedAttemptStore) else ObservedAttemptStore(attempts, tools),
        engine=engine if isinstance(engine, ObservedEngineStore) else ObservedEngineStore(engine, tools),
    )
