"""WaitingStore: the waits of runs (specs, run store 9)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from belay_core import limits
from belay_core.clock import Millis
from belay_core.errors import StoreError, WaitingStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import ABSENT
from belay_core.records.owner import OwnerId
from belay_core.records.waiting import Wait, WaitingRow
from belay_core.stores.checks import copied
from belay_core.stores.run_contract import NotFound, RunInput
from belay_core.values import json
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_durable, is_name


@dataclass(frozen=True, slots=True)
class Parked:
    """The wait is stored; the run still has its owner."""

    row: WaitingRow


@dataclass(frozen=True, slots=True)
class Woken:
    """The wait is cleared; ``previous`` is what the run waited for."""

    previous: WaitingRow


@dataclass(frozen=True, slots=True)
class NotWaiting:
    """The run waits for nothing; nothing was written."""


ParkOutcome: TypeAlias = Parked | NotFound
"""The answers of ``WaitingStore.park``."""
WakeOutcome: TypeAlias = Woken | NotWaiting | NotFound
"""The answers of ``WaitingStore.wake``."""


class WaitingStore(Protocol):
    """Waits of runs, of the contract's owners and of the engine; defects raise ``WaitingStoreError``."""

    @abstractmethod
    async def park(self, run_id: RunId, waiting: Wait, owner: OwnerId) -> ParkOutcome:
        """Store what the owned run waits for; a missing run and another owner are both ``NotFound``.

        The owner keeps the run: it suspends it by ``transition_owned``, in the same write or the next. Between the
        two the run is running and waiting.
        """

    @abstractmethod
    async def wake(self, run_id: RunId) -> WakeOutcome:
        """Clear the wait, for any caller; a run of a workflow may be acquired by a worker from then on.

        A run that has ended waits for nothing.
        """

    @abstractmethod
    async def waiting(self, run_id: RunId) -> WaitingRow | None:
        """What the run waits for; None if it does not, has ended, or is unknown."""

    @abstractmethod
    async def waiting_runs(
        self,
        reason: str | None = None,
        due_before_ms: Millis | None = None,
        cancel_requested: bool | None = None,  # noqa: FBT001  the contract's signature
    ) -> tuple[WaitingRow, ...]:
        """Runs that wait and have not ended, by wake time and then id; those without a wake time are last.

        ``reason`` is compared exactly; ``due_before_ms`` selects those with a wake time not later than it;
        ``cancel_requested`` those with a cancel request, or without one.
        """


@dataclass(frozen=True, slots=True)
class WaitingInput(RunInput):
    """Checks of one WaitingStore call."""

    error: type[StoreError] = WaitingStoreError

    def wait(self, value: object) -> Wait:
        """A wait, copied; its JSON value is checked but not copied."""
        copy = copied(value, kinds=(Wait,), required=("reason",), optional=("wake_at_ms", "token", "request"))
        if copy is None:
            self.refuse("waiting", "must be an inert data record")
        wake, token, request = copy.get("wake_at_ms"), copy.get("token"), copy.get("request", ABSENT)
        reason = self.reason(copy["reason"], "waiting.reason")
        if wake is not None:
            self.moment(wake, "waiting.wake_at_ms")
        if token is not None and not is_durable(token):
            self.refuse("waiting.token", "must be well-formed durable text")
        if request is not ABSENT:
            complaint = json.complaint(request, max_bytes=limits.MAXIMUM_VALUE_BYTES)
            if complaint is not None:
                self.refuse("waiting.request", complaint)
        return Wait(reason, wake, token, request)

    def reason(self, value: object, field: str = "reason") -> str:
        """A reason; it has to fit into an index, by which runs are found."""
        if not is_name(value):
            self.refuse(field, "must be well-formed text without NUL, 1 to 512 bytes of UTF-8")
        return value

    def filters(self, reason: object, due_before_ms: object, cancel_requested: object) -> None:
        """The filters of ``waiting_runs``."""
        if reason is not None:
            self.reason(reason)
        if due_before_ms is not None and not is_safe(due_before_ms):
            self.refuse("due_before_ms", "must be a non-negative safe integer")
        if cancel_requested is not None and type(cancel_requested) is not bool:
            self.refuse("cancel_requested", "must be a boolean")
