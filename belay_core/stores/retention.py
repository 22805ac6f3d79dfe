"""Retention: letting go of runs that are over."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.run import RunStatus
from belay_core.stores.run_contract import NotFound


@dataclass(frozen=True, slots=True)
class Deleted:
    """The run is gone, since this moment; its journal stays."""

    deleted_at_ms: Millis


@dataclass(frozen=True, slots=True)
class StillLive:
    """The run is not over; nothing was deleted."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class ChildrenLive:
    """So many of its child runs are not over; nothing was deleted."""

    count: int
    """How many."""


DeleteOutcome: TypeAlias = Deleted | StillLive | ChildrenLive | NotFound
"""The answers of ``Retention.delete``."""


class Retention(Protocol):
    """Deletion of runs; defects raise ``RetentionError``."""

    @abstractmethod
    async def delete(self, run_id: RunId) -> DeleteOutcome:
        """Delete a run that is over and has no child that is not, with its payloads, attempts and approvals.

        Its journal stays and says so. Children that are over lose their parent. The id and the idempotency key are
        free again; a run made under the id is a new one, and goes on counting entries.
        """
