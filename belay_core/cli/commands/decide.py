"""``belay approve`` and ``belay reject``."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, assert_never

import click

from belay_core.cli import options
from belay_core.cli.approval_text import show_asked
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE, REFUSED
from belay_core.cli.identity import who
from belay_core.cli.json_input import stored_text
from belay_core.cli.output import ask, complain, emit, may_ask, say
from belay_core.cli.time_text import moment
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
class _Wish:
    """What was typed."""

    run: str
    gate: str | None
    approval: str | None
    by: str
    reason: str | None
    digest: str | None
    yes: bool
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
    wish = _Wish(decision="approved", edited=edited, by=who(by), **typed)  # type: ignore[arg-type]  # as _AT_GATE says
    return with_client(database, partial(_decide, wish=wish))


@click.command()
@_at_gate
def reject(*, by: str | None, database: str | None, **typed: str | bool | None) -> int:
    """Reject what a gate of a run asks; in all else like approve."""
    wish = _Wish(decision="rejected", by=who(by), **typed)  # type: ignore[arg-type]  # as _AT_GATE says
    return with_client(database, partial(_decide, wish=wish))


async def _decide(session: CommandSession, *, wish: _Wish) -> int:
    asked = await _asked(session, wish)
    if asked is None:
        return _tell(NoSuchApproval(), wish, None)
    if not wish.as_json:
        show_asked(asked, session.now_ms, wish.edited)
        if may_ask() and not wish.yes and not ask(f"{_verb(wish)} this as {wish.by}?"):
            complain("belay: nothing was decided")
            return REFUSED
    answer = await session.client.decide(
        asked,
        wish.decision,
        by=wish.by,
        reason=wish.reason,
        edited_text=wish.edited,
        digest=wish.digest,
    )
    return _tell(answer, wish, asked)


async def _asked(session: CommandSession, wish: _Wish) -> "ApprovalRecord | None":
    """The asking that is meant: the one that is open, else the last that was; its answer says how it ended."""
    meant = [
        each
        for each in (await session.client.history(wish.run)).approvals
        if wish.gate in (None, each.gate) and wish.approval in (None, each.approval_id)
    ]
    waiting = [each for each in meant if each.decision is None]
    if len(waiting) > 1:
        parameter = "gate" if len({each.gate for each in waiting}) > 1 else "approval_id"
        names = [each.gate if parameter == "gate" else each.approval_id for each in waiting]
        raise InvalidInput(parameter, f"several wait, name one: {', '.join(dict.fromkeys(names))}")
    found = waiting or meant
    return found[-1] if found else None


def _tell(answer: "DecideOutcome", wish: _Wish, asked: "ApprovalRecord | None") -> int:
    if wish.as_json:
        emit(_document(answer, wish, asked))
    elif isinstance(answer, Decided):
        say(_sentence(answer, wish))
    else:
        complain(f"belay: nothing was decided: {_sentence(answer, wish)}")
    return DONE if isinstance(answer, Decided) else REFUSED


def _sentence(answer: "DecideOutcome", wish: _Wish) -> str:
    match answer:
        case Decided(decided_at_ms=at_ms):
            edited = "" if wish.edited is None else ", as edited"
            return f"{wish.decision} by {wish.by} at {moment(at_ms)}{edited}"
        case AlreadyDecided(decision=decision, decided_by=by, decided_at_ms=at_ms):
            return f"already {decision} by {by or 'nobody named'} at {moment(at_ms)}"
        case SubjectChanged():
            return "the subject is another one than the digest says"
        case TooLate():
            return "it is too late; the gate has lapsed or was withdrawn, or the run is over"
        case NoSuchApproval():
            return f"run {wish.run} asks nothing of the kind"
        case _:
            assert_never(answer)


def _document(answer: "DecideOutcome", wish: _Wish, asked: "ApprovalRecord | None") -> dict[str, JsonValue]:
    """The outcome, and what it is about; ``decision`` is the one that stands, where one does."""
    document: dict[str, JsonValue] = {
        "run_id": wish.run,
        "outcome": OUTCOMES[type(answer)],
        "gate": None if asked is None else asked.gate,
        "approval_id": None if asked is None else asked.approval_id,
        "subject_text": None if asked is None else asked.subject,
        "subject_digest": None if asked is None else asked.subject_digest,
    }
    match answer:
        case Decided(decided_at_ms=at_ms):
            standing: dict[str, JsonValue] = {"decision": wish.decision, "decided_by": wish.by}
            standing |= {"decided_at": moment(at_ms), "edited_text": wish.edited}
        case AlreadyDecided(decision=decision, decided_by=by, decided_at_ms=at_ms):
            standing = {"decision": decision, "decided_by": by, "decided_at": moment(at_ms)}
        case _:
            standing = {}
    return document | standing


def _verb(wish: _Wish) -> str:
    if wish.decision == "rejected":
        return "reject"
    return "approve" if wish.edited is None else "approve the edited form of"


OUTCOMES = {
    Decided: "decided",
    AlreadyDecided: "already_decided",
    SubjectChanged: "subject_changed",
    TooLate: "too_late",
    NoSuchApproval: "no_such_approval",
}
