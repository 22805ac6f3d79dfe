"""The answers of WaitingStore (specs, run store 9)."""

from dataclasses import dataclass
from typing import TypeAlias

from belay_core.outcomes.runs import NotFound
from belay_core.records.waiting import WaitingRow


@dataclass(frozen=True, slots=True)
class Parked:
    """What the run waits for is stored; its owner still has it."""

    row: WaitingRow


@dataclass(frozen=True, slots=True)
class Woken:
    """The run waits no more; ``previous`` is what it waited for."""

    previous: WaitingRow


@dataclass(frozen=True, slots=True)
class NotWaiting:
    """The run waits for nothing; nothing was written."""


ParkOutcome: TypeAlias = Parked | NotFound
"""The answers of ``WaitingStore.park``."""
WakeOutcome: TypeAlias = Woken | NotWaiting | NotFound
"""The answers of ``WaitingStore.wake``."""
