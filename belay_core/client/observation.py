"""Connect clients and workers with telemetry, which is on unless they turn it off."""

from collections.abc import Sequence

from belay_core.stores.bundle import Stores
from belay_core.workflows.middleware import Middleware


def observe(
    stores: Stores, *, telemetry: bool, middleware: Sequence[Middleware]
) -> tuple[Stores, tuple[Middleware, ...]]:
    """The stores and the middleware to use; with ``telemetry`` both are observed through OpenTelemetry's API.

    If the caller's stores are observed already, or its middleware has ``EngineSpans``, spans are not doubled.
    """
    if not telemetry:
        return stores, tuple(middleware)
    from belay_core.telemetry import EngineSpans, observed

    own = any(isinstance(each, EngineSpans) for each in middleware)
    return observed(stores), tuple(middleware) if own else (EngineSpans(), *middleware)
