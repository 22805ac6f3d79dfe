"""The engine's store in SQL, put together from roles (kernel 1 and 26)."""

from belay_core.stores.engine_store import EngineStore
from belay_drivers.sql.engine_store.acquiring import Acquiring
from belay_drivers.sql.engine_store.base import Parts
from belay_drivers.sql.engine_store.deciding import Deciding
from belay_drivers.sql.engine_store.ending import Ending
from belay_drivers.sql.engine_store.gates import Gates
from belay_drivers.sql.engine_store.owned import Owning
from belay_drivers.sql.engine_store.reading import Reading
from belay_drivers.sql.engine_store.resolving import Resolving
from belay_drivers.sql.engine_store.starting import Starting

__all__ = ["Parts", "SqlEngineStore"]


class SqlEngineStore(Starting, Acquiring, Owning, Gates, Ending, Deciding, Resolving, Reading, EngineStore):
    """Every command of the engine, over one database."""
