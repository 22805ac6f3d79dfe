"""Assemble the stores of one database."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypedDict, Unpack

from typing_extensions import override

from belay_core.clock import Clock
from belay_core.ids import IdSource
from belay_core.records.workflow_run import RunEnd
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.notifier import Notifier
from belay_core.stores.writer import Transaction, Writer
from belay_drivers.sql.connection.database import Database, Sender
from belay_drivers.sql.statements.hot import HotStatements
from belay_drivers.sql.statements.run_rows import AttemptRows
from belay_drivers.sql.stores.approvals import SqlApprovalStore
from belay_drivers.sql.stores.attempts import SqlAttemptContract, SqlAttemptStore
from belay_drivers.sql.stores.base import Parts, Sequences
from belay_drivers.sql.stores.changes import SqlChanges
from belay_drivers.sql.stores.group_commit import GroupCommit
from belay_drivers.sql.stores.joined import join_stores
from belay_drivers.sql.stores.journal import SqlJournal
from belay_drivers.sql.stores.retention import SqlRetention
from belay_drivers.sql.stores.runs import SqlRunContract, SqlRunStore
from belay_drivers.sql.stores.snapshots import SqlSnapshots
from belay_drivers.sql.stores.views import Views
from belay_drivers.sql.stores.waiting import SqlWaitingStore
from belay_drivers.sql.stores.writer import SqlWriter


class DriverOptions(TypedDict, total=False):
    """The optional parts of a driver (see ``Parts``)."""

    refresh: Callable[[], Awaitable[None]]
    trusts_stale: Callable[[], bool]


def assemble_stores(
    database: Database,
    *,
    clock: Clock,
    ids: IdSource,
    lease: LeaseTimes,
    views: Views,
    hot: HotStatements,
    group_commit: GroupCommit,
    **more: Unpack[DriverOptions],
) -> Stores:
    """The stores over an open database with its schema."""
    notifier, children = Notifier(), AttemptRows(database.dialect)
    parts = Parts(database, clock, ids, lease, notifier, Sequences(), children, hot, group_commit, **more)
    return Stores(
        runs=SqlRunStore(parts),
        attempts=SqlAttemptStore(parts),
        approvals=SqlApprovalStore(parts),
        clock=clock,
        ids=ids,
        lease=lease,
        notifier=notifier,
        writer=SqlWriter(database, _inside(clock, notifier), lambda: group_commit.waiting),
        waiting=SqlWaitingStore(database, clock, notifier),
        journal=SqlJournal(database, clock),
        changes=SqlChanges(views, clock),
        retention=SqlRetention(database, clock),
        snapshots=SqlSnapshots(database, views.hold, clock),
        joins=join_stores(database, parts),
    )


def _inside(clock: Clock, notifier: Notifier) -> Callable[[Sender, Writer], Transaction]:
    def inside(sender: Sender, writer: Writer) -> Transaction:
        return Transaction(
            SqlRunContract(sender, clock),
            SqlAttemptContract(sender),
            writer,
            SqlWaitingStore(sender, clock, _DeferredNotifier(writer, notifier)),
            SqlJournal(sender, clock),
        )

    return inside


class _DeferredNotifier(Notifier):
    """Notifies after the commit."""

    def __init__(self, writer: Writer, notifier: Notifier) -> None:
        super().__init__()
        self._writer = writer
        self._notifier = notifier

    @override
    def notify(self, run_id: str | None = None, *, ready: bool = False, end: RunEnd | None = None) -> None:
        self._writer.after_commit(partial(self._notifier.notify, run_id, ready=ready, end=end))
