"""Commands only the owner of a run may give."""

from dataclasses import dataclass

from belay_core.moments import Millis
from belay_core.records.owner import Lease
from belay_core.records.run import TerminalRunStatus
from belay_core.records.step_record import StepRecord
from belay_core.records.workflow_run import ApprovalRecord, Waiting


@dataclass(frozen=True, slots=True)
class Renew:
    """Keep these leases; answered one by one, in the same order. Neither write sequence nor journal move."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Store these attempts of one run, all or none.

    An attempt that is not there is inserted; one in an open state is replaced, except for what an operator said of
    it; one that ended stays, and counts as stored when it is the same and as ``Conflict`` when it is not. Resets the
    takeovers of the run.
    """

    lease: Lease
    attempts: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Open a gate: its waiting attempt and the approval that is asked for, with a journal entry ``asked``."""

    lease: Lease
    attempt: StepRecord
    approval: ApprovalRecord


@dataclass(frozen=True, slots=True)
class Sleep:
    """Begin a sleep: its waiting attempt; the first one stored under its key stands."""

    lease: Lease
    attempt: StepRecord


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Close a gate its author no longer wants; an undecided approval becomes ``withdrawn``."""

    lease: Lease
    attempt: StepRecord


@dataclass(frozen=True, slots=True)
class Lapse:
    """Close a gate nobody decided in time; the swap is on the undecided decision, by the store's clock."""

    lease: Lease
    approval_id: str
    """The asking that nobody answered."""
    attempt: StepRecord


@dataclass(frozen=True, slots=True)
class Park:
    """Suspend the run and let it go.

    ``seen_ms`` is the news the owner has read; any other news is answered with ``News`` and nothing is written.
    With ``ready_at_ms`` the run may be taken from that moment on, and news are no obstacle. Each of ``notes`` is
    JSON text and becomes a journal entry ``noted``.
    """

    lease: Lease
    waiting: Waiting
    request: str | None = None
    """What is asked of a person, as JSON text; None where nobody is asked."""
    ready_at_ms: Millis | None = None
    seen_ms: Millis | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settle:
    """End the run; ``result`` and ``error`` are JSON text. Open approvals are withdrawn.

    Unseen news, and a cancel request where the status is not ``cancelled``, are answered with ``News``.
    Each of ``notes`` is JSON text and becomes a journal entry ``noted``.
    """

    lease: Lease
    status: TerminalRunStatus
    result: str | None = None
    error: str | None = None
    seen_ms: Millis | None = None
    notes: tuple[str, ...] = ()
