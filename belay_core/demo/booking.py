"""What a run of the demo is given, and what is shown at its gate, decided upon, and posted."""

import os
from dataclasses import dataclass, fields
from datetime import date
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote_to_bytes

from belay_core.demo.currencies import DECIMALS, from_minor_units, is_whole, minor_units
from belay_core.demo.invoice import Finding, Invoice, Kind
from belay_core.demo.ledger import Entry
from belay_core.demo.money import shown
from belay_core.demo.rules import COST_CENTRES, Assignment, approval_limit

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
    """The call of the demo that started the run."""
    duplicate_of: str | None
    """The name of an earlier document of the same inbox that is the same invoice."""
    moment_ms: int
    """How long a slow step takes, in milliseconds: long enough to be killed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """One document as it is to be booked; with ``asks`` a person decides first."""

    # An edit with a name that is none of these is a slip, and going on without it would be worse than stopping.
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
    """Why the edit that was made before is not taken."""


def uri_of(path: Path) -> str:
    """A path as text that any JSON holds, also where the path's bytes are no text."""
    return path.absolute().as_uri()


def path_of(uri: str) -> Path:
    """The path behind what ``uri_of`` gave."""
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix(_SCHEME))))


def booking_for(invoice: Invoice, name: str, assignment: Assignment, findings: tuple[Finding, ...]) -> Booking:
    """How the document is booked where nobody changes it."""
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


def reasons_to_ask(invoice: Invoice, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Why a person decides: what was found, and an amount above the limit; empty where ``needs_approval`` says no."""
    limit = approval_limit(invoice.currency)
    above = abs(invoice.totals.payable) > limit
    reasons = [str(finding) for finding in findings]
    return (*reasons, f"The amount is above the limit of {shown(limit, invoice.currency)}.") if above else (*reasons,)


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


def objection(offered: Booking, edited: Booking) -> str | None:
    """What speaks against an approver's edit; None where it may be taken."""
    names = [field.name for field in fields(Booking) if field.name not in (*EDITABLE, "objection")]
    changed = [name for name in names if getattr(offered, name) != getattr(edited, name)]
    if changed:
        return f"Only {' and '.join(EDITABLE)} may be edited, not {', '.join(changed)}."
    return objection_to_cost_centre(edited.cost_centre) or objection_to_amount(offered, edited.amount)


def objection_to_cost_centre(cost_centre: str) -> str | None:
    """What speaks against a cost centre: only that there is none of this number."""
    if cost_centre in COST_CENTRES:
        return None
    return f"There is no such cost centre; there are {', '.join(COST_CENTRES)}."


def objection_to_amount(offered: Booking, amount: Decimal) -> str | None:
    """What speaks against booking this amount: the sign, more than the document asks for, or unpayable decimals."""
    if amount == offered.amount:
        return None
    most = _rounded_up(abs(offered.amount), offered.currency)
    if not amount.is_finite() or len(amount.as_tuple().digits) > _MOST_DIGITS or abs(amount) > most:
        return f"The amount may not be more than the document asks for, {shown(most, offered.currency)}."
    if amount.is_signed() != offered.amount.is_signed() or not amount:
        return "The amount must have the sign of what the document asks for, and not be nothing."
    if not is_whole(amount, offered.currency):
        return "The amount has more decimals than the currency."
    return None


def _rounded_up(amount: Decimal, currency: str) -> Decimal:
    """What can be paid at all, and is not less."""
    units = amount.scaleb(DECIMALS.get(currency, 2)).to_integral_value(ROUND_CEILING)
    return from_minor_units(int(units), currency)
