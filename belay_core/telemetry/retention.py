"""Deletion of runs, watched."""

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.outcomes.retention import DeleteOutcome
from belay_core.stores.retention import Retention
from belay_core.telemetry import names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Watch


class ObservedRetention(Retention):
    """A retention that does what the one it is given does, and leaves a span of it."""

    def __init__(self, retention: Retention, instruments: Instruments) -> None:
        self._retention = retention
        self._instruments = instruments

    @override
    async def delete(self, run_id: RunId) -> DeleteOutcome:
        with Watch(self._instruments, names.RETENTION_DELETE, lambda: {names.RUN_ID: run_id}) as seen:
            return seen(await self._retention.delete(run_id))
