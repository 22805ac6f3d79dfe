"""VAT: the breakdown by category and rate, as EN 16931 has it."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from belay_invoices.invoice import Finding, Invoice, Profile, TaxedGroup, VatLine
from belay_invoices.money import amount_text, has_more_decimals, to_cents, to_whole

_ZERO = Decimal(0)
_ONE = Decimal(1)
_HUNDRED = Decimal(100)


@dataclass(frozen=True, slots=True)
class _Category:
    """What EN 16931 says about one VAT category."""

    rules: str
    """How its rules are called: BR-<this>-08 and so on."""
    name: str
    taxed: bool
    """Whether VAT is charged, at one or more rates; each rate has a group of its own in the breakdown."""
    reason: bool | None
    """Whether an exemption reason is demanded, or forbidden; None where either will do."""


_CATEGORIES: dict[str, _Category] = {
    "S": _Category("S", "standard rated", taxed=True, reason=False),
    "Z": _Category("Z", "zero rated", taxed=False, reason=False),
    "E": _Category("E", "exempt from VAT", taxed=False, reason=True),
    "AE": _Category("AE", "reverse charge", taxed=False, reason=True),
    "K": _Category("IC", "intra-community supply", taxed=False, reason=True),
    "G": _Category("G", "export outside the EU", taxed=False, reason=True),
    "O": _Category("O", "not subject to VAT", taxed=False, reason=True),
    "L": _Category("AF", "IGIC", taxed=True, reason=False),
    "M": _Category("AG", "IPSI", taxed=True, reason=False),
    "B": _Category("B", "split payment", taxed=True, reason=None),
}


def check_vat(invoice: Invoice) -> Iterable[Finding]:
    """Whether the VAT breakdown is there, adds up, and fits the lines."""
    strict = invoice.profile in (Profile.EN16931, Profile.EXTENSION)
    if strict:
        yield from _check_presence(invoice)
        yield from _check_accounting_total(invoice)
    yield from _check_total(invoice)
    for line in invoice.vat_lines:
        yield from _check_tax(invoice, line)
        if strict:
            yield from _check_group_fields(invoice, line)
            yield from _check_category(invoice, line)
    if strict:
        yield from _check_against_lines(invoice)
        yield from _check_rates_of_lines(invoice)


def _check_presence(invoice: Invoice) -> Iterable[Finding]:
    if not invoice.vat_lines:
        yield Finding("BR-CO-18", "BG-23", "The VAT breakdown (BG-23) is missing.")
    elif invoice.totals.vat is None:
        yield Finding("BR-CO-15", "BT-110", f"The total VAT amount (BT-110) in {invoice.currency} is missing.")
    if invoice.lines.uncategorised:
        yield Finding(
            "BR-CO-04",
            "BT-151",
            f"{invoice.lines.uncategorised} of {invoice.lines.count} lines have no VAT category code (BT-151).",
        )
    codes = {line.category for line in invoice.vat_lines} | {group.category for group in invoice.lines.groups}
    if invoice.profile is Profile.EN16931 and any(code not in _CATEGORIES for code in codes if code is not None):
        yield Finding("BR-CL-17", "BT-118", "A VAT category code is none of EN 16931's.")
    stated = {line.category for line in invoice.vat_lines}
    if "O" in stated and stated - {"O", None}:
        yield Finding(
            "BR-O-11", "BT-118", "The VAT breakdown has a group that is not subject to VAT (O) beside others."
        )


def _check_accounting_total(invoice: Invoice) -> Iterable[Finding]:
    wanted = invoice.tax_currency
    if wanted is not None and wanted != invoice.currency and invoice.totals.vat_accounting is None:
        yield Finding(
            "BR-53",
            "BT-111",
            f"VAT is accounted for in {wanted} (BT-6), and the total VAT amount in it (BT-111) is missing.",
        )


def _check_total(invoice: Invoice) -> Iterable[Finding]:
    taxes = [line.tax for line in invoice.vat_lines if line.tax is not None]
    vat = invoice.totals.vat
    if vat is None or not taxes:
        return
    expected = to_cents(sum(taxes, _ZERO))
    if expected != vat:
        yield Finding(
            "BR-CO-14",
            "BT-110",
            f"BT-110 is {amount_text(vat, invoice.currency)}: the VAT of the breakdown's groups adds up to "
            f"{amount_text(expected, invoice.currency)}.",
            expected=expected,
            found=vat,
        )


def _check_tax(invoice: Invoice, line: VatLine) -> Iterable[Finding]:
    """BR-CO-17: taxable amount times rate, with the rule's tolerance of less than one."""
    if line.tax is None or line.taxable is None:
        return
    if invoice.profile is Profile.OTHER and (line.rate is None or not line.tax):
        return  # elsewhere a reverse charge may show the rate that the buyer owes, and no tax
    rate = line.rate or _ZERO
    expected = to_cents(abs(line.taxable) * rate / _HUNDRED)
    fits = abs(abs(line.tax) - expected) < _ONE if to_whole(rate) else to_whole(line.tax) == 0
    if not fits:
        signed = expected.copy_negate() if line.taxable < 0 and expected else expected
        yield Finding(
            "BR-CO-17",
            "BT-117",
            f"The VAT of {_group_name(line.category, line.rate)} (BT-117) is "
            f"{amount_text(line.tax, invoice.currency)}: {amount_text(line.taxable, invoice.currency)} at "
            f"{_percent(rate)} makes {amount_text(signed, invoice.currency)}.",
            expected=signed,
            found=line.tax,
        )


