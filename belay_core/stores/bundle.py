"""The bundle that a driver opens: the stores over one database, with their shared clock and ids."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from belay_core import limits
from belay_core.clock import Clock, Millis
from belay_core.errors import WriterError
from belay_core.ids import IdSource
from belay_core.stores.absent import (
    AbsentApprovalStore,
    AbsentChanges,
    AbsentJournal,
    AbsentRetention,
    AbsentSnapshots,
    AbsentWaitingStore,
)
from belay_core.stores.approvals import ApprovalStore
from belay_core.stores.attempts import AttemptStore
from belay_core.stores.changes import Changes
from belay_core.stores.journal import Journal
from belay_core.stores.notifier import Notifier
from belay_core.stores.retention import Retention
from belay_core.stores.runs import RunStore
from belay_core.stores.snapshots import SnapshotReads, Snapshots
from belay_core.stores.waiting import WaitingStore
from belay_core.stores.writer import AbsentWriter, Hook, Transaction, Writer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The lease times kept with the database, so that all its workers agree; milliseconds."""

    interval_ms: Millis = limits.HEARTBEAT_INTERVAL
    stale_after_ms: Millis = limits.HEARTBEAT_STALE_AFTER
    skew_ms: Millis = limits.HEARTBEAT_SKEW_ALLOWANCE

    @property
    def tolerance_ms(self) -> Millis:
        """How long an owner may continue without a confirmed heartbeat."""
        return self.stale_after_ms - self.skew_ms - self.interval_ms


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of one database; made by a driver, used by one event loop."""

    runs: RunStore
    attempts: AttemptStore
    clock: Clock
    ids: IdSource
    approvals: ApprovalStore = field(default_factory=AbsentApprovalStore)
    lease: LeaseTimes = field(default_factory=LeaseTimes)
    notifier: Notifier = field(default_factory=Notifier)
    writer: Writer = field(default_factory=AbsentWriter)
    waiting: WaitingStore = field(default_factory=AbsentWaitingStore)
    journal: Journal = field(default_factory=AbsentJournal)
    changes: Changes = field(default_factory=AbsentChanges)
    retention: Retention = field(default_factory=AbsentRetention)
    snapshots: Snapshots = field(default_factory=AbsentSnapshots)

    joins: "Callable[[object], Stores] | None" = None

    async def write(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``body`` with stores inside one transaction (``Writer.write``)."""
        return await self.writer.write(body)

    def after_commit(self, hook: Hook) -> bool:
        """Run ``hook`` once after the open write of this context has committed; returns whether there is one."""
        return self.writer.after_commit(hook)

    def snapshot(self) -> AbstractAsyncContextManager[SnapshotReads]:
        """Reads of one snapshot: ``async with stores.snapshot() as reads`` (``Snapshots.open``)."""
        return self.snapshots.open()

    def within(self, connection: object) -> "Stores":
        """Stores in a transaction of the caller's, which commits or rolls back; nothing in it is repeated.

        ``connection`` is an ``AsyncConnection`` of SQLAlchemy to the same database. The operations that are safe there
        are offered: ``create``, ``get``, ``request_cancel``, ``start``, ``cancel`` and ``find`` of runs;
        ``decide``, ``find`` and ``list`` of approvals. The others raise ``WriterError`` (``unsupported``), as
        do all with a driver without this feature. Raises ``InvalidInput`` for another connection.
        """
        if self.joins is None:
            raise WriterError("unsupported", "within", "this driver cannot join a transaction of the caller's")
        return self.joins(connection)
