"""The answers of Retention."""

from dataclasses import dataclass
from typing import TypeAlias

from belay_core.moments import Millis
from belay_core.outcomes.runs import NotFound
from belay_core.records.run import RunStatus


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
