"""Retention: letting go of runs that are over."""

from abc import abstractmethod
from typing import Protocol

from belay_core.ids import RunId
from belay_core.outcomes.retention import DeleteOutcome


class Retention(Protocol):
    """Deletion of runs; defects raise ``RetentionError``."""

    @abstractmethod
    async def delete(self, run_id: RunId) -> DeleteOutcome:
        """Delete a run that is over and has no child that is not, with its payloads, attempts and approvals.

        Its journal stays and says so. Children that are over lose their parent. The id and the idempotency key are
        free again; a run made under the id is a new one, and goes on counting entries.
        """
