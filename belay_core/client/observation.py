"""Where engine and telemetry meet: what a client or a worker is given is watched unless it says otherwise."""

from collections.abc import Sequence

from belay_core.stores.bundle import Stores
from belay_core.workflows.middleware import Middleware


def observe(
    stores: Stores, *, telemetry: bool, middleware: Sequence[Middleware]
) -> tuple[Stores, tuple[Middleware, ...]]:
    """The stores and the middleware to work with; with ``telemetry`` both are watched by OpenTelemetry's API.

    Spans of the caller's own, as stores watched or as ``EngineSpans``, are not doubled.
    """
    if not telemetry:
        return stores, tuple(middleware)
    from belay_core.telemetry import EngineSpans, observed

    own = any(isinstance(each, EngineSpans) for each in middleware)
    return observed(stores), tuple(middleware) if own else (EngineSpans(), *middleware)
