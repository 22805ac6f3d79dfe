"""What Journal lets in, and which kinds of entries are belay's own."""

from dataclasses import dataclass
from typing import Final

from belay_core import limits
from belay_core.admission import json
from belay_core.admission.numbers import is_safe
from belay_core.admission.runs import RunInput
from belay_core.admission.text import is_name
from belay_core.errors import JournalError, StoreError
from belay_core.records.attempt import JsonValue

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
"""Kinds that belay writes; later ones will begin with ``belay.``."""
RESERVED_PREFIXES: Final = (OWNERSHIP_PREFIX, "belay.")
MOST_ENTRIES: Final = 1_000
"""Entries of one reading."""


@dataclass(frozen=True, slots=True)
class JournalInput(RunInput):
    """Checks of one Journal call."""

    error: type[StoreError] = JournalError

    def kind(self, value: object) -> str:
        """A kind that is not belay's own."""
        if not is_name(value):
            self.refuse("kind", "must be well-formed text without NUL, 1 to 512 bytes of UTF-8")
        # Databases tell the streams apart by a pattern, and some of them match it whatever the case.
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
        """Which part of a stream is read."""
        if not is_safe(after):
            self.refuse("after", "must be a non-negative safe integer")
        if not is_safe(limit) or not 1 <= limit <= MOST_ENTRIES:
            self.refuse("limit", f"must be an integer from 1 to {MOST_ENTRIES}")
        return after, limit
