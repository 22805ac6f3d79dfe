"""Commands of the engine: those of a run's owner, and those of clients and operators."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus, TerminalRunStatus
from belay_core.records.step_record import StepRecord
from belay_core.records.workflow_run import ApprovalRecord, RunWait, WorkflowRun


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew these leases; one outcome each, in the same order. Changes neither write sequence nor journal."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Store these attempts of one run, all or none.

    A new attempt is inserted; one in an open state is replaced, except for its operator's resolution; one that ended
    is kept, and counts as stored when it is the same and as ``Conflict`` when it is not. Resets the takeovers of the
    run.
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
    """Begin a sleep: its waiting attempt; the first one stored under its key is kept."""

    lease: Lease
    attempt: StepRecord


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Close a gate that its workflow no longer awaits; an open approval becomes ``withdrawn``."""

    lease: Lease
    attempt: StepRecord


@dataclass(frozen=True, slots=True)
class Lapse:
    """Close a gate without a decision in time: a compare-and-swap on the open decision, by the store's clock."""

    lease: Lease
    approval_id: str
    """The approval without a decision."""
    attempt: StepRecord


@dataclass(frozen=True, slots=True)
class Park:
    """Suspend the run and release it.

    ``seen_ms`` is the signal the owner has read; with any other one the outcome is ``PendingSignal``, and nothing is
    written. With ``ready_at_ms`` the run is due from that time on, and a pending signal is no obstacle. Each of
    ``notes`` is JSON text and becomes a journal entry ``noted``.
    """

    lease: Lease
    waiting: RunWait
    request: str | None = None
    """The question to a person, as JSON text; None without one."""
    ready_at_ms: Millis | None = None
    seen_ms: Millis | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settle:
    """End the run; ``result`` and ``error`` are JSON text. Open approvals are withdrawn.

    With an unread signal, or a cancel request and a status other than ``cancelled``, the outcome is ``PendingSignal``.
    Each of ``notes`` is JSON text and becomes a journal entry ``noted``.
    """

    lease: Lease
    status: TerminalRunStatus
    result: str | None = None
    error: str | None = None
    seen_ms: Millis | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Store a new pending run of a workflow; ``input`` is JSON text.

    A known idempotency key of the same workflow finds its run untouched, whatever the input; a known run id does so
    only where workflow, key and input are the same.
    """

    run_id: RunId
    workflow: str
    """The name under which a worker finds the code."""
    version: str
    """The fingerprint of the workflow's input and declared steps; for readers."""
    input: str
    idempotency_key: str | None = None
    """Unique over all workflows, at most 512 bytes of UTF-8; None for a run without one."""
    priority: int = 0
    """A whole number of 32 bits; higher ones are acquired first."""
    run_at_ms: Millis | None = None
    trace: str | None = None
    """The trace context of the run's spans; None without tracing."""


@dataclass(frozen=True, slots=True)
class Acquire:
    """Own up to ``limit`` runs of these workflows, in one compare-and-swap each.

    Acquired are due pending and suspended runs, the highest priority first, and running ones whose owner is stale by
    the store's clock or listed as ``dead``. The owner's nonce must be fresh for this call.
    """

    owner: OwnerId
    workflows: tuple[str, ...]
    limit: int
    dead: tuple[OwnerId, ...] = ()


@dataclass(frozen=True, slots=True)
class Wake:
    """Make suspended runs ready whose wake time has come."""

    limit: int = 1_000
    """At most so many runs a call."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Decide an approval; ``digest`` is that of the subject the approver saw, ``edited`` JSON text."""

    approval_id: str
    """The approval that is decided."""
    decision: Literal["approved", "rejected"]
    """The decision."""
    digest: str
    by: str
    """Who decides."""
    reason: str | None = None
    """The approver's reason."""
    edited: str | None = None
    edited_digest: str | None = None
    """SHA-256 over the UTF-8 of ``edited``, in lower-case hex; None without an edit."""
    replace: bool = False
    """Whether a decision that no worker has acted on yet is replaced."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Request the cancel of a run; survives crash and takeover."""

    run_id: RunId
    by: str | None = None
    """Who asks, kept in the journal; None if not named."""


@dataclass(frozen=True, slots=True)
class Happened:
    """The orphaned step did take place, with this outcome as JSON text."""

    outcome: str
    """The result of the step, as JSON text."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Continue: execute the orphaned step once more, or the whole run again from its records."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let the run fail."""


Resolution: TypeAlias = Happened | Retry | GiveUp
"""What an operator decides about a run in review."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """An operator's resolution of a run in review; ``step_key`` names the orphan if it is about one.

    On an orphan, ``Happened`` and ``Retry`` are kept with the attempt, which stays orphaned: the run's next owner acts
    on them, and gives the result its place in the order.
    """

    run_id: RunId
    resolution: Resolution
    by: str
    """The operator."""
    step_key: str | None = None
    replace: bool = False
    """Whether what was said of the orphan before is replaced; only as long as no worker has acted on it."""


@dataclass(frozen=True, slots=True)
class RetryRun:
    """An operator lets a failed or cancelled run go on from its records, once what failed it was mended."""

    run_id: RunId
    by: str
    """The operator."""
    reason: str | None = None
    """The operator's reason, kept in the journal; None if not named."""


@dataclass(frozen=True, slots=True)
class History:
    """Read runs with their attempts and approvals, in one call."""

    run_ids: tuple[RunId, ...]
    runs: tuple[WorkflowRun, ...] = ()
    """Those of them that the caller has just read or acquired: they are returned unchanged, and not read again."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """A run, its attempts ordered by step key and number, and its approvals.

    The run is read first: ``run.ready_at_ms`` is never ahead of the approvals.
    """

    run: WorkflowRun
    attempts: tuple[StepRecord, ...]
    approvals: tuple[ApprovalRecord, ...]


@dataclass(frozen=True, slots=True)
class ListRuns:
    """Read a page of runs, the newest first; ``before`` is the last run id of the page before."""

    workflow: str | None = None
    """Only runs of the workflow of this name; None for all."""
    status: RunStatus | None = None
    waiting_reason: str | None = None
    """Only runs that wait for this; None for all."""
    limit: int = 100
    """At most so many, 1 to 1,000."""
    before: RunId | None = None
    idempotency_key: str | None = None
    """Only the run that was started with this key; None for all."""


@dataclass(frozen=True, slots=True)
class ListApprovals:
    """Read undecided approvals, the oldest first."""

    run_id: RunId | None = None
    limit: int = 100
    """At most so many, 1 to 1,000."""
