"""WaitingStore: what runs wait for (specs, run store 9)."""

from abc import abstractmethod
from typing import Protocol

from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.waiting import ParkOutcome, WakeOutcome
from belay_core.records.owner import OwnerId
from belay_core.records.waiting import Wait, WaitingRow


class WaitingStore(Protocol):
    """Waits of runs, whoever parked them; defects raise ``WaitingStoreError``."""

    @abstractmethod
    async def park(self, run_id: RunId, waiting: Wait, owner: OwnerId) -> ParkOutcome:
        """Store what the owned run waits for; a missing run and another owner are both ``NotFound``.

        The owner keeps the run: it suspends it by ``transition_owned``, in the same write or the next. Between the
        two the run is running and waiting.
        """

    @abstractmethod
    async def wake(self, run_id: RunId) -> WakeOutcome:
        """Clear the wait, whoever asks; a run of a workflow may be taken by a worker from then on.

        A run that is over waits for nothing.
        """

    @abstractmethod
    async def waiting(self, run_id: RunId) -> WaitingRow | None:
        """What the run waits for; None where it does not, is over, or is unknown."""

    @abstractmethod
    async def waiting_runs(
        self,
        reason: str | None = None,
        due_before_ms: Millis | None = None,
        cancel_requested: bool | None = None,  # noqa: FBT001  the contract's signature
    ) -> tuple[WaitingRow, ...]:
        """Runs that wait and are not over, by their wake moment and then their id; those without a moment are last.

        ``reason`` is compared whole; ``due_before_ms`` leaves those whose moment is there and not later;
        ``cancel_requested`` those that were asked to stop, or were not.
        """
