"""The stores of one database, put together."""

from collections.abc import Awaitable, Callable
from typing import TypedDict, Unpack

from belay_core.ids import IdSource
from belay_core.moments import Clock
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.wakes import Wakes
from belay_drivers.sql.attempt_store import SqlAttemptStore
from belay_drivers.sql.children import Children
from belay_drivers.sql.database import Database
from belay_drivers.sql.dialect import HotPaths
from belay_drivers.sql.engine_store import Parts, SqlEngineStore
from belay_drivers.sql.run_store import SqlRunStore
from belay_drivers.sql.sequences import Sequences


class Beside(TypedDict, total=False):
    """What a driver may add (``Parts`` says what each is)."""

    hot: HotPaths
    refresh: Callable[[], Awaitable[None]]
    trusts_stale: Callable[[], bool]


def assembled(
    database: Database,
    *,
    clock: Clock,
    ids: IdSource,
    lease: LeaseTimes,
    **more: Unpack[Beside],
) -> Stores:
    """The stores over a database that is open and has its schema."""
    wakes = Wakes()
    parts = Parts(
        database=database,
        clock=clock,
        ids=ids,
        lease=lease,
        wakes=wakes,
        sequences=Sequences(),
        children=Children(database.dialect),
        **more,
    )
    return Stores(
        runs=SqlRunStore(database, clock),
        attempts=SqlAttemptStore(database),
        engine=SqlEngineStore(parts),
        clock=clock,
        ids=ids,
        lease=lease,
        wakes=wakes,
    )
