"""The seam: what a driver keeps, as protocols (kernel 1)."""

from belay_core.stores.attempt_store import AttemptStore
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.changes import Changes
from belay_core.stores.engine_store import EngineStore
from belay_core.stores.journal import Journal
from belay_core.stores.opening import Migrations, find_migrations, open_stores
from belay_core.stores.retention import Retention
from belay_core.stores.run_store import RunStore
from belay_core.stores.snapshots import SnapshotReads, Snapshots
from belay_core.stores.waiting_store import WaitingStore
from belay_core.stores.wakes import Relay, Wakes
from belay_core.stores.writing import Transaction, Writer

__all__ = [
    "AttemptStore",
    "Changes",
    "EngineStore",
    "Journal",
    "LeaseTimes",
    "Migrations",
    "Relay",
    "Retention",
    "RunStore",
    "SnapshotReads",
    "Snapshots",
    "Stores",
    "Transaction",
    "WaitingStore",
    "Wakes",
    "Writer",
    "find_migrations",
    "open_stores",
]
