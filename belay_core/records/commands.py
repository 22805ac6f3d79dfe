"""Commands only the owner of a run may give."""

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

    ``seen_ms`` is the signal the owner has read; any other is answered with ``PendingSignal``, and nothing is written.
    With ``ready_at_ms`` the run may be taken from that moment on, and news are no obstacle. Each of ``notes`` is
    JSON text and becomes a journal entry ``noted``.
    """

    lease: Lease
    waiting: RunWait
    request: str | None = None
    """What is asked of a person, as JSON text; None where nobody is asked."""
    ready_at_ms: Millis | None = None
    seen_ms: Millis | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settle:
    """End the run; ``result`` and ``error`` are JSON text. Open approvals are withdrawn.

    Unseen news, and a cancel request where the status is not ``cancelled``, are answered with ``PendingSignal``.
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
    """A whole number of 32 bits; higher ones are taken first."""
    run_at_ms: Millis | None = None
    trace: str | None = None
    """Text from which the spans of the run go on; None without tracing."""


@dataclass(frozen=True, slots=True)
class Acquire:
    """Own up to ``limit`` runs of these workflows, in one compare-and-swap each.

    Taken are due pending and suspended runs, the highest priority first, and running ones whose owner is stale by
    the store's clock or listed as ``dead``. The owner's nonce must be fresh for this call.
    """

    owner: OwnerId
    workflows: tuple[str, ...]
    limit: int
    dead: tuple[OwnerId, ...] = ()


@dataclass(frozen=True, slots=True)
class Wake:
    """Make suspended runs ready whose wake moment has come."""

    limit: int = 1_000
    """At most so many runs in one go."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Answer what a gate asked; ``digest`` is that of the subject the approver saw, ``edited`` JSON text."""

    approval_id: str
    """The asking that is answered."""
    decision: Literal["approved", "rejected"]
    """What was said."""
    digest: str
    by: str
    """Who decides."""
    reason: str | None = None
    """Why, in the words of who decides."""
    edited: str | None = None
    edited_digest: str | None = None
    """SHA-256 over the UTF-8 of ``edited``, in lower-case hex; None without an edit."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask a run to stop; survives crash and takeover."""

    run_id: RunId
    by: str | None = None
    """Who asks, kept in the journal; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Happened:
    """The orphaned step did take place, with this outcome as JSON text."""

    outcome: str
    """The result of the step, as JSON text."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Go on: execute the orphaned step once more, or the whole run again from its records."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let the run fail."""


Resolution: TypeAlias = Happened | Retry | GiveUp
"""An operator's word."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """An operator's word on a run in review; ``step_key`` names the orphan where it is about one.

    On an orphan, ``Happened`` and ``Retry`` are kept with the attempt, which stays orphaned: its next owner acts on
    them, and gives the answer its place in the order.
    """

    run_id: RunId
    resolution: Resolution
    by: str
    """Who says so."""
    step_key: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Read runs with everything recorded of them, in one go."""

    run_ids: tuple[RunId, ...]
    runs: tuple[WorkflowRun, ...] = ()
    """Those of them that the caller has read or taken just now: they are given back as they are, and not looked for."""


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


@dataclass(frozen=True, slots=True)
class ListApprovals:
    """Read undecided approvals, the oldest first."""

    run_id: RunId | None = None
    limit: int = 100
    """At most so many, 1 to 1,000."""
