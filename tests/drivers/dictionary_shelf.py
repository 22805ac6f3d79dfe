"""What the dictionary driver keeps."""

from dataclasses import dataclass, field, replace
from typing import Any

from belay_core import limits
from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.attempt import Attempt
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunRow, RunStatus
from belay_core.stores.run_contract import AlreadyClaimed, ClaimLoss, HeartbeatFresh, NotFound, SnapshotChanged


@dataclass
class Shelf:
    """One of these is one database; whoever opens it twice has what two processes have."""

    runs: dict[RunId, RunRow] = field(default_factory=dict)
    attempts: dict[tuple[RunId, str, int], Attempt] = field(default_factory=dict)
    acknowledged: dict[RunId, tuple[OwnerId, Millis]] = field(default_factory=dict)

    def change(self, row: RunRow, **columns: Any) -> None:
        """Put a changed row in the place of one that was just read."""
        self.runs[row.run_id] = replace(row, **columns)

    def owner_of(self, run_id: RunId) -> OwnerId | None:
        """Who may write to a run; None also where there is no such run."""
        row = self.runs.get(run_id)
        return None if row is None else row.owner


def is_fresh(row: RunRow, now_ms: Millis) -> bool:
    """Whether the owner of a running run was heard of lately."""
    return row.heartbeat_at_ms is not None and row.heartbeat_at_ms >= now_ms - limits.HEARTBEAT_STALE_AFTER


def loss(row: RunRow | None, now_ms: Millis) -> ClaimLoss:
    """Why a claim fails, in the order in which reasons count."""
    if row is None:
        return NotFound()
    if row.claim is not None:
        return AlreadyClaimed()
    if row.status is RunStatus.RUNNING and is_fresh(row, now_ms):
        return HeartbeatFresh()
    return SnapshotChanged()
