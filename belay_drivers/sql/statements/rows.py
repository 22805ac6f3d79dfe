"""Convert rows into records, with checks: a damaged row raises ``Undecodable``."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import Select, literal_column, select

from belay_core.ids import ApprovalId, RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, JournalEntry, RunSummary, RunWait, WorkflowRun
from belay_drivers.sql.schema.tables import approvals, attempts, runs, values

Columns: TypeAlias = Mapping[Any, Any]
"""A row by the names of its columns."""

_parent_values = values.alias("parent_values")
_WITH_TEXTS = runs.outerjoin(values, values.c.run_id == runs.c.run_id).outerjoin(
    _parent_values, _parent_values.c.run_id == runs.c.parent_run_id
)
_NAMES: Final = (values.c.full_id, _parent_values.c.full_id.label("parent_full_id"))

SUMMARIES: Final[Select[Any]] = select(runs, *_NAMES).select_from(_WITH_TEXTS)
RECORDS: Final[Select[Any]] = select(
    runs,
    *_NAMES,
    values.c.input,
    values.c.result,
    values.c.error,
    values.c.waiting_request,
    values.c.trace,
).select_from(_WITH_TEXTS)
RECORDS_SQL: Final = str(RECORDS)
"""The same as SQL text of every database; a condition may follow."""
APPROVALS: Final[Select[Any]] = select(approvals, attempts.c.full_key, values.c.full_id).select_from(
    approvals.outerjoin(
        attempts,
        (attempts.c.run_id == approvals.c.run_id)
        & (attempts.c.step_key_digest == approvals.c.step_key_digest)
        & (attempts.c.attempt == literal_column("1")),
    ).outerjoin(values, values.c.run_id == approvals.c.run_id)
)
APPROVALS_SQL: Final = str(APPROVALS)
"""As ``RECORDS_SQL``."""


_STATUSES: Final = {status.value: status for status in RunStatus}
_KINDS: Final = {kind.value: kind for kind in StepKind}
_STATES: Final = {state.value: state for state in StepState}


class Undecodable(Exception):
    """A row of this table was not written by belay."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


def owner_of(row: Columns) -> OwnerId | None:
    """The owner in a run row."""
    if row["owner_nonce"] is None:
        return None
    return OwnerId(row["owner_host_id"], row["owner_pid"], row["owner_nonce"])


def _waiting(row: Columns) -> RunWait | None:
    if row["waiting_reason"] is None:
        return None
    return RunWait(row["waiting_reason"], row["waiting_token"], row["waiting_wake_at"])


def status_of(row: Columns) -> RunStatus:
    """The status in a run row."""
    status = _STATUSES.get(row["status"])
    if status is None:
        raise Undecodable(runs.name)
    return status


def _summary_fields(row: Columns) -> dict[str, Any]:
    parent = row["parent_full_id"] or row["parent_run_id"]
    return {
        "run_id": RunId(row["full_id"] or row["run_id"]),
        "workflow": row["workflow"],
        "version": row["version"],
        "status": status_of(row),
        "priority": row["priority"],
        "ready_at_ms": row["ready_at"],
        "created_at_ms": row["created_at"],
        "started_at_ms": row["started_at"],
        "finished_at_ms": row["finished_at"],
        "owner": owner_of(row),
        "heartbeat_at_ms": row["heartbeat_at"],
        "epoch": row["epoch"],
        "takeovers": row["takeovers"],
        "cancel_requested_at_ms": row["cancel_requested_at"],
        "waiting": _waiting(row),
        "idempotency_key": row["idempotency_key"],
        "parent_run_id": None if parent is None else RunId(parent),
    }


def run_summary(row: Columns) -> RunSummary:
    """A run without its payloads."""
    return RunSummary(**_summary_fields(row))


def run_record(row: Columns) -> WorkflowRun:
    """A run with its payloads; a request is part of a wait, and is cleared with it."""
    return WorkflowRun(
        **_summary_fields(row),
        input=row["input"],
        result=row["result"],
        error=row["error"],
        waiting_request=row["waiting_request"] if row["waiting_reason"] is not None else None,
        trace=row["trace"],
    )


def step_record(row: Columns) -> StepRecord:
    """An attempt of the engine's."""
    kind, state = _KINDS.get(row["kind"]), _STATES.get(row["state"])
    if kind is None or state is None or row["full_key"] is None or row["idempotent"] is None:
        raise Undecodable(attempts.name)
    return StepRecord(
        step_key=row["full_key"],
        attempt=row["attempt"],
        step=row["step"],
        kind=kind,
        state=state,
        idempotent=bool(row["idempotent"]),
        started_at_ms=row["started_at"],
        input_digest=row["input_digest"],
        recorded=row["recorded"],
        finished_at_ms=row["finished_at"],
        outcome=row["outcome"],
        error=row["error"],
        meta=row["meta"],
        epoch=row["epoch"],
        resolved_by=row["resolved_by"],
        resolved_at_ms=row["resolved_at"],
    )


def approval_record(row: Columns) -> ApprovalRecord:
    """One approval."""
    return ApprovalRecord(
        approval_id=ApprovalId(row["approval_id"]),
        run_id=RunId(row["full_id"] or row["run_id"]),
        step_key=row["full_key"] or row["step_key_digest"],
        gate=row["gate"],
        subject=row["subject"],
        subject_digest=row["subject_digest"],
        asked_at_ms=row["asked_at"],
        lapse_at_ms=row["lapse_at"],
        decision=row["decision"],
        decided_by=row["decided_by"],
        decided_at_ms=row["decided_at"],
        reason=row["reason"],
        edited=row["edited"],
        edited_digest=row["edited_digest"],
    )


def journal_entry(row: Columns, run_id: RunId) -> JournalEntry:
    """One event of a run."""
    return JournalEntry(run_id, row["entry"], row["at"], row["kind"], row["facts"])
