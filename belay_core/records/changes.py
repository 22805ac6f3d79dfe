"""Records of the change feed: changes, views of runs, and positions (specs, run store 10)."""

from dataclasses import dataclass
from typing import Final, NewType, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunRow, RunStatus
from belay_core.records.waiting import WaitingRow
from belay_core.records.workflow_run import RunSummary

FeedPosition = NewType("FeedPosition", str)
"""A position in the feed of one source: opaque text to be passed back; a later position is a greater text."""

START: Final = FeedPosition("0" * 16)
"""The position before the first change of any source."""


@dataclass(frozen=True, slots=True)
class FeedHead:
    """The name of the database, and the position of the newest change that can be read."""

    source: str
    """The name of the database."""
    position: FeedPosition


@dataclass(frozen=True, slots=True)
class RunChange:
    """The latest change of a run; earlier ones are left out.

    ``entry`` counts the changes of the run, also over a deletion; ``kind`` is that of the latest one; ``deleted``
    is true when the run was deleted.
    """

    run_id: RunId
    position: FeedPosition
    entry: int
    at_ms: Millis
    kind: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An owner's acknowledgement of a cancel request."""

    owner: OwnerId
    observed_at_ms: Millis


@dataclass(frozen=True, slots=True)
class CancellationView:
    """Three independent facts: requested, acknowledged, ended."""

    run_id: RunId
    status: RunStatus
    requested_at_ms: Millis | None
    acknowledgement: Acknowledgement | None
    terminal: bool
    """Whether the run has ended."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with its wait and cancellation; of two views of a run the one with the greater ``entry`` is newer."""

    run: RunRow
    entry: int
    waiting: WaitingRow | None
    cancellation: CancellationView


@dataclass(frozen=True, slots=True)
class MissingRun:
    """No run with this id ever existed."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class DeletedRun:
    """The run with this id was deleted by its ``entry``-th change."""

    run_id: RunId
    entry: int
    deleted_at_ms: Millis


SnapshotEntry: TypeAlias = RunView | MissingRun | DeletedRun
"""What a snapshot holds for one id."""


@dataclass(frozen=True, slots=True)
class SnapshotBatch:
    """The state of runs at one position, in the order asked for.

    It includes every change up to ``position``, and may include later ones.
    """

    source: str
    """The name of the database."""
    position: FeedPosition
    runs: tuple[SnapshotEntry, ...]


@dataclass(frozen=True, slots=True)
class RunFilters:
    """Filters of a listing; None means no filter."""

    status: RunStatus | None = None
    workflow: str | None = None
    """The name of a workflow."""
    parent_run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class RunsPage:
    """Runs by creation time and then id; ``cursor`` asks for the next page, None at the end."""

    source: str
    """The name of the database."""
    runs: tuple[RunSummary, ...]
    cursor: str | None
