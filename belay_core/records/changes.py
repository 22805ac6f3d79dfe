"""What followers of a store read: changes, runs as they stand, and where in the feed that was (specs, run store 10)."""

from dataclasses import dataclass
from typing import Final, NewType, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunRow, RunStatus
from belay_core.records.waiting import WaitingRow
from belay_core.records.workflow_run import RunSummary

FeedPosition = NewType("FeedPosition", str)
"""A place in the feed of one source: opaque, to be kept and handed back; a later place is a greater text."""

START: Final = FeedPosition("0" * 16)
"""Before the first change of any source."""


@dataclass(frozen=True, slots=True)
class FeedHead:
    """The database's own name, and the place of the newest change that can be read."""

    source: str
    """The name of the database."""
    position: FeedPosition


@dataclass(frozen=True, slots=True)
class RunChange:
    """The latest change of a run; those before it are not told.

    ``entry`` counts the changes of the run, also over a deletion; ``kind`` says what the latest was; ``deleted``
    that the run is gone.
    """

    run_id: RunId
    position: FeedPosition
    entry: int
    at_ms: Millis
    kind: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An owner's word that it saw the request to cancel."""

    owner: OwnerId
    observed_at_ms: Millis


@dataclass(frozen=True, slots=True)
class CancellationView:
    """Three facts that do not follow from one another: asked, seen, over."""

    run_id: RunId
    status: RunStatus
    requested_at_ms: Millis | None
    acknowledgement: Acknowledgement | None
    terminal: bool
    """Whether the run is over."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with what stands beside it; of two views of a run the one with the greater ``entry`` is newer."""

    run: RunRow
    entry: int
    waiting: WaitingRow | None
    cancellation: CancellationView


@dataclass(frozen=True, slots=True)
class MissingRun:
    """There never was a run with this id."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class DeletedRun:
    """There was a run with this id, deleted by its ``entry``-th change."""

    run_id: RunId
    entry: int
    deleted_at_ms: Millis


RunSight: TypeAlias = RunView | MissingRun | DeletedRun
"""What a snapshot has of a run."""


@dataclass(frozen=True, slots=True)
class SnapshotBatch:
    """Runs as they stood at one moment, in the order asked for.

    Every change up to ``position`` is in them; later ones may be too.
    """

    source: str
    """The name of the database."""
    position: FeedPosition
    runs: tuple[RunSight, ...]


@dataclass(frozen=True, slots=True)
class RunFilters:
    """Which runs a listing is about; None admits all."""

    status: RunStatus | None = None
    workflow: str | None = None
    """The name of a workflow."""
    parent_run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class RunsPage:
    """Runs by the moment of their creation and then their id; ``cursor`` asks for the next ones, None at the end."""

    source: str
    """The name of the database."""
    runs: tuple[RunSummary, ...]
    cursor: str | None
