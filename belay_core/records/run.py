"""The run of the contract (specs, run store 1, 2.5 and 6.2)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, TypeGuard

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId


class RunStatus(StrEnum):
    """The six states of a run; the last three never change."""

    PENDING = "pending"
    """It has had no owner yet."""
    RUNNING = "running"
    """It has an owner."""
    SUSPENDED = "suspended"
    """It waits, and has no owner."""
    COMPLETED = "completed"
    """It ended with a result."""
    FAILED = "failed"
    """It ended with an error."""
    CANCELLED = "cancelled"
    """It was cancelled."""


TerminalRunStatus: TypeAlias = Literal[RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]
"""The status of a run that has ended."""
TERMINAL: frozenset[RunStatus] = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
"""The statuses of runs that have ended."""


def is_terminal_run_status(status: RunStatus) -> TypeGuard[TerminalRunStatus]:
    """Whether a run in this status has ended."""
    return status in TERMINAL


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """What a caller read of a run; a claim is refused when it has changed since."""

    status: RunStatus
    owner: OwnerId | None = None
    heartbeat_at_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """Where a new run belongs; ``lineage_id`` and ``round_ordinal`` come together or not at all."""

    parent_run_id: RunId | None = None
    lineage_id: str | None = None
    round_ordinal: int | None = None


@dataclass(frozen=True, slots=True)
class TransitionGuard:
    """A further condition on a transition: whether cancellation has been requested."""

    cancel_requested: Literal["absent", "present"] | None = None
    """The condition; None for none."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run; times in milliseconds."""

    run_id: RunId
    status: RunStatus
    created_at_ms: Millis
    started_at_ms: Millis | None
    finished_at_ms: Millis | None
    owner: OwnerId | None
    heartbeat_at_ms: Millis | None
    claim: OwnerId | None
    claimed_at_ms: Millis | None
    parent_run_id: RunId | None
    cancel_requested_at_ms: Millis | None
    lineage_id: str | None
    """The lineage it is a round of; None for a run without one."""
    round_ordinal: int | None
    """Its position in the lineage, from 0."""
    state_json: str
    """The state, as the exact JSON text."""

    @property
    def snapshot(self) -> RunSnapshot:
        """The three fields a claim compares."""
        return RunSnapshot(self.status, self.owner, self.heartbeat_at_ms)
