"""Retention: deletion of runs that have ended."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.run import RunStatus
from belay_core.stores.run_contract import NotFound


@dataclass(frozen=True, slots=True)
class Deleted:
    """The run was deleted at this time; its journal is kept."""

    deleted_at_ms: Millis


@dataclass(frozen=True, slots=True)
class StillLive:
    """The run has not ended; nothing was deleted."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class ChildrenLive:
    """Some of its child runs have not ended; nothing was deleted."""

    count: int
    """Their number."""


DeleteOutcome: TypeAlias = Deleted | StillLive | ChildrenLive | NotFound
"""The answers of ``Retention.delete``."""


class Retention(Protocol):
    """Deletion of runs; defects raise ``RetentionError``."""

    @abstractmethod
    async def delete(self, run_id: RunId) -> DeleteOutcome:
        """Delete a run that has ended, as all its children have, with its payloads, attempts and approvals.

        Its journal is kept and records the deletion. Its children lose their parent. The id and the idempotency key
        are free again; a run created under the id is a new one, and continues the numbers of its entries.
        """
