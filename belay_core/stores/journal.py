"""Journal: what happened to a run, in two streams that never mix (kernel 11 and 27)."""

from abc import abstractmethod
from typing import Protocol

from belay_core.ids import RunId
from belay_core.outcomes.journal import AppendOutcome
from belay_core.records.attempt import JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.workflow_run import JournalEntry


class Journal(Protocol):
    """Events and ownership facts of runs; defects raise ``JournalError``.

    Entries outlive the run they are about, and one that is made anew under its id goes on counting.
    """

    @abstractmethod
    async def append(self, run_id: RunId, owner: OwnerId, kind: str, facts: JsonValue) -> AppendOutcome:
        """Add an event of the caller's own to the run it owns.

        ``kind`` is at most 512 bytes of UTF-8 and none of belay's own (``admission.journal``); ``facts`` at most
        1 MiB when encoded. Anything else raises ``invalid_run``.
        """

    @abstractmethod
    async def read(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        """Events of a run from behind this entry on, in their order; ``limit`` is 1 to 1,000.

        Ownership facts are never among them, but the two streams count together: numbers may be missing.
        """

    @abstractmethod
    async def ownership(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        """The same for who claimed, owned and let go of it: kinds ``ownership.*``."""
