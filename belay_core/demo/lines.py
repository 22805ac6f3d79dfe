"""Adding up the lines, allowances and charges of a document."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from belay_core.demo.fields import Node, Term
from belay_core.demo.invoice import LineDifference, Lines, TaxedGroup
from belay_core.demo.taxes import TaxKey, allowance_category, line_category
from belay_core.demo.text import one_line
from belay_core.demo.unreadable import UnreadableInvoice

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
    net = line.number("cbc:LineExtensionAmount", _NET)
    if net is None:
        raise UnreadableInvoice("missing_field", f"{_NET} is missing at {line.path}/cbc:LineExtensionAmount")
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
    amount = allowance.number("cbc:Amount", _CHARGE if charge else _ALLOWANCE)
    if amount is None:
        raise UnreadableInvoice(
            "missing_field", f"{_CHARGE if charge else _ALLOWANCE} is missing at {allowance.path}/cbc:Amount"
        )
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
