"""RunStore in SQL (specs, run store 6)."""

from belay_core.stores.run_store import RunStore
from belay_drivers.sql.run_store.claiming import Claiming
from belay_drivers.sql.run_store.creating import Creating
from belay_drivers.sql.run_store.owning import Owning
from belay_drivers.sql.run_store.reading import Reading

__all__ = ["SqlRunStore"]


class SqlRunStore(Creating, Reading, Claiming, Owning, RunStore):
    """Runs and their fenced ownership, over one database."""
