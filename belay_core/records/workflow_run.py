"""A run as the engine and its faces see it: a workflow, its input, what it waits for, how it ended."""

from dataclasses import dataclass

from belay_core.ids import ApprovalId, RunId
from belay_core.moments import Millis
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a suspended run waits for.

    ``reason`` is one of ``needs_review approval timer backoff released``; ``token`` names the step key it hangs
    on, ``wake_at_ms`` the moment it wakes by itself.
    """

    reason: str
    token: str | None = None
    wake_at_ms: Millis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The narrow part of a run: everything but its payloads. Lists are made of these."""

    run_id: RunId
    workflow: str | None
    version: str | None
    status: RunStatus
    priority: int
    ready_at_ms: Millis | None
    created_at_ms: Millis
    started_at_ms: Millis | None
    finished_at_ms: Millis | None
    owner: OwnerId | None
    heartbeat_at_ms: Millis | None
    epoch: int
    takeovers: int
    cancel_requested_at_ms: Millis | None
    waiting: Waiting | None
    idempotency_key: str | None
    parent_run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(RunSummary):
    """A run with its payloads, each JSON text as stored."""

    input: str | None
    result: str | None
    error: str | None
    waiting_request: str | None
    trace: str | None


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """One asking at a gate and its answer.

    ``subject`` and ``edited`` are JSON text byte for byte; the digests are SHA-256 over their UTF-8 in lower-case
    hex. ``decision`` is ``approved``, ``rejected``, ``lapsed``, ``withdrawn`` or, while undecided, None.
    """

    approval_id: ApprovalId
    run_id: RunId
    step_key: str
    gate: str
    subject: str
    subject_digest: str
    asked_at_ms: Millis
    lapse_at_ms: Millis | None = None
    decision: str | None = None
    decided_by: str | None = None
    decided_at_ms: Millis | None = None
    reason: str | None = None
    edited: str | None = None
    edited_digest: str | None = None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of a run, in the order it was written; ``facts`` is JSON text."""

    run_id: RunId
    entry: int
    at_ms: Millis
    kind: str
    facts: str
