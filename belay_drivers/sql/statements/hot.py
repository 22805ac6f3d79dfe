"""What happens most beside the writes that share a commit, each sent straight."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from belay_core.clock import Millis
from belay_core.records.attempt import JsonValue
from belay_core.records.commands import Acquire, Decide, Renew
from belay_drivers.sql.connection.database import Done, Sent
from belay_drivers.sql.statements.rows import Columns


@dataclass(frozen=True, slots=True)
class Acquisition:
    """One call of ``acquire``: what is asked for, when, and what the journals will say."""

    command: Acquire
    now_ms: Millis
    stale_before: Millis
    """An owner whose last sign of life is older is gone."""
    facts: str


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """What is stored of some runs, in no order; the approvals were read last, so that they are never behind.

    ``runs`` lacks those that were not to be read.
    """

    runs: Sequence[Columns]
    attempts: Sequence[Columns]
    approvals: Sequence[Columns]


def decision_facts(command: Decide, gate: str) -> dict[str, JsonValue]:
    """What the journal says of a decision at this gate."""
    return {
        "approval_id": command.approval_id,
        "gate": gate,
        "decision": command.decision,
        "by": command.by,
        "digest": command.edited_digest or command.digest,
    }


class HotStatements(Protocol):
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

    async def decide(self, command: Decide, now_ms: Millis) -> Sent[str | None]:  # noqa: ARG002  (a default knows no way)
        """Decide where that can be done plainly, and note it: the id of the run; None where nothing was done.

        Whoever is told None decides in steps, and gets the answer that says why.
        """
        return Done(None)

    async def history(self, keys: Sequence[str], unread: Sequence[str]) -> HistoryRows | None:  # noqa: ARG002  (as above)
        """Read all that is recorded of runs, and the ``unread`` of them; None where this way has nothing to gain."""
        return None

    async def due(self, now_ms: Millis, limit: int) -> Sequence[str] | None:  # noqa: ARG002  (as above)
        """Find runs that wait for a moment that has come, the earliest first; None as for ``history``."""
        return None

    async def asked(self, key: str, limit: int) -> Sequence[Columns] | None:  # noqa: ARG002  (as above)
        """Read what waits at gates of a run that is not over, the oldest first; None as for ``history``."""
        return None
