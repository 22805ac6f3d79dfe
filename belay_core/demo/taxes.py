"""Reading VAT: categories and rates wherever they stand, totals, and the breakdown."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from belay_core.demo.fields import Node, Term
from belay_core.demo.invoice import VatLine
from belay_core.demo.text import one_line
from belay_core.demo.unreadable import UnreadableInvoice

TaxKey: TypeAlias = tuple[str | None, Decimal | None]
"""A VAT category code and a rate in per cent."""

MAXIMUM_VAT_LINES: Final = 500
"""Groups of the VAT breakdown of one document."""

_CODE_LENGTH = 40
_VAT_SCHEMES = ("VAT", "GST")

_VAT = Term("BT-110", "the total VAT amount")
_ACCOUNTING_VAT = Term("BT-111", "the total VAT amount in accounting currency")
_RATE = Term("BT-119", "the VAT category rate")
_TAXABLE = Term("BT-116", "the VAT category taxable amount")
_TAX = Term("BT-117", "the VAT category tax amount")
_ITEM_RATE = Term("BT-152", "the item VAT rate")
_ALLOWANCE_RATE = Term("BT-96, BT-103", "the VAT rate of an allowance or charge")


@dataclass(frozen=True, slots=True)
class Taxes:
    """The VAT totals of a document, and its breakdown."""

    total: Decimal | None
    total_count: int
    accounting_total: Decimal | None
    lines: tuple[VatLine, ...]


def read_taxes(document: Node, currency: str, tax_currency: str | None) -> Taxes:
    """What the document's tax totals say.

    A total in the accounting currency stands beside the one in the document's currency; only the latter counts,
    and only its breakdown is read.
    """
    totals: list[Decimal] = []
    accounting: Decimal | None = None
    lines: list[VatLine] = []
    for total in document.each("cac:TaxTotal"):
        written_in = total.currency_of("cbc:TaxAmount") or currency
        if written_in != currency:
            if written_in == tax_currency:
                accounting = total.number("cbc:TaxAmount", _ACCOUNTING_VAT)
            continue
        amount = total.number("cbc:TaxAmount", _VAT)
        if amount is not None:
            totals.append(amount)
        lines.extend(_breakdown(total))
        if len(lines) > MAXIMUM_VAT_LINES:
            raise UnreadableInvoice("too_large", f"the VAT breakdown has more than {MAXIMUM_VAT_LINES} groups")
    return Taxes(sum(totals, Decimal(0)) if totals else None, len(totals), accounting, tuple(lines))


def line_category(line: Node) -> TaxKey:
    """The VAT category and rate of a line; older uses of UBL keep them in a tax total of the line."""
    category = _vat_among(line.each("cac:Item/cac:ClassifiedTaxCategory"))
    if category is not None:
        return _code(category), category.number("cbc:Percent", _ITEM_RATE)
    subtotals = line.each("cac:TaxTotal/cac:TaxSubtotal")
    return next((_subtotal_key(subtotal, _ITEM_RATE) for subtotal in subtotals), (None, None))


def allowance_category(allowance: Node) -> TaxKey:
    """The VAT category and rate of a document level allowance or charge."""
    category = _vat_among(allowance.each("cac:TaxCategory"))
    return (None, None) if category is None else (_code(category), category.number("cbc:Percent", _ALLOWANCE_RATE))


def _breakdown(total: Node) -> Iterator[VatLine]:
    for subtotal in total.each("cac:TaxSubtotal"):
        category, rate = _subtotal_key(subtotal, _RATE)
        yield VatLine(
            category=category,
            rate=rate,
            taxable=subtotal.number("cbc:TaxableAmount", _TAXABLE),
            tax=subtotal.number("cbc:TaxAmount", _TAX),
            has_reason=any(
                subtotal.text(f"cac:TaxCategory/cbc:{name}") is not None
                for name in ("TaxExemptionReason", "TaxExemptionReasonCode")
            ),
        )


def _subtotal_key(subtotal: Node, rate: Term) -> TaxKey:
    category = _vat_among(subtotal.each("cac:TaxCategory"))
    percent = None if category is None else category.number("cbc:Percent", rate)
    # UBL 2.0 had the rate beside the category.
    return _code(category), subtotal.number("cbc:Percent", rate) if percent is None else percent


def _vat_among(categories: Iterator[Node]) -> Node | None:
    """The category of VAT among those of all taxes, or the first where none says that it is VAT."""
    found = list(categories)
    for category in found:
        if (category.text("cac:TaxScheme/cbc:ID") or "").upper() in _VAT_SCHEMES:
            return category
    return found[0] if found else None


def _code(category: Node | None) -> str | None:
    found = None if category is None else category.text("cbc:ID")
    return None if found is None else one_line(found, _CODE_LENGTH)
