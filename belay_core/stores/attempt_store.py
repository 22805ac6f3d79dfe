"""AttemptStore: one row per attempt of a step, every write fenced by the run's owner (specs, run store 7)."""

from abc import abstractmethod
from typing import Protocol

from belay_core.outcomes.attempts import FinishResult, PutResult
from belay_core.records.attempt import Attempt, AttemptId, FinishAttempt
from belay_core.records.owner import OwnerId


class AttemptStore(Protocol):
    """Attempts; defects raise ``AttemptStoreError``."""

    @abstractmethod
    async def put(self, attempt: Attempt, owner: OwnerId) -> PutResult:
        """Store an attempt (7.1); one that has ended never changes."""

    @abstractmethod
    async def get(self, attempt_id: AttemptId | Attempt) -> Attempt | None:
        """The attempt as stored, or None (7.2)."""

    @abstractmethod
    async def finish(self, finish: FinishAttempt, owner: OwnerId) -> FinishResult:
        """Give an attempt in progress its end; the first end stands (7.4)."""
