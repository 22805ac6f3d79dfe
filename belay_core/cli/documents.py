"""Records as the JSON documents that ``--json`` writes; times are ISO 8601 in UTC."""

from belay_core.cli.time_text import time_text
from belay_core.client.explanation import Explanation, shown_state
from belay_core.records.attempt import JsonValue
from belay_core.records.commands import RunHistory
from belay_core.records.step_record import StepRecord
from belay_core.records.workflow_run import ApprovalRecord, JournalEntry, RunSummary, RunWait, WorkflowRun
from belay_core.values import json


def payload(text: str | None) -> JsonValue:
    """The value of a stored JSON text; text that is no JSON becomes ``{"undecodable": text}``."""
    if text is None:
        return None
    try:
        return json.decode(text)
    except json.JsonRefused:
        return {"undecodable": text}


def run_document(run: RunSummary) -> dict[str, JsonValue]:
    """A run without its payloads; ``state`` is its status, or what it waits for."""
    return {
        "run_id": run.run_id,
        "workflow": run.workflow,
        "version": run.version,
        "state": shown_state(run),
        "status": run.status.value,
        "waiting": None if run.waiting is None else _waiting_document(run.waiting),
        "priority": run.priority,
        "ready_at": time_text(run.ready_at_ms),
        "created_at": time_text(run.created_at_ms),
        "started_at": time_text(run.started_at_ms),
        "finished_at": time_text(run.finished_at_ms),
        "owner": None if run.owner is None else {"host_id": run.owner.host_id, "pid": run.owner.pid},
        "heartbeat_at": time_text(run.heartbeat_at_ms),
        "epoch": run.epoch,
        "takeovers": run.takeovers,
        "cancel_requested_at": time_text(run.cancel_requested_at_ms),
        "idempotency_key": run.idempotency_key,
        "parent_run_id": run.parent_run_id,
    }


def _waiting_document(waiting: RunWait) -> dict[str, JsonValue]:
    return {"reason": waiting.reason, "token": waiting.token, "wakes_at": time_text(waiting.wake_at_ms)}


def full_run_document(run: WorkflowRun) -> dict[str, JsonValue]:
    """A run with its payloads."""
    payloads: dict[str, JsonValue] = {
        "input": payload(run.input),
        "result": payload(run.result),
        "error": payload(run.error),
        "waiting_request": payload(run.waiting_request),
    }
    return run_document(run) | payloads


def attempt_document(attempt: StepRecord) -> dict[str, JsonValue]:
    """One execution of a step, a gate or a sleep."""
    return {
        "step_key": attempt.step_key,
        "step": attempt.step,
        "attempt": attempt.attempt,
        "kind": attempt.kind.value,
        "state": attempt.state.value,
        "idempotent": attempt.idempotent,
        "started_at": time_text(attempt.started_at_ms),
        "finished_at": time_text(attempt.finished_at_ms),
        "outcome": payload(attempt.outcome),
        "error": payload(attempt.error),
        "meta": payload(attempt.meta),
        "recorded": attempt.recorded,
        "epoch": attempt.epoch,
        "resolved_by": attempt.resolved_by,
        "resolved_at": time_text(attempt.resolved_at_ms),
    }


def approval_document(approval: ApprovalRecord) -> dict[str, JsonValue]:
    """One approval and its decision; the ``_text`` of a payload is exactly the text that its digest is of."""
    return {
        "approval_id": approval.approval_id,
        "run_id": approval.run_id,
        "step_key": approval.step_key,
        "gate": approval.gate,
        "subject": payload(approval.subject),
        "subject_text": approval.subject,
        "subject_digest": approval.subject_digest,
        "asked_at": time_text(approval.asked_at_ms),
        "lapses_at": time_text(approval.lapse_at_ms),
        "decision": approval.decision,
        "decided_by": approval.decided_by,
        "decided_at": time_text(approval.decided_at_ms),
        "reason": approval.reason,
        "edited": payload(approval.edited),
        "edited_text": approval.edited,
        "edited_digest": approval.edited_digest,
    }


def journal_document(entry: JournalEntry) -> dict[str, JsonValue]:
    """One event of a run."""
    return {"entry": entry.entry, "at": time_text(entry.at_ms), "kind": entry.kind, "facts": payload(entry.facts)}


def history_document(history: RunHistory, journal: tuple[JournalEntry, ...]) -> dict[str, JsonValue]:
    """Everything that is recorded of a run."""
    return {
        "run": full_run_document(history.run),
        "attempts": [attempt_document(each) for each in history.attempts],
        "approvals": [approval_document(each) for each in history.approvals],
        "journal": [journal_document(each) for each in journal],
    }


def explanation_document(explanation: Explanation) -> dict[str, JsonValue]:
    """The explanation of a run's state."""
    return {
        "run_id": explanation.run_id,
        "workflow": explanation.workflow,
        "state": explanation.state,
        "because": explanation.because,
        "since": time_text(explanation.since_ms),
        "wakes_at": time_text(explanation.wakes_at_ms),
        "ways_out": list(explanation.ways_out),
    }
