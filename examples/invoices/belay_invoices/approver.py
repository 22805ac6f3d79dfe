"""Who decides at the gates: nobody, the demo itself, or a person at the terminal, who is asked about each booking."""

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final, Literal, Protocol, TypeAlias

from pydantic import TypeAdapter, ValidationError

from belay_core import AlreadyDecided, ApprovalRecord, Client, Decided, RunSummary
from belay_invoices.booking import Booking, objection_to_amount, objection_to_cost_centre
from belay_invoices.money import amount_text
from belay_invoices.policy import COST_CENTRES
from belay_invoices.terminal import Keyboard, Screen

APPROVES_ALL: Final = "demo"
"""The name under which ``--approve all`` decides."""
QUESTION: Final = "[a]pprove, [e]dit, [r]eject or [s]kip?"

_BOOKING: Final = TypeAdapter(Booking)
_MAX_REASON: Final = 1_000
_MAX_NUMBER: Final = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person wants at a gate; ``edited`` is the booking to post instead of the one that was shown."""

    verb: Literal["approve", "reject", "skip"]
    edited: Booking | None = None
    reason: str | None = None


Dialogue: TypeAlias = Generator[tuple[str, ...], str, Answer]
"""Yields lines to show, of which the last is a question; is sent the line that answers it; returns the answer."""


class Approver(Protocol):
    """Decides at gates."""

    @abstractmethod
    def may_decide(self, run_id: str) -> bool:
        """Whether a decision on this run may still come from here."""

    @abstractmethod
    async def decide(self, waiting: Sequence[RunSummary]) -> None:
        """Decide, or continue to ask about, what these runs wait for. Called again and again."""


class ApproveNothing(Approver):
    """Leaves every gate open."""

    def may_decide(self, run_id: str) -> bool:  # noqa: ARG002  (the protocol's signature)
        """Never."""
        return False

    async def decide(self, waiting: Sequence[RunSummary]) -> None:
        """Do nothing."""


class ApproveAll(Approver):
    """Approves everything as it is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def may_decide(self, run_id: str) -> bool:  # noqa: ARG002  (the protocol's signature)
        """Always."""
        return True

    async def decide(self, waiting: Sequence[RunSummary]) -> None:
        """Approve."""
        for run in waiting:
            for approval in await self._client.approvals(run.run_id):
                await self._client.decide(approval, "approved", by=APPROVES_ALL)


class AskAtTerminal(Approver):
    """Asks about one run after the other; a question that is decided elsewhere meanwhile is withdrawn."""

    def __init__(self, client: Client, keyboard: Keyboard, screen: Screen, by: str) -> None:
        self._client = client
        self._keyboard = keyboard
        self._screen = screen
        self._by = by
        self._skipped: set[str] = set()
        self._open: tuple[ApprovalRecord, Dialogue] | None = None

    def may_decide(self, run_id: str) -> bool:
        """Until the run is skipped or the terminal is closed."""
        return not self._keyboard.is_closed and run_id not in self._skipped

    async def decide(self, waiting: Sequence[RunSummary]) -> None:
        """Continue with the question that is open, or open the next one."""
        if self._open is not None:
            await self._continue(*self._open)
            return
        for run in waiting:
            if self.may_decide(run.run_id) and (approvals := await self._client.approvals(run.run_id)):
                self._ask(approvals[0])
                return

    def _ask(self, approval: ApprovalRecord) -> None:
        try:
            booking = _BOOKING.validate_json(approval.subject)
        except ValidationError:
            # Another version of this package wrote it: what cannot be shown cannot be decided here.
            self._skipped.add(approval.run_id)
            return
        dialogue = ask_about(booking)
        self._open = approval, dialogue
        self._screen.open_question(description(booking))
        self._keyboard.discard()
        self._show(next(dialogue))

    async def _continue(self, approval: ApprovalRecord, dialogue: Dialogue) -> None:
        if (outcome := await self._decided_elsewhere(approval)) is not None:
            dialogue.close()
            self._screen.write_now("")
            self._close(outcome)
        elif self._keyboard.is_closed:
            self._screen.write_now("")
            self._close("no more input; what waits stays undecided")
        while self._open is not None and (line := self._keyboard.next_line()) is not None:
            try:
                self._show(dialogue.send(line))
            except StopIteration as ended:
                self._close(await self._carry_out(approval, ended.value))

    def _show(self, lines: Sequence[str]) -> None:
        for line in lines[:-1]:
            self._screen.write_now(line)
        self._screen.prompt(lines[-1])

    def _close(self, outcome: str) -> None:
        self._screen.write_now(outcome)
        self._screen.close_question()
        self._open = None

    async def _decided_elsewhere(self, approval: ApprovalRecord) -> str | None:
        """How the open question was decided elsewhere; None where it is still open."""
        if any(each.approval_id == approval.approval_id for each in await self._client.approvals(approval.run_id)):
            return None
        history = await self._client.history(approval.run_id)
        found = next((each for each in history.approvals if each.approval_id == approval.approval_id), None)
        if found is None or found.decision is None or found.decided_by is None:
            return "no longer asked"
        return f"decided elsewhere: {found.decision} by {found.decided_by}"

    async def _carry_out(self, approval: ApprovalRecord, answer: Answer) -> str:
        """Decide as the person wants, bound to what was shown; what came of it."""
        if answer.verb == "skip":
            self._skipped.add(approval.run_id)
            return "skipped: it stays undecided"
        outcome = await self._client.decide(
            approval,
            "rejected" if answer.verb == "reject" else "approved",
            by=self._by,
            reason=answer.reason,
            edited_text=None if answer.edited is None else _BOOKING.dump_json(answer.edited).decode(),
        )
        match outcome:
            case Decided():
                return "rejected" if answer.verb == "reject" else "approved as edited" if answer.edited else "approved"
            case AlreadyDecided(decision=decision, decided_by=by):
                return f"not decided here: already {decision} by {by or 'an unknown person'}"
            case _:
                return "not decided: it is too late, or what is asked about has changed"


