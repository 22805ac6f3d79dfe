"""The answers of Changes (specs, run store 10)."""

from dataclasses import dataclass
from typing import TypeAlias

from belay_core.outcomes.runs import NotFound
from belay_core.records.changes import CancellationView, FeedPosition, RunChange, RunsPage


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """Changes in their order, at most one a run; go on from ``next_position``, at once where there ``has_more``."""

    source: str
    """The name of the database that answers."""
    changes: tuple[RunChange, ...]
    next_position: FeedPosition
    has_more: bool


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """Another database, or an older state of it, than the one asked about: what was read of it has to be rebuilt.

    ``source`` is the name of the one that answers.
    """

    source: str


ChangesSinceOutcome: TypeAlias = ChangesPage | SourceChanged
"""The answers of ``Changes.changes_since``."""
ListOutcome: TypeAlias = RunsPage | SourceChanged
"""The answers of ``Changes.list_runs``."""
CancellationOutcome: TypeAlias = CancellationView | NotFound
"""The answers of ``Changes.cancellation``."""
