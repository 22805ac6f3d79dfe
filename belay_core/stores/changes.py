"""Changes: following all runs of a database (specs, run store 10)."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from belay_core.ids import RunId
from belay_core.outcomes.changes import CancellationOutcome, ChangesSinceOutcome, ListOutcome
from belay_core.records.changes import FeedHead, FeedPosition, RunFilters, SnapshotBatch


class Changes(Protocol):
    """The change feed and what goes with it; defects raise ``ChangesError``.

    A change is whatever left an entry in the journal of a run: all but heartbeats and what is done to its steps.
    """

    @abstractmethod
    async def current(self) -> FeedHead:
        """The database's name and the place of the newest change that can be read."""

    @abstractmethod
    async def changes_since(self, source: str, position: FeedPosition, limit: int = 100) -> ChangesSinceOutcome:
        """What changed behind this position, in order, each run once and at its latest; ``limit`` is 1 to 1,000.

        No change is ever missed, also of writers that commit out of turn. ``SourceChanged`` where the source is
        another one, or has nothing that far: it was restored from a backup.
        """

    @abstractmethod
    async def snapshot(self, run_ids: Sequence[RunId]) -> SnapshotBatch:
        """Up to 200 runs as they stand at one moment, in the order asked for, with the position of that moment."""

    @abstractmethod
    async def list_runs(
        self, filters: RunFilters | None = None, limit: int = 100, cursor: str | None = None
    ) -> ListOutcome:
        """A page of runs, the oldest first; ``limit`` is 1 to 200.

        A cursor goes with the filters it was made for: with others it raises ``invalid_run``, and where another
        source made it the answer is ``SourceChanged``.
        """

    @abstractmethod
    async def cancellation(self, run_id: RunId) -> CancellationOutcome:
        """Whether the run was asked to stop, whether its owner saw it, and whether it is over."""