def description(booking: Booking) -> list[str]:
    """Everything an approver needs to see, a line each."""
    due = "" if booking.due_date is None else f", due {booking.due_date}"
    ids = f" ({', '.join(booking.supplier_ids)})" if booking.supplier_ids else ""
    lines = [
        f"{booking.document}",
        f"  {booking.kind} {booking.number} of {booking.issue_date}{due}",
        f"  from         {booking.supplier}{ids}",
        f"  to           {booking.buyer or 'nobody named'}",
        f"  for          {'; '.join(booking.items) or 'no items'}",
        f"  amount       {amount_text(booking.amount, booking.currency)}",
        f"  cost centre  {_cost_centre(booking.cost_centre)}, by the rule: {booking.assigned_by}",
        *(f"  asked as     {reason}" for reason in booking.asks),
    ]
    if booking.objection is not None:
        lines.append(f"  asked again  the edit before this was refused: {booking.objection}")
    return lines


def ask_about(booking: Booking) -> Dialogue:
    """Ask until there is an answer."""
    lines: tuple[str, ...] = ()
    while True:
        typed = (yield (*lines, QUESTION)).strip().casefold()
        lines = ()
        if typed in {"a", "approve"}:
            return Answer("approve")
        if typed in {"s", "skip"}:
            return Answer("skip")
        if typed in {"r", "reject"}:
            reason = (yield ("why? (may be left empty)",)).strip()
            return Answer("reject", reason=reason[:_MAX_REASON] or None)
        if typed in {"e", "edit"}:
            edited = yield from _edit(booking)
            amount = amount_text(edited.amount, edited.currency)
            summary = f"cost centre {_cost_centre(edited.cost_centre)}, amount {amount}"
            if (yield (summary, "approve this? [y/n]")).strip().casefold() in {"y", "yes"}:
                return Answer("approve", edited)
            continue
        lines = ("a, e, r or s, please",)


def _edit(booking: Booking) -> Generator[tuple[str, ...], str, Booking]:
    """The booking as the approver wants it; an empty line keeps the value that is shown."""
    complaint: tuple[str, ...] = tuple(f"  {number}  {name}" for number, name in COST_CENTRES.items())
    while True:
        cost_centre = (yield (*complaint, f"cost centre [{booking.cost_centre}]:")).strip() or booking.cost_centre
        against = objection_to_cost_centre(cost_centre)
        if against is None:
            break
        complaint = (against,)
    complaint = ()
    while True:
        text = (yield (*complaint, f"amount [{amount_text(booking.amount, booking.currency)}]:")).strip()
        amount = _amount(text) if text else booking.amount
        against = "That is no amount, such as 1234.50." if amount is None else objection_to_amount(booking, amount)
        if amount is not None and against is None:
            return replace(booking, cost_centre=cost_centre, amount=amount, objection=None)
        complaint = (against or "",)


def _amount(text: str) -> Decimal | None:
    try:
        return Decimal(text) if len(text) <= _MAX_NUMBER else None
    except InvalidOperation:
        return None


def _cost_centre(number: str) -> str:
    return f"{number} {COST_CENTRES[number]}" if number in COST_CENTRES else number
