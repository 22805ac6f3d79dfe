"""The stores that a driver implements, as protocols, with their outcomes and input checks (kernel 1)."""

from belay_core.stores.approvals import ApprovalStore
from belay_core.stores.attempts import AttemptContract, AttemptStore
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.changes import Changes
from belay_core.stores.drivers import Migrations, find_migrations, open_stores
from belay_core.stores.journal import Journal
from belay_core.stores.notifier import Notifier, Relay
from belay_core.stores.retention import Retention
from belay_core.stores.run_contract import RunContract
from belay_core.stores.runs import RunStore
from belay_core.stores.snapshots import SnapshotReads, Snapshots
from belay_core.stores.waiting import WaitingStore
from belay_core.stores.writer import Transaction, Writer

__all__ = [
    "ApprovalStore",
    "AttemptContract",
    "AttemptStore",
    "Changes",
    "Journal",
    "LeaseTimes",
    "Migrations",
    "Notifier",
    "Relay",
    "Retention",
    "RunContract",
    "RunStore",
    "SnapshotReads",
    "Snapshots",
    "Stores",
    "Transaction",
    "WaitingStore",
    "Writer",
    "find_migrations",
    "open_stores",
]
