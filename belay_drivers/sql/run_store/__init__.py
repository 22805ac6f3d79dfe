"""RunStore in SQL (specs, run store 6)."""

from belay_core.stores.run_store import RunStore
from belay_drivers.sql.run_store.cancelling import Cancelling
from belay_drivers.sql.run_store.claiming import Claiming
from belay_drivers.sql.run_store.creating import Creating
from belay_drivers.sql.run_store.lineages import LineageReading
from belay_drivers.sql.run_store.owning import Owning
from belay_drivers.sql.run_store.reading import Reading
from belay_drivers.sql.run_store.reserving import Reserving

__all__ = ["SqlRunStore"]


class SqlRunStore(Creating, Reading, LineageReading, Cancelling, Claiming, Reserving, Owning, RunStore):
    """Runs and their fenced ownership, over one database."""