def _check_group_fields(invoice: Invoice, line: VatLine) -> Iterable[Finding]:
    named = _group_name(line.category, line.rate)
    if line.taxable is None:
        yield Finding("BR-45", "BT-116", f"The taxable amount (BT-116) of {named} is missing.")
    if line.tax is None:
        yield Finding("BR-46", "BT-117", f"The VAT (BT-117) of {named} is missing.")
    if line.category is None:
        yield Finding("BR-47", "BT-118", "A group of the VAT breakdown has no VAT category code (BT-118).")
    if line.rate is None and line.category != "O":
        yield Finding("BR-48", "BT-119", f"The VAT rate (BT-119) of {named} is missing.")
    for amount, rule, term in ((line.taxable, "BR-DEC-19", "BT-116"), (line.tax, "BR-DEC-20", "BT-117")):
        if amount is not None and has_more_decimals(amount, 2):
            yield Finding(
                rule,
                term,
                f"{term} of {named}, {amount_text(amount, invoice.currency)}, has more than two decimals.",
                found=amount,
            )


def _check_category(invoice: Invoice, line: VatLine) -> Iterable[Finding]:
    category = _CATEGORIES.get(line.category or "")
    if category is None:
        return
    named = _group_name(line.category, line.rate)
    if not category.taxed and line.tax:
        yield Finding(
            f"BR-{category.rules}-09",
            "BT-117",
            f"The VAT of {named} (BT-117) is {amount_text(line.tax, invoice.currency)}, and should be zero.",
            expected=_ZERO,
            found=line.tax,
        )
    if not category.taxed and line.rate:
        yield Finding(
            f"BR-{category.rules}-05",
            "BT-119",
            f"The VAT rate of {named} (BT-119) is {_percent(line.rate)}, and should be zero.",
            expected=_ZERO,
            found=line.rate,
        )
    if category.reason is True and not line.has_reason:
        yield Finding(
            f"BR-{category.rules}-10",
            "BT-120",
            f"No VAT exemption reason (BT-120, BT-121) is given for {named}.",
        )
    if category.reason is False and line.has_reason:
        yield Finding(
            f"BR-{category.rules}-10",
            "BT-120",
            f"A VAT exemption reason (BT-120, BT-121) is given for {named}, which is not exempt.",
        )


def _check_rates_of_lines(invoice: Invoice) -> Iterable[Finding]:
    """Rules 05 to 07: standard rated means a rate above zero, and zero rated or exempt means none."""
    for group in invoice.lines.groups:
        category = _CATEGORIES.get(group.category or "")
        if category is None:
            continue
        rule = f"BR-{category.rules}-{_rate_rule(group)}"
        named = _group_name(group.category, group.rate)
        if group.category == "S" and not (group.rate or _ZERO) > 0:
            yield Finding(rule, "BT-152", f"What is {category.name} (S) has no VAT rate above zero.")
        elif not category.taxed and group.rate:
            yield Finding(
                rule,
                "BT-152",
                f"The VAT rate of {named} is {_percent(group.rate)} on lines, allowances or charges, "
                "and should be zero.",
                expected=_ZERO,
                found=group.rate,
            )


