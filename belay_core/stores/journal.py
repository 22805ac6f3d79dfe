"""Journal: the events of a run and its ownership facts, in two separate streams (kernel 11 and 27)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from belay_core import limits
from belay_core.errors import JournalError, StoreError
from belay_core.ids import RunId
from belay_core.records.attempt import JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.workflow_run import JournalEntry
from belay_core.stores.run_contract import FenceLost, NotFound, RunInput
from belay_core.values import json
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_name


@dataclass(frozen=True, slots=True)
class Appended:
    """The event is the ``entry``-th of its run."""

    entry: int


AppendOutcome: TypeAlias = Appended | FenceLost | NotFound
"""The answers of ``Journal.append``."""


class Journal(Protocol):
    """Events and ownership facts of runs; defects raise ``JournalError``.

    Entries outlive the run they are about, and a new run under the same id continues their numbers.
    """

    @abstractmethod
    async def append(self, run_id: RunId, owner: OwnerId, kind: str, facts: JsonValue) -> AppendOutcome:
        """Add an event of the caller's own to the run it owns.

        ``kind`` is at most 512 bytes of UTF-8 and none of belay's own (``admission.journal``); ``facts`` at most
        1 MiB when encoded. Anything else raises ``invalid_run``.
        """

    @abstractmethod
    async def read(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        """Events of a run after this entry, in order; ``limit`` is 1 to 1,000.

        Ownership facts are not among them, but the two streams share one counter: numbers may be missing.
        """

    @abstractmethod
    async def ownership(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        """The same for claims, ownership and release: kinds ``ownership.*``."""


OWNERSHIP_PREFIX: Final = "ownership."
"""The kinds of the stream of ownership facts begin so."""
RESERVED: Final = frozenset(
    {
        "asked",
        "cancel_acknowledged",
        "cancel_requested",
        "created",
        "decided",
        "deleted",
        "lapsed",
        "noted",
        "parent_deleted",
        "parked",
        "resolved",
        "settled",
        "state_changed",
        "suspended",
        "withdrawn",
        "woken",
    }
)
"""Kinds that belay writes; new ones will begin with ``belay.``."""
RESERVED_PREFIXES: Final = (OWNERSHIP_PREFIX, "belay.")
"""Kinds that begin so are belay's own."""
MOST_ENTRIES: Final = 1_000
"""Entries of one read."""


@dataclass(frozen=True, slots=True)
class JournalInput(RunInput):
    """Checks of one Journal call."""

    error: type[StoreError] = JournalError

    def kind(self, value: object) -> str:
        """A kind that is not belay's own."""
        if not is_name(value):
            self.refuse("kind", "must be well-formed text without NUL, 1 to 512 bytes of UTF-8")
        # Databases separate the streams by a pattern, and some of them match it case-insensitively.
        lower = value.lower()
        if lower in RESERVED or lower.startswith(RESERVED_PREFIXES):
            self.refuse("kind", "names a kind of entry that is belay's own")
        return value

    def facts(self, value: JsonValue) -> str:
        """Facts in their stored form."""
        complaint = json.complaint(value, max_bytes=limits.MAXIMUM_VALUE_BYTES)
        if complaint is not None:
            self.refuse("facts", complaint)
        return json.encode(value)

    def part(self, after: object, limit: object) -> tuple[int, int]:
        """The part of a stream to read: after which entry, and how many."""
        if not is_safe(after):
            self.refuse("after", "must be a non-negative safe integer")
        if not is_safe(limit) or not 1 <= limit <= MOST_ENTRIES:
            self.refuse("limit", f"must be an integer from 1 to {MOST_ENTRIES}")
        return after, limit
