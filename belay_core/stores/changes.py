"""Changes: following all runs of a database (specs, run store 10)."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol, TypeAlias, cast

from belay_core.clock import Millis
from belay_core.errors import ChangesError, StoreError
from belay_core.ids import RunId
from belay_core.records.changes import (
    CancellationView,
    FeedHead,
    FeedPosition,
    RunChange,
    RunFilters,
    RunsPage,
    SnapshotBatch,
)
from belay_core.records.run import RunStatus
from belay_core.stores.checks import copied
from belay_core.stores.run_contract import NotFound, RunInput
from belay_core.values import json
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_durable, is_name


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """Changes in order, at most one a run; continue from ``next_position``, immediately if there ``has_more``."""

    source: str
    """The name of the database that answers."""
    changes: tuple[RunChange, ...]
    next_position: FeedPosition
    has_more: bool


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """Another database, or an older state of it, than the one asked for: what was derived from it has to be rebuilt.

    ``source`` is the name of the database that answers.
    """

    source: str


ChangesSinceOutcome: TypeAlias = ChangesPage | SourceChanged
"""The answers of ``Changes.changes_since``."""
ListOutcome: TypeAlias = RunsPage | SourceChanged
"""The answers of ``Changes.list_runs``."""
CancellationOutcome: TypeAlias = CancellationView | NotFound
"""The answers of ``Changes.cancellation``."""


class Changes(Protocol):
    """The change feed, listings and cancellations; defects raise ``ChangesError``.

    A change is a write with an entry in the journal of a run: all but heartbeats and writes of attempts.
    """

    @abstractmethod
    async def current(self) -> FeedHead:
        """The database's name and the position of the newest change that can be read."""

    @abstractmethod
    async def changes_since(self, source: str, position: FeedPosition, limit: int = 100) -> ChangesSinceOutcome:
        """Changes after this position, in order, each run once with its latest; ``limit`` is 1 to 1,000.

        No change is ever missed, also of writers that commit out of order. ``SourceChanged`` if the source is
        another one, or ends before the position: it was restored from a backup.
        """

    @abstractmethod
    async def snapshot(self, run_ids: Sequence[RunId]) -> SnapshotBatch:
        """The state of up to 200 runs at one position, in the order asked for, with that position."""

    @abstractmethod
    async def list_runs(
        self, filters: RunFilters | None = None, limit: int = 100, cursor: str | None = None
    ) -> ListOutcome:
        """A page of runs, the oldest first; ``limit`` is 1 to 200.

        A cursor belongs to the filters it was made for: with others it raises ``invalid_run``, and if another source
        made it the outcome is ``SourceChanged``.
        """

    @abstractmethod
    async def cancellation(self, run_id: RunId) -> CancellationOutcome:
        """Whether a cancel was requested, whether the owner acknowledged it, and whether the run has ended."""


MOST_CHANGES: Final = 1_000
"""Changes of one page."""
MOST_SNAPSHOTS: Final = 200
"""Runs of one snapshot batch."""
MOST_RUNS: Final = 200
"""Runs of one page of a listing."""
_SOURCE: Final = re.compile(r"[0-9a-f]{32}")
_POSITION: Final = re.compile(r"[0-9a-f]{16}(\.(?:[0-9a-f]{2})+\.[0-9a-f]{14})?")
_CURSOR: Final = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{16})\.([0-9a-f]{14})\.((?:[0-9a-f]{2})+)")
_STATUSES: Final = {status.value: status for status in RunStatus}


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last run of a page, and the source and filters of the page."""

    source: str
    """The name of the database."""
    filters: str
    """A digest of the page's filters."""
    created_at_ms: Millis
    run_key: str
    """The run's id, or its digest if it is long."""

    def __str__(self) -> str:
        return f"{self.source}.{self.filters}.{self.created_at_ms:014x}.{self.run_key.encode().hex()}"


def digest_of(filters: RunFilters) -> str:
    """A digest of the filters, to compare those of cursors."""
    spelled = json.canonical([filters.status, filters.workflow, filters.parent_run_id])
    return sha256(spelled.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ChangesInput(RunInput):
    """Checks of one Changes call."""

    error: type[StoreError] = ChangesError

    def source(self, value: object) -> str:
        """A database's name."""
        if type(value) is not str or _SOURCE.fullmatch(value) is None:
            self.refuse("source", "must be the name of a source")
        return value

    def position(self, value: object) -> FeedPosition:
        """A position that a feed has given."""
        if type(value) is not str or _POSITION.fullmatch(value) is None or not _is_text(value.split(".")[1:2]):
            self.refuse("position", "must be a position of a feed")
        return FeedPosition(value)

    def limit(self, value: object, most: int) -> int:
        """The number of items to read at most."""
        if not is_safe(value) or not 1 <= value <= most:
            self.refuse("limit", f"must be an integer from 1 to {most}")
        return value

    def run_ids(self, value: object) -> tuple[RunId, ...]:
        """The runs of a batch, copied."""
        if type(value) not in (list, tuple):
            self.refuse("run_ids", "must be a list of run ids")
        ids = tuple(cast("list[object]", value))
        if len(ids) > MOST_SNAPSHOTS:
            self.refuse("run_ids", f"must be at most {MOST_SNAPSHOTS}")
        return tuple(self.run_id(each) for each in ids)

    def filters(self, value: object) -> RunFilters:
        """The filters of a listing, copied."""
        if value is None:
            return RunFilters()
        names = ("status", "workflow", "parent_run_id")
        copy = copied(value, kinds=(RunFilters,), required=(), optional=names)
        if copy is None:
            self.refuse("filters", "must be an inert data record")
        status, workflow, parent = (copy.get(name) for name in names)
        if status is not None and (type(status) not in (str, RunStatus) or status not in _STATUSES):
            self.refuse("filters.status", "violates the durable contract")
        if workflow is not None and not is_name(workflow):
            self.refuse("filters.workflow", "must be well-formed text without NUL, 1 to 512 bytes of UTF-8")
        if parent is not None and not is_durable(parent):
            self.refuse("filters.parent_run_id", "must be well-formed durable text")
        parent_run_id = None if parent is None else RunId(parent)
        return RunFilters(None if status is None else _STATUSES[status], workflow, parent_run_id)

    def cursor(self, value: object, filters: RunFilters) -> Cursor | None:
        """Where a page begins; a cursor of other filters is refused."""
        if value is None:
            return None
        parts = _CURSOR.fullmatch(value) if type(value) is str else None
        if parts is None or not _is_text([parts[4]]):
            self.refuse("cursor", "must be a cursor of a page of runs")
        if parts[2] != digest_of(filters):
            self.refuse("cursor", "belongs to other filters")
        return Cursor(parts[1], parts[2], int(parts[3], 16), bytes.fromhex(parts[4]).decode())


def _is_text(spelled: list[str]) -> bool:
    try:
        return all("\0" not in bytes.fromhex(each).decode() for each in spelled)
    except UnicodeDecodeError:
        return False
