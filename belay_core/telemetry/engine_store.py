"""The engine's store, watched: its three roles put together."""

from belay_core.stores.engine_store import EngineStore
from belay_core.telemetry.engine_reads import ObservedEngineReads
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.owned_commands import ObservedOwnedCommands
from belay_core.telemetry.unowned_commands import ObservedUnownedCommands


class ObservedEngineStore(ObservedOwnedCommands, ObservedUnownedCommands, ObservedEngineReads, EngineStore):
    """An engine store that does what the one it is given does, and leaves spans and counts of it."""

    def __init__(self, engine: EngineStore, instruments: Instruments) -> None:
        ObservedOwnedCommands.__init__(self, engine, instruments)
        ObservedUnownedCommands.__init__(self, engine, instruments, engine)
        ObservedEngineReads.__init__(self, engine, instruments)
