"""The conversation about one booking with whoever decides: questions go out, lines come in."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

from belay_core.demo.booking import Booking, objection_to_amount, objection_to_cost_centre
from belay_core.demo.money import shown
from belay_core.demo.rules import COST_CENTRES

QUESTION: Final = "[a]pprove, [e]dit, [r]eject or [s]kip?"

_MOST_REASON = 1_000
_NUMBER = 100


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve, as shown or as edited."""

    edited: Booking | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject, with a reason where one was given."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave it undecided."""


Decision: TypeAlias = Approve | Reject | Skip
Conversation: TypeAlias = Generator[tuple[str, ...], str, Decision]
"""Yields lines to show, of which the last is the question, is sent the line that answers it, and gives a decision."""


def described(booking: Booking) -> list[str]:
    """Everything an approver needs to see, a line each."""
    due = "" if booking.due_date is None else f", due {booking.due_date}"
    ids = f" ({', '.join(booking.supplier_ids)})" if booking.supplier_ids else ""
    lines = [
        f"{booking.document}",
        f"  {booking.kind} {booking.number} of {booking.issue_date}{due}",
        f"  from         {booking.supplier}{ids}",
        f"  to           {booking.buyer or 'nobody named'}",
        f"  for          {'; '.join(booking.items) or 'no items'}",
        f"  amount       {shown(booking.amount, booking.currency)}",
        f"  cost centre  {_cost_centre(booking.cost_centre)}, by the rule: {booking.assigned_by}",
        *(f"  asked as     {reason}" for reason in booking.asks),
    ]
    if booking.objection is not None:
        lines.append(f"  asked again  the edit before this was not taken: {booking.objection}")
    return lines


def converse(booking: Booking) -> Conversation:
    """Ask until there is a decision."""
    lines: tuple[str, ...] = ()
    while True:
        answer = (yield (*lines, QUESTION)).strip().casefold()
        lines = ()
        if answer in {"a", "approve"}:
            return Approve()
        if answer in {"s", "skip"}:
            return Skip()
        if answer in {"r", "reject"}:
            reason = (yield ("why? (may be left empty)",)).strip()
            return Reject(reason[:_MOST_REASON] or None)
        if answer in {"e", "edit"}:
            edited = yield from _edit(booking)
            told = f"cost centre {_cost_centre(edited.cost_centre)}, amount {shown(edited.amount, edited.currency)}"
            if (yield (told, "approve this? [y/n]")).strip().casefold() in {"y", "yes"}:
                return Approve(edited)
            continue
        lines = ("a, e, r or s, please",)


def _edit(booking: Booking) -> Generator[tuple[str, ...], str, Booking]:
    """The booking as the approver wants it; an empty line keeps what is shown."""
    complaint: tuple[str, ...] = tuple(f"  {number}  {name}" for number, name in COST_CENTRES.items())
    while True:
        cost_centre = (yield (*complaint, f"cost centre [{booking.cost_centre}]:")).strip() or booking.cost_centre
        against = objection_to_cost_centre(cost_centre)
        if against is None:
            break
        complaint = (against,)
    complaint = ()
    while True:
        text = (yield (*complaint, f"amount [{shown(booking.amount, booking.currency)}]:")).strip()
        amount = _amount(text) if text else booking.amount
        against = "That is no amount, such as 1234.50." if amount is None else objection_to_amount(booking, amount)
        if amount is not None and against is None:
            return replace(booking, cost_centre=cost_centre, amount=amount, objection=None)
        complaint = (against or "",)


def _amount(text: str) -> Decimal | None:
    try:
        return Decimal(text) if len(text) <= _NUMBER else None
    except InvalidOperation:
        return None


def _cost_centre(number: str) -> str:
    return f"{number} {COST_CENTRES[number]}" if number in COST_CENTRES else number
