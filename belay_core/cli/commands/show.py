"""``belay show``."""

from functools import partial
from typing import TYPE_CHECKING, Final

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE
from belay_core.cli.output import write_fields, write_json, write_line, write_table
from belay_core.cli.time_text import duration, time_and_age, time_text
from belay_core.clock import Millis

if TYPE_CHECKING:
    from belay_core.records.commands import RunHistory
    from belay_core.records.step_record import StepRecord
    from belay_core.records.workflow_run import ApprovalRecord, JournalEntry, WorkflowRun

_MOST: Final = 2_000
"""Characters of a payload that are shown; the number of characters left out is added."""


@click.command()
@options.run
@options.database
@options.as_json
def show(*, run: str, database: str | None, as_json: bool) -> int:
    """Show what is recorded of a run: its attempts, its approvals and the events of its journal.

    Long payloads are shortened, and say so; --json has them whole.
    """
    return with_client(database, partial(_shown, run=run, as_json=as_json))


async def _shown(session: CommandSession, *, run: str, as_json: bool) -> int:
    from belay_core.cli.documents import history_document

    history = await session.client.history(run)
    journal = await session.client.journal(run)
    if as_json:
        write_json(history_document(history, journal))
        return DONE
    _run(history.run, session.now_ms)
    _attempts(history.attempts, session.now_ms)
    _tracebacks(history)
    for approval in history.approvals:
        _approval(approval, session.now_ms)
    _journal(journal)
    return DONE


def _run(run: "WorkflowRun", now_ms: Millis) -> None:
    from belay_core.client.explanation import shown_state

    owner = None if run.owner is None else f"process {run.owner.pid} on {run.owner.host_id}"
    write_fields(
        [
            ("run", run.run_id),
            ("workflow", run.workflow),
            ("state", shown_state(run)),
            ("key", run.idempotency_key),
            ("priority", str(run.priority) if run.priority else None),
            ("created", time_and_age(run.created_at_ms, now_ms)),
            ("started", time_and_age(run.started_at_ms, now_ms)),
            ("finished", time_and_age(run.finished_at_ms, now_ms)),
            ("owner", owner),
            ("heartbeat", time_and_age(run.heartbeat_at_ms, now_ms)),
            ("takeovers", str(run.takeovers) if run.takeovers else None),
            ("wakes", time_and_age(run.waiting.wake_at_ms, now_ms) if run.waiting else None),
            ("cancel requested", time_and_age(run.cancel_requested_at_ms, now_ms)),
            ("input", _shortened(run.input)),
            ("result", _shortened(run.result)),
            ("error", _error(run.error)),
        ]
    )


def _attempts(attempts: "tuple[StepRecord, ...]", now_ms: Millis) -> None:
    if not attempts:
        return
    write_line()
    ordered = sorted(attempts, key=lambda each: (each.started_at_ms, each.step_key, each.attempt))
    rows = [
        (each.step_key, str(each.attempt), _state(each), _took(each, now_ms), _error(each.error) or _result(each))
        for each in ordered
    ]
    write_table(("STEP", "ATTEMPT", "STATE", "TOOK", "RESULT OR ERROR"), rows)


def _tracebacks(history: "RunHistory") -> None:
    """Of the last attempt of each step that has an error, and of the run's own error."""
    last = {each.step_key: each.error for each in history.attempts}
    for about, error in [*last.items(), ("the run", history.run.error)]:
        lines = _traceback(error)
        if lines:
            write_line()
            write_line(f"traceback of {about}")
            for line in lines:
                write_line(f"  {line}")


def _approval(approval: "ApprovalRecord", now_ms: Millis) -> None:
    decided = f"{approval.decision} by {approval.decided_by}" if approval.decided_by else approval.decision
    write_line()
    write_fields(
        [
            ("gate", approval.gate),
            ("approval", approval.approval_id),
            ("asked", time_and_age(approval.asked_at_ms, now_ms)),
            ("lapses", time_and_age(approval.lapse_at_ms, now_ms)),
            ("subject", _shortened(approval.subject)),
            ("digest", approval.subject_digest),
            ("decision", decided or "none yet"),
            ("decided", time_and_age(approval.decided_at_ms, now_ms)),
            ("reason", _shortened(approval.reason)),
            ("edited", _shortened(approval.edited)),
        ]
    )


def _journal(journal: "tuple[JournalEntry, ...]") -> None:
    if not journal:
        return
    write_line()
    rows = [(str(each.entry), time_text(each.at_ms) or "", each.kind, _shortened(each.facts) or "") for each in journal]
    write_table(("ENTRY", "AT", "EVENT", "FACTS"), rows)


def _took(attempt: "StepRecord", now_ms: Millis) -> str:
    if attempt.finished_at_ms is None:
        return f"{duration(now_ms - attempt.started_at_ms)} so far"
    return duration(attempt.finished_at_ms - attempt.started_at_ms)


def _state(attempt: "StepRecord") -> str:
    """The state, and what an operator has said of it."""
    if attempt.resolved_by is None:
        return attempt.state.value
    from belay_core.cli.documents import payload

    meta = payload(attempt.meta)
    word = meta.get("resolution", "resolved") if isinstance(meta, dict) else "resolved"
    return f"{attempt.state.value}, {word} by {attempt.resolved_by}"


def _result(attempt: "StepRecord") -> str:
    return _shortened(attempt.outcome) or ""


def _traceback(text: str | None) -> list[str]:
    from belay_core.cli.documents import payload

    value = payload(text)
    found = value.get("traceback") if isinstance(value, dict) else None
    return found.splitlines() if isinstance(found, str) else []


def _error(text: str | None) -> str | None:
    """Type and message of a stored error."""
    from belay_core.cli.documents import payload

    value = payload(text)
    if not isinstance(value, dict) or "type" not in value:
        return _shortened(text)
    return _shortened(f"{value['type']}: {value.get('message', '')}".removesuffix(": "))


def _shortened(text: str | None) -> str | None:
    if text is None or len(text) <= _MOST:
        return text
    return f"{text[:_MOST]} .. and {len(text) - _MOST} more characters"
