"""``belay approve`` and ``belay reject``."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, assert_never

import click

from belay_core.cli import options
from belay_core.cli.approval_text import show_approval
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE, REFUSED
from belay_core.cli.identity import acting_user
from belay_core.cli.json_input import stored_text
from belay_core.cli.output import ask_yes, is_interactive, write_error, write_json, write_line
from belay_core.cli.time_text import time_text
from belay_core.errors import InvalidInput
from belay_core.records.attempt import JsonValue
from belay_core.stores.approvals import AlreadyDecided, Decided, NoSuchApproval, SubjectChanged, TooLate

if TYPE_CHECKING:
    from collections.abc import Callable

    from belay_core.records.workflow_run import ApprovalRecord
    from belay_core.stores.approvals import DecideOutcome

_AT_GATE = [
    options.run,
    click.option("--gate", help="The gate; not needed where one waits."),
    click.option("--approval", metavar="ID", help="The one asking, where several gates share a name."),
    click.option("--step", "step_key", metavar="KEY", help="The call that asks, where several gates share a name."),
    click.option("--replace", is_flag=True, help="Replace the decision, if no worker has acted on it."),
    options.by,
    click.option("--reason", help="Why; kept with the decision, and seen by the workflow."),
    click.option("--digest", help="Decide only if this is the digest of the subject."),
    click.option("--yes", is_flag=True, help="Do not ask whether this is meant."),
    options.database,
    options.as_json,
]


def _at_gate(function: "Callable[..., int]") -> "Callable[..., int]":
    for option in reversed(_AT_GATE):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecisionRequest:
    """The decision that was typed."""

    run: str
    gate: str | None
    approval: str | None
    by: str
    reason: str | None
    digest: str | None
    yes: bool
    step_key: str | None
    replace: bool
    as_json: bool
    decision: Literal["approved", "rejected"]
    edited: str | None = None


@click.command()
@click.option("--edit", metavar="JSON", help="Approve this instead, given as JSON, @FILE or -.")
@_at_gate
def approve(*, edit: str | None, by: str | None, database: str | None, **typed: str | bool | None) -> int:
    """Approve what a gate of a run asks.

    Shows what is decided upon, and binds the decision to those very bytes: had they changed meanwhile, nothing is
    decided. In a terminal it asks first, unless --yes is given.
    """
    edited = None if edit is None else stored_text("edited", edit)
    request = _DecisionRequest(decision="approved", edited=edited, by=acting_user(by), **typed)  # type: ignore[arg-type]  # as _AT_GATE says
    return with_client(database, partial(_decide, request=request))


@click.command()
@_at_gate
def reject(*, by: str | None, database: str | None, **typed: str | bool | None) -> int:
    """Reject what a gate of a run asks; otherwise like approve."""
    request = _DecisionRequest(decision="rejected", by=acting_user(by), **typed)  # type: ignore[arg-type]  # as _AT_GATE says
    return with_client(database, partial(_decide, request=request))


async def _decide(session: CommandSession, *, request: _DecisionRequest) -> int:
    approval = await _find_approval(session, request)
    if approval is None:
        return _report(NoSuchApproval(), request, None)
    if not request.as_json:
        show_approval(approval, session.now_ms, request.edited)
        if is_interactive() and not request.yes and not ask_yes(f"{_verb(request)} this as {request.by}?"):
            write_error("belay: nothing was decided")
            return REFUSED
    answer = await session.client.decide(
        approval,
        request.decision,
        by=request.by,
        reason=request.reason,
        edited_text=request.edited,
        digest=request.digest,
        replace=request.replace,
    )
    return _report(answer, request, approval)


async def _find_approval(session: CommandSession, request: _DecisionRequest) -> "ApprovalRecord | None":
    """The approval that is meant: the open one, else the last one, whose decision tells how it ended."""
    history = await session.client.history(request.run)
    still_asked = {each.step_key for each in history.attempts if each.state.value == "waiting"}
    meant = [
        each
        for each in history.approvals
        if request.gate in (None, each.gate)
        and request.approval in (None, each.approval_id)
        and request.step_key in (None, each.step_key)
    ]
    waiting = [each for each in meant if each.decision is None or (request.replace and each.step_key in still_asked)]
    if len(waiting) > 1:
        parameter = "gate" if len({each.gate for each in waiting}) > 1 else "approval_id"
        names = [each.gate if parameter == "gate" else each.approval_id for each in waiting]
        raise InvalidInput(parameter, f"several wait, name one: {', '.join(dict.fromkeys(names))}")
    found = waiting or meant
    return found[-1] if found else None


def _report(answer: "DecideOutcome", request: _DecisionRequest, approval: "ApprovalRecord | None") -> int:
    if request.as_json:
        write_json(_document(answer, request, approval))
    elif isinstance(answer, Decided):
        write_line(_sentence(answer, request))
    else:
        write_error(f"belay: nothing was decided: {_sentence(answer, request)}")
    return DONE if isinstance(answer, Decided) else REFUSED


def _sentence(answer: "DecideOutcome", request: _DecisionRequest) -> str:
    match answer:
        case Decided(decided_at_ms=at_ms):
            edited = "" if request.edited is None else ", as edited"
            return f"{request.decision} by {request.by} at {time_text(at_ms)}{edited}"
        case AlreadyDecided(decision=decision, decided_by=by, decided_at_ms=at_ms):
            return f"already {decision} by {by or 'nobody named'} at {time_text(at_ms)}"
        case SubjectChanged():
            return "the subject is another one than the digest says"
        case TooLate():
            return "it is too late; the gate has lapsed or was withdrawn, or the run is over"
        case NoSuchApproval():
            return f"run {request.run} asks nothing of the kind"
        case _:
            assert_never(answer)


def _document(
    answer: "DecideOutcome", request: _DecisionRequest, approval: "ApprovalRecord | None"
) -> dict[str, JsonValue]:
    """The outcome and its approval; ``decision`` is the stored one, if there is one."""
    document: dict[str, JsonValue] = {
        "run_id": request.run,
        "outcome": OUTCOMES[type(answer)],
        "gate": None if approval is None else approval.gate,
        "approval_id": None if approval is None else approval.approval_id,
        "subject_text": None if approval is None else approval.subject,
        "subject_digest": None if approval is None else approval.subject_digest,
    }
    match answer:
        case Decided(decided_at_ms=at_ms):
            standing: dict[str, JsonValue] = {"decision": request.decision, "decided_by": request.by}
            standing |= {"decided_at": time_text(at_ms), "edited_text": request.edited}
        case AlreadyDecided(decision=decision, decided_by=by, decided_at_ms=at_ms):
            standing = {"decision": decision, "decided_by": by, "decided_at": time_text(at_ms)}
        case _:
            standing = {}
    return document | standing


def _verb(request: _DecisionRequest) -> str:
    if request.decision == "rejected":
        return "reject"
    return "approve" if request.edited is None else "approve the edited form of"


OUTCOMES = {
    Decided: "decided",
    AlreadyDecided: "already_decided",
    SubjectChanged: "subject_changed",
    TooLate: "too_late",
    NoSuchApproval: "no_such_approval",
}
