"""The wait of a run, as its owner declares it and as it is read (specs, run store 9)."""

from dataclasses import dataclass

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.attempt import ABSENT, Absent, JsonValue
from belay_core.records.run import RunStatus


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait that an owner declares before it releases a run.

    ``reason`` is an open vocabulary of up to 512 bytes (``timer event approval quota released quarantine`` are the
    common words), ``wake_at_ms`` the time at which it ends by itself, ``token`` the object of the wait, ``request``
    the question to a person. What is left out is cleared.
    """

    reason: str
    wake_at_ms: Millis | None = None
    token: str | None = None
    request: "JsonValue | Absent" = ABSENT


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A run that waits; times in milliseconds. It is still running if it was parked and not suspended yet."""

    run_id: RunId
    status: RunStatus
    reason: str
    """What it waits for, as in ``Wait``."""
    wake_at_ms: Millis | None
    token: str | None
    """The object of the wait."""
    request: "JsonValue | Absent"
    cancel_requested_at_ms: Millis | None
