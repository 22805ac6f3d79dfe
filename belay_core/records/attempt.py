"""The attempt of the contract (specs, run store 7)."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.limits import DEFAULT_CHECKPOINT_BYTES

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A JSON value."""


class Absent(Enum):
    """The type of ``ABSENT``: no value at all, where ``None`` would mean JSON null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""No value at all."""


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One execution of one step of one run."""

    run_id: RunId
    step_key_digest: str
    """Identifies the step in its run: for the engine SHA-256 over its key, in lower-case hex."""
    attempt: int
    """The number of the execution."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of one step: its state, stamps in milliseconds, and JSON values."""

    run_id: RunId
    step_key_digest: str
    """Identifies the step in its run: for the engine SHA-256 over its key, in lower-case hex."""
    attempt: int
    """The number of the execution."""
    state: str
    """One of the states in progress of ``AttemptStoreOptions``; any other text is an end."""
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
    """Identifies the step in its run."""
    attempt: int
    """The number of the execution."""
    state: str
    """Its end; none of the states in progress."""
    finished_at_ms: Millis
    error: "JsonValue | Absent" = ABSENT
    outcome: "JsonValue | Absent" = ABSENT
    meta: "JsonValue | Absent" = ABSENT


@dataclass(frozen=True, slots=True)
class AttemptPatch:
    """Values to store with an attempt, whatever its state; what is absent keeps its stored value."""

    checkpoint: "JsonValue | Absent" = ABSENT
    error: "JsonValue | Absent" = ABSENT
    outcome: "JsonValue | Absent" = ABSENT
    meta: "JsonValue | Absent" = ABSENT


@dataclass(frozen=True, slots=True)
class AttemptStoreOptions:
    """How an attempt store treats attempts.

    ``in_progress_states`` are those an attempt can still change in; ``max_checkpoint_bytes`` bounds a checkpoint's
    encoded size; ``put_mode`` says whether putting again replaces an attempt in progress or is compared with it.
    """

    in_progress_states: tuple[str, ...] = ("running",)
    max_checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES
    put_mode: Literal["insert", "upsert"] = "insert"
