"""The run of a workflow: its input, what it waits for, how it ended."""

from dataclasses import dataclass

from belay_core.clock import Millis
from belay_core.ids import ApprovalId, RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus, TerminalRunStatus


@dataclass(frozen=True, slots=True)
class RunWait:
    """What a suspended run waits for.

    ``reason`` is one of ``needs_review approval timer backoff released``; ``token`` is the step key that it
    waits for, ``wake_at_ms`` the time at which it wakes by itself.
    """

    reason: str
    token: str | None = None
    wake_at_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended; ``result`` and ``error`` are JSON text."""

    status: TerminalRunStatus
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run without its payloads, as lists hold it."""

    run_id: RunId
    workflow: str | None
    """The name of the workflow; None for a run made by hand."""
    version: str | None
    """The fingerprint of the workflow's input and declared steps when the run was started."""
    status: RunStatus
    priority: int
    """Higher ones are acquired first."""
    ready_at_ms: Millis | None
    """The time from which a worker may acquire it; None if none may."""
    created_at_ms: Millis
    started_at_ms: Millis | None
    finished_at_ms: Millis | None
    owner: OwnerId | None
    heartbeat_at_ms: Millis | None
    epoch: int
    """How often it has been acquired."""
    takeovers: int
    """Takeovers since an attempt was last recorded."""
    cancel_requested_at_ms: Millis | None
    waiting: RunWait | None
    idempotency_key: str | None
    """The key it was started with."""
    parent_run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRun(RunSummary):
    """A run with its payloads, each JSON text as stored."""

    input: str | None
    """The input of the body."""
    result: str | None
    """The result of the body; None until it is completed."""
    error: str | None
    """Type and message of the error; None unless it failed."""
    waiting_request: str | None
    """The question to a person while it waits."""
    trace: str | None
    """The trace context of the run's spans; text, no JSON."""


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """One question of a gate and its decision.

    ``subject`` and ``edited`` are JSON text byte for byte; the digests are SHA-256 over their UTF-8 in lower-case
    hex. ``decision`` is ``approved``, ``rejected``, ``lapsed``, ``withdrawn`` or, while undecided, None.
    """

    approval_id: ApprovalId
    run_id: RunId
    step_key: str
    """The gate's call in its run: scope, name and count."""
    gate: str
    """The name of the gate."""
    subject: str
    subject_digest: str
    """The digest that a decision is bound to."""
    asked_at_ms: Millis
    lapse_at_ms: Millis | None = None
    decision: str | None = None
    decided_by: str | None = None
    """Who decided; None without a decision."""
    decided_at_ms: Millis | None = None
    reason: str | None = None
    """The approver's reason."""
    edited: str | None = None
    edited_digest: str | None = None
    """None without an edit."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of a run; ``facts`` is JSON text."""

    run_id: RunId
    entry: int
    """Its number in the run, from 1."""
    at_ms: Millis
    kind: str
    """The kind of event, as one word or two."""
    facts: str
