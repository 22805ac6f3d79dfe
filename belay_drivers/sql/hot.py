"""What happens most beside the writes that share a commit, each sent straight."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from belay_core.commands import Acquire, Renew
from belay_core.moments import Millis
from belay_drivers.sql.database import Sent
from belay_drivers.sql.rows import Columns


@dataclass(frozen=True, slots=True)
class Acquisition:
    """One call of ``acquire``: what is asked for, when, and what the journals will say."""

    command: Acquire
    now_ms: Millis
    stale_before: Millis
    """An owner whose last sign of life is older is gone."""
    facts: str


class HotPaths(Protocol):
    """A database's own way to do them; each answers as the general form of the same command, and is held equal to it.

    Where no reply came, no value is known.
    """

    @abstractmethod
    async def renew(self, command: Renew, now_ms: Millis) -> Sent[Sequence[Columns]]:
        """Renew leases: ``place``, ``ready_at`` and ``cancel_requested_at`` of each one that holds."""

    @abstractmethod
    async def records(self, keys: Sequence[str]) -> Sequence[Columns]:
        """Read runs with their payloads, those that there are; raises ``DatabaseError``."""

    @abstractmethod
    async def acquire(self, asked: Acquisition) -> Sent[Sequence[Columns]]:
        """Own runs and note it in their journals: their rows after the change, in the order of the answer."""
