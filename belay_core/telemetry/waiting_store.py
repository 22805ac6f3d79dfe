"""The store of waits, watched."""

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.waiting import ParkOutcome, WakeOutcome
from belay_core.records.owner import OwnerId
from belay_core.records.waiting import Wait, WaitingRow
from belay_core.stores.waiting_store import WaitingStore
from belay_core.telemetry import names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Poll, Watch


class ObservedWaitingStore(WaitingStore):
    """A store of waits that does what the one it is given does, and leaves a span of it.

    Whoever sweeps asks ``waiting_runs`` again and again: it leaves a span only where it found runs, or failed.
    """

    def __init__(self, waiting: WaitingStore, instruments: Instruments) -> None:
        self._waiting = waiting
        self._instruments = instruments

    @override
    async def park(self, run_id: RunId, waiting: Wait, owner: OwnerId) -> ParkOutcome:
        def identity() -> dict[str, str]:
            return {names.RUN_ID: run_id, names.OWNER_HOST_ID: owner.host_id}

        with Watch(self._instruments, names.WAITING_PARK, identity) as seen:
            return seen(await self._waiting.park(run_id, waiting, owner))

    @override
    async def wake(self, run_id: RunId) -> WakeOutcome:
        with Watch(self._instruments, names.WAITING_WAKE, lambda: {names.RUN_ID: run_id}) as seen:
            return seen(await self._waiting.wake(run_id))

    @override
    async def waiting(self, run_id: RunId) -> WaitingRow | None:
        with Watch(self._instruments, names.WAITING_WAITING, lambda: {names.RUN_ID: run_id}):
            return await self._waiting.waiting(run_id)

    @override
    async def waiting_runs(
        self,
        reason: str | None = None,
        due_before_ms: Millis | None = None,
        cancel_requested: bool | None = None,
    ) -> tuple[WaitingRow, ...]:
        with Poll(self._instruments, names.WAITING_RUNS) as seen:
            return seen.listed(await self._waiting.waiting_runs(reason, due_before_ms, cancel_requested))
