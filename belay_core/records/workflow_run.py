"""A run as the engine and its faces see it: a workflow, its input, what it waits for, how it ended."""

from dataclasses import dataclass

from belay_core.clock import Millis
from belay_core.ids import ApprovalId, RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus, TerminalRunStatus


@dataclass(frozen=True, slots=True)
class RunWait:
    """What a suspended run waits for.

    ``reason`` is one of ``needs_review approval timer backoff released``; ``token`` names the step key it hangs
    on, ``wake_at_ms`` the moment it wakes by itself.
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
    """The narrow part of a run: everything but its payloads. Lists are made of these."""

    run_id: RunId
    workflow: str | None
    """The name of the workflow; None for a run made by hand."""
    version: str | None
    """The fingerprint of the workflow's input and declared steps when the run was started."""
    status: RunStatus
    priority: int
    """Higher ones are taken first."""
    ready_at_ms: Millis | None
    """From this moment on a worker may take it; None where nobody may."""
    created_at_ms: Millis
    started_at_ms: Millis | None
    finished_at_ms: Millis | None
    owner: OwnerId | None
    heartbeat_at_ms: Millis | None
    epoch: int
    """How often it has been acquired."""
    takeovers: int
    """Owners it has outlived since something was last recorded."""
    cancel_requested_at_ms: Millis | None
    waiting: RunWait | None
    idempotency_key: str | None
    """The key it was started with."""
    parent_run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRun(RunSummary):
    """A run with its payloads, each JSON text as stored."""

    input: str | None
    """What the body is given."""
    result: str | None
    """What the body returned; None until it is completed."""
    error: str | None
    """Type and message of the error; None unless it failed."""
    waiting_request: str | None
    """What is asked of a person while it waits."""
    trace: str | None
    """Text from which the spans of the run go on; no JSON."""


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """One asking at a gate and its answer.

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
    """What a decision is bound to."""
    asked_at_ms: Millis
    lapse_at_ms: Millis | None = None
    decision: str | None = None
    decided_by: str | None = None
    """Who decided; None where nobody has."""
    decided_at_ms: Millis | None = None
    reason: str | None = None
    """Why, in the words of who decided."""
    edited: str | None = None
    edited_digest: str | None = None
    """None without an edit."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of a run, in the order it was written; ``facts`` is JSON text."""

    run_id: RunId
    entry: int
    """Its number in the run, from 1."""
    at_ms: Millis
    kind: str
    """What happened, as one word or two."""
    facts: str
