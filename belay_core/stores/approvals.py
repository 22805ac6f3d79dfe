"""ApprovalStore: the questions of gates, and their decisions."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from belay_core.clock import Millis
from belay_core.errors import InvalidInput
from belay_core.records import commands
from belay_core.records.commands import Decide
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores.attempts import (
    BeginOutcome,
    Conflict,
    Recorded,
    RecordOutcome,
    RunNotFound,
)
from belay_core.stores.checks import require_durable, require_optional_text, require_text
from belay_core.stores.run_contract import FenceLost


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision counts; its time is given."""

    decided_at_ms: Millis


@dataclass(frozen=True, slots=True)
class AlreadyDecided:
    """An earlier decision counts."""

    decision: str
    """``approved``, ``rejected``, ``lapsed`` or ``withdrawn``."""
    decided_by: str | None
    """Who decided; None without a person."""
    decided_at_ms: Millis


@dataclass(frozen=True, slots=True)
class SubjectChanged:
    """The digest is not that of the approval's subject."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """The gate has lapsed or was withdrawn, or its run has ended."""


@dataclass(frozen=True, slots=True)
class NoSuchApproval:
    """There is no such approval."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """By the store's clock the gate lapses only at this time."""

    lapse_at_ms: Millis


LapseOutcome: TypeAlias = Recorded | AlreadyDecided | NotYet | NoSuchApproval | Conflict | FenceLost | RunNotFound
"""The answers of ``ApprovalStore.lapse``."""
DecideOutcome: TypeAlias = Decided | AlreadyDecided | SubjectChanged | TooLate | NoSuchApproval
"""The answers of ``ApprovalStore.decide``."""


class ApprovalStore(Protocol):
    """Approvals; defects raise ``ApprovalStoreError``."""

    @abstractmethod
    async def ask(self, command: commands.Ask) -> BeginOutcome:
        """Open a gate."""

    @abstractmethod
    async def withdraw(self, command: commands.Withdraw) -> RecordOutcome:
        """Close a gate that its workflow no longer awaits."""

    @abstractmethod
    async def lapse(self, command: commands.Lapse) -> LapseOutcome:
        """Close a gate that was not decided in time."""

    @abstractmethod
    async def decide(self, command: commands.Decide) -> DecideOutcome:
        """Decide an approval; one decision counts."""

    @abstractmethod
    async def find(self, approval_id: str) -> ApprovalRecord | None:
        """One approval, decided or not."""

    @abstractmethod
    async def list(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        """Open approvals of runs that have not ended, the oldest first."""


def check_decide(command: Decide) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    require_durable("approval_id", command.approval_id)
    if command.decision not in {"approved", "rejected"}:
        raise InvalidInput("decision", "must be approved or rejected")
    require_text("digest", command.digest)
    require_durable("by", command.by)
    for name in ("reason", "edited", "edited_digest"):
        require_optional_text(name, getattr(command, name))
