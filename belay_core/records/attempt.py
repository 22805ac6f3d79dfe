"""The attempt as the contract sees it (specs, run store 7)."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from belay_core.ids import RunId
from belay_core.moments import Millis

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A value every JSON reader understands."""


class Absent(Enum):
    """The type of ``ABSENT``: no value at all, where ``None`` would mean JSON null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One execution of one step of one run."""

    run_id: RunId
    step_key_digest: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of one step: its state, stamps in milliseconds, and JSON values."""

    run_id: RunId
    step_key_digest: str
    attempt: int
    state: str
    started_at_ms: Millis
    meta: JsonValue
    finished_at_ms: Millis | None = None
    heartbeat_at_ms: Millis | None = None
    checkpoint: "JsonValue | Absent" = ABSENT
    error: "JsonValue | Absent" = ABSENT
    outcome: "JsonValue | Absent" = ABSENT


@dataclass(frozen=True, slots=True)
class FinishAttempt:
    """How an attempt ended; what is absent keeps its stored value."""

    run_id: RunId
    step_key_digest: str
    attempt: int
    state: str
    finished_at_ms: Millis
    error: "JsonValue | Absent" = ABSENT
    outcome: "JsonValue | Absent" = ABSENT
    meta: "JsonValue | Absent" = ABSENT


@dataclass(frozen=True, slots=True)
class AttemptPatch:
    """Values to store beside an attempt, whatever its state; what is absent keeps its stored value."""

    checkpoint: "JsonValue | Absent" = ABSENT
    error: "JsonValue | Absent" = ABSENT
    outcome: "JsonValue | Absent" = ABSENT
    meta: "JsonValue | Absent" = ABSENT
