"""AttemptStore: one row per attempt of a step, every write fenced by the run's owner (specs, run store 7)."""

from abc import abstractmethod
from typing import Protocol

from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.attempts import FinishResult, HeartbeatResult, PatchResult, PutResult
from belay_core.records.attempt import (
    ABSENT,
    Absent,
    Attempt,
    AttemptId,
    AttemptPatch,
    AttemptStoreOptions,
    FinishAttempt,
    JsonValue,
)
from belay_core.records.owner import OwnerId


class AttemptStore(Protocol):
    """Attempts; defects raise ``AttemptStoreError``."""

    @abstractmethod
    def make_with(self, options: AttemptStoreOptions) -> "AttemptStore":
        """The same attempts under other options; raises ``invalid_attempt`` where one breaks its rule (7)."""

    @abstractmethod
    async def put(self, attempt: Attempt, owner: OwnerId) -> PutResult:
        """Store an attempt (7.1); one that has ended never changes."""

    @abstractmethod
    async def get(self, attempt_id: AttemptId | Attempt) -> Attempt | None:
        """The attempt as stored, or None (7.2)."""

    @abstractmethod
    async def finish(self, finish: FinishAttempt, owner: OwnerId) -> FinishResult:
        """Give an attempt in progress its end; the first end stands (7.4)."""

    @abstractmethod
    async def heartbeat(
        self,
        run_id: RunId,
        step_key_digest: str,
        attempt: int,
        owner: OwnerId,
        now_ms: Millis,
        checkpoint: "JsonValue | Absent" = ABSENT,
    ) -> HeartbeatResult:
        """Store a sign of life of an attempt in progress, and a checkpoint where one is given (7.3)."""

    @abstractmethod
    async def patch(self, attempt_id: AttemptId | Attempt, patch: AttemptPatch, owner: OwnerId) -> PatchResult:
        """Store values beside an attempt, whatever its state, while its run is owned (7.5)."""