def _rate_rule(group: TaxedGroup) -> str:
    if group.lines:
        return "05"
    return "06" if group.allowances else "07"


def _check_against_lines(invoice: Invoice) -> Iterable[Finding]:
    """Rules 01 and 08: each category, at each rate where VAT is charged, has its group with the right sum."""
    for (code, rate), taxable in _taxable_by_group(invoice).items():
        category = _CATEGORIES[code]
        if code == "B":
            continue
        of_category = [line for line in invoice.vat_lines if line.category == code]
        stated = [line for line in of_category if not category.taxed or line.rate == rate]
        if not stated and of_category and not _differs(category, abs(taxable)):
            continue  # a line given for nothing needs no group of its own beside those that there are
        if not stated:
            yield Finding(
                f"BR-{category.rules}-{'08' if of_category else '01'}",
                "BT-118",
                f"The VAT breakdown has no group for {_group_name(code, rate)}, of which there are "
                f"{amount_text(taxable, invoice.currency)}.",
                expected=taxable,
            )
        elif len(stated) > 1 and not category.taxed:
            yield Finding(
                f"BR-{category.rules}-01",
                "BT-118",
                f"The VAT breakdown has {len(stated)} groups for {_group_name(code, rate)}, and should have one.",
            )
        else:
            for line in stated:
                yield from _compare_taxable(invoice, category, line, taxable)
    yield from _check_groups_without_lines(invoice)


def _check_groups_without_lines(invoice: Invoice) -> Iterable[Finding]:
    known = _taxable_by_group(invoice)
    for line in invoice.vat_lines:
        category = _CATEGORIES.get(line.category or "")
        if category is None or line.category in (None, "B"):
            continue
        if (line.category, line.rate if category.taxed else None) not in known and (line.taxable or category.taxed):
            yield Finding(
                f"BR-{category.rules}-08",
                "BT-116",
                f"The VAT breakdown has {_group_name(line.category, line.rate)}, and no line, allowance or charge is.",
                expected=_ZERO,
                found=line.taxable,
            )


def _taxable_by_group(invoice: Invoice) -> dict[tuple[str, Decimal | None], Decimal]:
    """The taxable sums by category, and by rate where VAT is charged."""
    sums: dict[tuple[str, Decimal | None], Decimal] = {}
    for group in invoice.lines.groups:
        category = _CATEGORIES.get(group.category or "")
        if category is not None and group.category is not None:
            key = (group.category, group.rate if category.taxed else None)
            sums[key] = sums.get(key, _ZERO) + group.taxable
    return sums


def _compare_taxable(invoice: Invoice, category: _Category, line: VatLine, taxable: Decimal) -> Iterable[Finding]:
    if line.taxable is None:
        return
    difference = abs(line.taxable - taxable)
    if _differs(category, difference):
        yield Finding(
            f"BR-{category.rules}-08",
            "BT-116",
            f"The taxable amount of {_group_name(line.category, line.rate)} (BT-116) is "
            f"{amount_text(line.taxable, invoice.currency)}: lines less allowances plus charges make "
            f"{amount_text(taxable, invoice.currency)}.",
            expected=taxable,
            found=line.taxable,
        )


def _differs(category: _Category, difference: Decimal) -> bool:
    """Whether a difference is too much: where VAT is charged the rule bears less than one, elsewhere none."""
    return difference >= _ONE if category.taxed else difference > _ZERO


def _group_name(code: str | None, rate: Decimal | None) -> str:
    category = _CATEGORIES.get(code or "")
    if category is None:
        return "a group of the VAT breakdown" if rate is None else f"the VAT group at {_percent(rate)}"
    return category.name if rate is None or not category.taxed else f"{category.name} at {_percent(rate)}"


def _percent(rate: Decimal) -> str:
    text = f"{rate:f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"
