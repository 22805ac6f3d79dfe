"""The VAT of a UBL document, and the sums of its lines, allowances and charges."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias

from belay_invoices.invoice import LineDifference, Lines, TaxedGroup, UnreadableInvoice, VatLine
from belay_invoices.text import one_line
from belay_invoices.ubl_xml import Node, Term, decimal

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

    There may be a second total in the accounting currency; only the one in the document's currency counts, and only its
    breakdown is read.
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
    # UBL 2.0 had the rate next to the category.
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


MAXIMUM_GROUPS: Final = 500
"""VAT categories and rates of one document."""

_KEPT_TEXTS = 25
_TEXT_LENGTH = 100
_LINE_TOLERANCE = Decimal("0.02")
_ZERO = Decimal(0)

_NET = Term("BT-131", "the line net amount")
_QUANTITY = Term("BT-129", "the invoiced quantity")
_PRICE = Term("BT-146", "the item net price")
_BASE_QUANTITY = Term("BT-149", "the price base quantity")
_LINE_ALLOWANCE = Term("BT-136", "the line allowance amount")
_LINE_CHARGE = Term("BT-141", "the line charge amount")
_ALLOWANCE = Term("BT-92", "the document allowance amount")
_CHARGE = Term("BT-99", "the document charge amount")
_INDICATOR = Term("BG-20, BG-21", "whether it is an allowance or a charge")


@dataclass(slots=True)
class _Group:
    lines: int = 0
    net: Decimal = _ZERO
    allowances: Decimal = _ZERO
    charges: Decimal = _ZERO


@dataclass(slots=True)
class _Sums:
    """What has been added up so far."""

    count: int = 0
    net: Decimal = _ZERO
    allowances: Decimal = _ZERO
    allowance_count: int = 0
    charges: Decimal = _ZERO
    charge_count: int = 0
    uncategorised: int = 0
    differing: int = 0
    first_difference: LineDifference | None = None
    groups: dict[TaxKey, _Group] = field(default_factory=dict[TaxKey, _Group])
    items: dict[str, None] = field(default_factory=dict[str, None])
    classifications: dict[str, None] = field(default_factory=dict[str, None])

    def group(self, key: TaxKey) -> _Group:
        if len(self.groups) >= MAXIMUM_GROUPS and key not in self.groups:
            raise UnreadableInvoice(
                "too_large", f"there are more than {MAXIMUM_GROUPS} different VAT categories and rates"
            )
        return self.groups.setdefault(key, _Group())


def add_up(document: Node) -> Lines:
    """The sums of a document's lines, allowances and charges."""
    sums = _Sums()
    for line in document_lines(document):
        _add_line(sums, line)
    for allowance in document.each("cac:AllowanceCharge"):
        _add_allowance(sums, allowance)
    return Lines(
        count=sums.count,
        net=sums.net,
        allowances=sums.allowances,
        allowance_count=sums.allowance_count,
        charges=sums.charges,
        charge_count=sums.charge_count,
        groups=tuple(
            TaxedGroup(category, rate, group.lines, group.net, group.allowances, group.charges)
            for (category, rate), group in sums.groups.items()
        ),
        uncategorised=sums.uncategorised,
        differing=sums.differing,
        first_difference=sums.first_difference,
        items=tuple(sums.items),
        classifications=tuple(sums.classifications),
    )


def document_lines(document: Node) -> Iterator[Node]:
    """The lines of an invoice or credit note, each with its position in its path.

    Lines within lines (an extension) are left out: the line around them already holds their sum.
    """
    for name in ("cac:InvoiceLine", "cac:CreditNoteLine"):
        for position, line in enumerate(document.each(name), start=1):
            yield Node(line.element, f"{line.path}[{position}]")


def _add_line(sums: _Sums, line: Node) -> None:
    net = line.required_value(decimal, "cbc:LineExtensionAmount", _NET)
    sums.count += 1
    sums.net += net
    key = line_category(line)
    sums.uncategorised += key[0] is None
    group = sums.group(key)
    group.lines += 1
    group.net += net
    expected = _expected_net(line)
    if abs(net - expected) > _LINE_TOLERANCE:
        sums.differing += 1
        sums.first_difference = sums.first_difference or LineDifference(sums.count, expected, net)
    _keep(sums.items, line.text("cac:Item/cbc:Name") or line.text("cac:Item/cbc:Description"))
    for code in line.each("cac:Item/cac:CommodityClassification/cbc:ItemClassificationCode"):
        _keep(sums.classifications, (code.element.text or "").strip())


def _keep(kept: dict[str, None], text: str | None) -> None:
    if text and len(kept) < _KEPT_TEXTS:
        kept[one_line(text, _TEXT_LENGTH)] = None


def _expected_net(line: Node) -> Decimal:
    """Quantity times price for the base quantity, less allowances, plus charges, to four decimals."""
    quantity = line.number("cbc:InvoicedQuantity", _QUANTITY)
    if quantity is None:
        quantity = line.number("cbc:CreditedQuantity", _QUANTITY)
    price = line.number("cac:Price/cbc:PriceAmount", _PRICE)
    base = line.number("cac:Price/cbc:BaseQuantity", _BASE_QUANTITY)
    expected = (Decimal(1) if quantity is None else quantity) * (price or _ZERO) / (base or Decimal(1))
    for allowance in line.each("cac:AllowanceCharge"):
        if is_charge(allowance):
            expected += allowance.number("cbc:Amount", _LINE_CHARGE) or _ZERO
        else:
            expected -= allowance.number("cbc:Amount", _LINE_ALLOWANCE) or _ZERO
    return round(expected, 4)


def _add_allowance(sums: _Sums, allowance: Node) -> None:
    charge = is_charge(allowance)
    amount = allowance.required_value(decimal, "cbc:Amount", _CHARGE if charge else _ALLOWANCE)
    group = sums.group(allowance_category(allowance))
    if charge:
        sums.charges += amount
        sums.charge_count += 1
        group.charges += amount
    else:
        sums.allowances += amount
        sums.allowance_count += 1
        group.allowances += amount


def is_charge(allowance: Node) -> bool:
    """Whether an AllowanceCharge adds; ``xs:boolean`` knows 1 and 0 as well."""
    written = allowance.required("cbc:ChargeIndicator", _INDICATOR).casefold()
    if written not in ("true", "false", "1", "0"):
        raise UnreadableInvoice(
            "bad_value", f"{_INDICATOR} at {allowance.path}/cbc:ChargeIndicator is neither true nor false"
        )
    return written in ("true", "1")
