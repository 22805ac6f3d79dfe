"""What a driver opens: the stores over one database, with the clock and names they share."""

from dataclasses import dataclass, field

from belay_core import limits
from belay_core.ids import IdSource
from belay_core.moments import Clock, Millis
from belay_core.stores.attempt_store import AttemptStore
from belay_core.stores.engine_store import EngineStore
from belay_core.stores.run_store import RunStore
from belay_core.stores.wakes import Wakes


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The lease times kept with the database, so that all its workers agree; milliseconds."""

    interval_ms: Millis = limits.HEARTBEAT_INTERVAL
    stale_after_ms: Millis = limits.HEARTBEAT_STALE_AFTER
    skew_ms: Millis = limits.HEARTBEAT_SKEW_ALLOWANCE

    @property
    def tolerance_ms(self) -> Millis:
        """How long an owner may go on without a confirmed heartbeat."""
        return self.stale_after_ms - self.skew_ms - self.interval_ms


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of one database; made by a driver, used by one event loop."""

    runs: RunStore
    attempts: AttemptStore
    engine: EngineStore
    clock: Clock
    ids: IdSource
    lease: LeaseTimes = field(default_factory=LeaseTimes)
    wakes: Wakes = field(default_factory=Wakes)
