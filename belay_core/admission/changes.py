"""What Changes lets in (specs, run store 10)."""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, cast

from belay_core.admission import json
from belay_core.admission.numbers import is_safe
from belay_core.admission.records import copied
from belay_core.admission.runs import RunInput
from belay_core.admission.text import is_durable, is_name
from belay_core.errors import ChangesError, StoreError
from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.records.changes import FeedPosition, RunFilters
from belay_core.records.run import RunStatus

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
    """The last run of a page: whose page that was, and where the next one begins."""

    source: str
    filters: str
    created_at_ms: Millis
    run_key: str

    def __str__(self) -> str:
        return f"{self.source}.{self.filters}.{self.created_at_ms:014x}.{self.run_key.encode().hex()}"


def digest_of(filters: RunFilters) -> str:
    """What tells the filters of one cursor from those of another."""
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
        """A place that a feed has given."""
        if type(value) is not str or _POSITION.fullmatch(value) is None or not _is_text(value.split(".")[1:2]):
            self.refuse("position", "must be a position of a feed")
        return FeedPosition(value)

    def limit(self, value: object, most: int) -> int:
        """How much is read at most."""
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
        """Which runs a listing is about, copied."""
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
        """Where a page begins; what was made for other filters is refused."""
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
