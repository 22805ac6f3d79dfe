"""What a run is given, what its gate shows to an approver, what an approver may change, and what is posted."""

import os
from dataclasses import dataclass, fields
from datetime import date
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote_to_bytes

from belay_invoices.invoice import Finding, Invoice, Kind
from belay_invoices.ledger import Entry
from belay_invoices.money import DECIMALS, amount_text, from_minor_units, is_whole, minor_units
from belay_invoices.policy import COST_CENTRES, Assignment, reasons_to_ask

EDITABLE: Final = ("cost_centre", "amount")
"""What an approver may change; everything else is what the document says."""

_MOST_DIGITS = 30
_SCHEME = "file://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The input of a run: one document, and where its bookings go. Files are named by URI, whatever their bytes."""

    document: str
    name: str
    """The document's file name, made visible."""
    ledger: str
    filed: str
    batch: str
    """The call of ``belay demo`` that started the run."""
    duplicate_of: str | None
    """The name of an earlier document of the same inbox that is the same invoice."""
    step_ms: int
    """How long a slow step takes, in milliseconds: long enough to be killed in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """One document as it is to be booked; with ``asks`` a person decides first."""

    # An edit of a field that does not exist is a slip, and going on without it would be worse than stopping.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    document: str
    kind: Kind
    number: str
    supplier: str
    supplier_ids: tuple[str, ...]
    buyer: str | None
    issue_date: date
    due_date: date | None
    items: tuple[str, ...]
    amount: Decimal
    """As the buyer books it: negative for a credit note."""
    currency: str
    cost_centre: str
    assigned_by: str
    """The rule that chose the cost centre."""
    asks: tuple[str, ...]
    """Why a person is asked."""
    document_key: str
    digest: str
    """SHA-256 of the document."""
    objection: str | None = None
    """Why the edit before this was refused."""


def uri_of(path: Path) -> str:
    """A path as text that JSON can hold, even where the bytes of the path are no text."""
    return path.absolute().as_uri()


def path_of(uri: str) -> Path:
    """The path behind what ``uri_of`` gave."""
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix(_SCHEME))))


def booking_for(invoice: Invoice, name: str, assignment: Assignment, findings: tuple[Finding, ...]) -> Booking:
    """How the document is booked unless an approver changes it."""
    supplier = invoice.supplier
    return Booking(
        document=name,
        kind=invoice.kind,
        number=invoice.number,
        supplier=supplier.name,
        supplier_ids=tuple(each for each in (supplier.vat_id, supplier.legal_id, supplier.country) if each),
        buyer=None if invoice.buyer is None else invoice.buyer.name,
        issue_date=invoice.issue_date,
        due_date=invoice.due_date,
        items=invoice.lines.items,
        amount=invoice.signed_payable,
        currency=invoice.currency,
        cost_centre=assignment.cost_centre,
        assigned_by=assignment.rule,
        asks=reasons_to_ask(invoice, findings),
        document_key=invoice.document_keys[0],
        digest=invoice.digest,
    )


def entry_of(booking: Booking) -> Entry:
    """What is posted.

    Raises:
        InexactAmount: The amount is no whole number of the currency's smallest unit.
    """
    return Entry(
        kind=booking.kind.value,
        document_key=booking.document_key,
        supplier=booking.supplier,
        number=booking.number,
        issue_date=booking.issue_date.isoformat(),
        currency=booking.currency,
        amount_minor=minor_units(booking.amount, booking.currency),
        cost_centre=booking.cost_centre,
        digest=booking.digest,
    )


def objection(proposed: Booking, edited: Booking) -> str | None:
    """Why an approver's edit is refused; None where it is accepted."""
    names = [field.name for field in fields(Booking) if field.name not in (*EDITABLE, "objection")]
    changed = [name for name in names if getattr(proposed, name) != getattr(edited, name)]
    if changed:
        return f"Only {' and '.join(EDITABLE)} may be edited, not {', '.join(changed)}."
    return objection_to_cost_centre(edited.cost_centre) or objection_to_amount(proposed, edited.amount)


def objection_to_cost_centre(cost_centre: str) -> str | None:
    """Why a cost centre is refused: there is none of this number. None where it is accepted."""
    if cost_centre in COST_CENTRES:
        return None
    return f"There is no such cost centre; there are {', '.join(COST_CENTRES)}."


def objection_to_amount(proposed: Booking, amount: Decimal) -> str | None:
    """Why an amount is refused: its sign, more than the document asks for, or unpayable decimals; else None."""
    if amount == proposed.amount:
        return None
    most = _rounded_up(abs(proposed.amount), proposed.currency)
    if not amount.is_finite() or len(amount.as_tuple().digits) > _MOST_DIGITS or abs(amount) > most:
        return f"The amount may not be more than the document asks for, {amount_text(most, proposed.currency)}."
    if amount.is_signed() != proposed.amount.is_signed() or not amount:
        return "The amount must have the sign of what the document asks for, and not be nothing."
    if not is_whole(amount, proposed.currency):
        return "The amount has more decimals than the currency."
    return None


def _rounded_up(amount: Decimal, currency: str) -> Decimal:
    """The smallest amount that can be paid and is not less."""
    units = amount.scaleb(DECIMALS.get(currency, 2)).to_integral_value(ROUND_CEILING)
    return from_minor_units(int(units), currency)
