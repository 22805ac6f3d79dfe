"""The seam: what a driver keeps, as protocols (kernel 1)."""

from belay_core.stores.attempt_store import AttemptStore
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.engine_store import EngineStore
from belay_core.stores.opening import Migrations, find_migrations, open_stores
from belay_core.stores.run_store import RunStore
from belay_core.stores.wakes import Wakes

__all__ = [
    "AttemptStore",
    "EngineStore",
    "LeaseTimes",
    "Migrations",
    "RunStore",
    "Stores",
    "Wakes",
    "find_migrations",
    "open_stores",
]
