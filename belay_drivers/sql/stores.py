"""The stores of one database, put together."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypedDict, Unpack

from typing_extensions import override

from belay_core.ids import IdSource
from belay_core.moments import Clock
from belay_core.records.workflow_run import RunEnd
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.wakes import Wakes
from belay_core.stores.writing import Transaction, Writer
from belay_drivers.sql.attempt_store import SqlAttemptStore
from belay_drivers.sql.changes_store import SqlChanges
from belay_drivers.sql.children import Children
from belay_drivers.sql.coalescing import Coalescer
from belay_drivers.sql.database import Database, Sender
from belay_drivers.sql.engine_store import Parts, SqlEngineStore
from belay_drivers.sql.hot import HotPaths
from belay_drivers.sql.joining import joining
from belay_drivers.sql.journal_store import SqlJournal
from belay_drivers.sql.retention import SqlRetention
from belay_drivers.sql.run_store import SqlRunStore
from belay_drivers.sql.sequences import Sequences
from belay_drivers.sql.snapshots import SqlSnapshots
from belay_drivers.sql.views import Views
from belay_drivers.sql.waiting_store import SqlWaitingStore
from belay_drivers.sql.writing import SqlWriter


class Beside(TypedDict, total=False):
    """What a driver may add (``Parts`` says what each is)."""

    refresh: Callable[[], Awaitable[None]]
    trusts_stale: Callable[[], bool]


def assembled(
    database: Database,
    *,
    clock: Clock,
    ids: IdSource,
    lease: LeaseTimes,
    views: Views,
    hot: HotPaths,
    coalescer: Coalescer,
    **more: Unpack[Beside],
) -> Stores:
    """The stores over a database that is open and has its schema."""
    wakes, children = Wakes(), Children(database.dialect)
    parts = Parts(database, clock, ids, lease, wakes, Sequences(), children, hot, coalescer, **more)
    return Stores(
        runs=SqlRunStore(database, clock),
        attempts=SqlAttemptStore(database),
        engine=SqlEngineStore(parts),
        clock=clock,
        ids=ids,
        lease=lease,
        wakes=wakes,
        writer=SqlWriter(database, _inside(clock, wakes), lambda: coalescer.waiting),
        waiting=SqlWaitingStore(database, clock, wakes),
        journal=SqlJournal(database, clock),
        changes=SqlChanges(views, clock),
        retention=SqlRetention(database, clock),
        snapshots=SqlSnapshots(database, views.hold, clock),
        joins=joining(database, parts),
    )


def _inside(clock: Clock, wakes: Wakes) -> Callable[[Sender, Writer], Transaction]:
    def inside(sender: Sender, writer: Writer) -> Transaction:
        return Transaction(
            SqlRunStore(sender, clock),
            SqlAttemptStore(sender),
            writer,
            SqlWaitingStore(sender, clock, _LaterWakes(writer, wakes)),
            SqlJournal(sender, clock),
        )

    return inside


class _LaterWakes(Wakes):
    """Wakes nobody before there is something to see."""

    def __init__(self, writer: Writer, wakes: Wakes) -> None:
        super().__init__()
        self._writer = writer
        self._wakes = wakes

    @override
    def poke(self, run_id: str | None = None, *, ready: bool = False, end: RunEnd | None = None) -> None:
        self._writer.after_commit(partial(self._wakes.poke, run_id, ready=ready, end=end))
