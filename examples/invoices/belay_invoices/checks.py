"""Checking an invoice before it is paid: EN 16931's rules, and what no paying office lets pass."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

from belay_invoices.invoice import Finding, Invoice, Profile, Totals
from belay_invoices.money import amount_text, has_more_decimals, is_known, is_whole, to_cents
from belay_invoices.vat_checks import check_vat

MAXIMUM_FINDINGS = 30
"""Findings that are listed one by one; the rest is counted."""

_PRECISION = 100


def check(invoice: Invoice) -> list[Finding]:
    """What a person should look at; empty where there is no objection to paying.

    What is checked is what a payment depends on: that the fields are there, that the sums and the VAT add up as
    EN 16931 says, with that standard's own tolerances, dates and currencies. Addresses, routing and the codes of
    units are not checked. Where the document follows another rule book (``Profile``), terms that only EN 16931
    demands may be missing.
    """
    rules: tuple[Callable[[Invoice], Iterable[Finding]], ...] = (
        _check_fields,
        _check_dates,
        _check_currencies,
        check_totals,
        check_vat,
        _check_line_prices,
        _check_sign,
    )
    with localcontext(Context(prec=_PRECISION)):
        findings = [finding for rule in rules for finding in rule(invoice)]
    left_out = len(findings) - MAXIMUM_FINDINGS
    if left_out <= 0:
        return findings
    more = Finding("more", None, f"There are {left_out} further findings.")
    return [*findings[:MAXIMUM_FINDINGS], more]


def _check_fields(invoice: Invoice) -> Iterable[Finding]:
    if invoice.lines.count == 0:
        yield Finding("BR-16", "BG-25", "The invoice has no lines.")
    if invoice.profile in (Profile.OIOUBL, Profile.OTHER):
        return
    if invoice.type_code is None:
        yield Finding("BR-04", "BT-3", "The invoice type code (BT-3) is missing.")
    if invoice.buyer is None:
        yield Finding("BR-07", "BT-44", "The buyer's name (BT-44) is missing.")


def _check_dates(invoice: Invoice) -> Iterable[Finding]:
    if invoice.due_date is not None and invoice.due_date < invoice.issue_date:
        yield Finding(
            "due-before-issue",
            "BT-9",
            f"Payment is due on {invoice.due_date}, before the invoice was issued on {invoice.issue_date}.",
        )
    demands_due_date = invoice.profile in (Profile.EN16931, Profile.EXTENSION) and invoice.totals.payable > 0
    is_told = invoice.due_date is not None or invoice.has_payment_terms or invoice.is_credit_document
    if demands_due_date and not is_told:
        yield Finding(
            "BR-CO-25",
            "BT-9",
            "An amount is due, and neither a payment due date (BT-9) nor payment terms (BT-20) are given.",
        )


def _check_currencies(invoice: Invoice) -> Iterable[Finding]:
    for code, term, rule in ((invoice.currency, "BT-5", "BR-CL-04"), (invoice.tax_currency, "BT-6", "BR-CL-05")):
        if code is not None and not is_known(code):
            yield Finding(rule, term, f"{code} ({term}) is no currency code of ISO 4217.")
    if invoice.other_currencies:
        yield Finding(
            "currency-mixed",
            "BT-5",
            f"Amounts that are added up in {invoice.currency} (BT-5) are marked as "
            f"{', '.join(invoice.other_currencies)}.",
        )
    if not is_whole(invoice.totals.payable, invoice.currency):
        yield Finding(
            "minor-unit",
            "BT-115",
            f"The amount due (BT-115), {amount_text(invoice.totals.payable, invoice.currency)}, has more decimals than "
            "the currency has, so it cannot be paid exactly.",
            found=invoice.totals.payable,
        )


def _check_line_prices(invoice: Invoice) -> Iterable[Finding]:
    first = invoice.lines.first_difference
    if first is None or not invoice.checks_line_prices:
        return
    others = invoice.lines.differing - 1
    yield Finding(
        "PEPPOL-EN16931-R120",
        "BT-131",
        f"Line {first.position}: quantity times price, less allowances, plus charges makes "
        f"{amount_text(first.expected, invoice.currency)}, and its net amount (BT-131) is "
        f"{amount_text(first.found, invoice.currency)}{f'; {others} further lines differ' if others else ''}.",
        expected=first.expected,
        found=first.found,
    )


def _check_sign(invoice: Invoice) -> Iterable[Finding]:
    if invoice.is_credit_by_code and invoice.totals.payable < 0:
        yield Finding(
            "sign",
            "BT-115",
            "The type code (BT-3) makes this invoice document a credit note, and its amount due (BT-115) is "
            "negative: it is unclear whether money comes back or is asked for.",
            found=invoice.totals.payable,
        )


_ZERO = Decimal(0)

# The amount, its rule for at most two decimals, its term and its name.
_NAMED: tuple[tuple[str, str, str, str], ...] = (
    ("lines", "BR-DEC-09", "BT-106", "sum of line net amounts"),
    ("allowances", "BR-DEC-10", "BT-107", "sum of allowances"),
    ("charges", "BR-DEC-11", "BT-108", "sum of charges"),
    ("without_vat", "BR-DEC-12", "BT-109", "total without VAT"),
    ("vat", "BR-DEC-13", "BT-110", "total VAT amount"),
    ("with_vat", "BR-DEC-14", "BT-112", "total with VAT"),
    ("prepaid", "BR-DEC-16", "BT-113", "paid amount"),
    ("rounding", "BR-DEC-17", "BT-114", "rounding amount"),
    ("payable", "BR-DEC-18", "BT-115", "amount due"),
)
_DEMANDED: tuple[tuple[str, str, str, str], ...] = (
    ("lines", "BR-12", "BT-106", "sum of line net amounts"),
    ("without_vat", "BR-13", "BT-109", "total without VAT"),
    ("with_vat", "BR-14", "BT-112", "total with VAT"),
)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A rule that says what an amount is made of."""

    code: str
    term: str
    name: str
    basis: str


_LINES = _Sum("BR-CO-10", "BT-106", "The sum of line net amounts", "what the lines add up to")
_ALLOWANCES = _Sum("BR-CO-11", "BT-107", "The sum of allowances", "what the document's allowances add up to")
_CHARGES = _Sum("BR-CO-12", "BT-108", "The sum of charges", "what the document's charges add up to")
_WITHOUT_VAT = _Sum("BR-CO-13", "BT-109", "The total without VAT", "the lines, less allowances, plus charges")
_OIOUBL_TAX = _Sum("oioubl-tax", "BT-109", "The total tax, which OIOUBL repeats here,", "the VAT total")
_WITH_VAT = _Sum("BR-CO-15", "BT-112", "The total with VAT", "the total without VAT, plus the VAT")
_DUE = _Sum("BR-CO-16", "BT-115", "The amount due", "the total with VAT, less what is paid, plus rounding")


def check_totals(invoice: Invoice) -> Iterable[Finding]:
    """Whether the document's totals are there and add up."""
    if invoice.profile in (Profile.EN16931, Profile.EXTENSION):
        yield from _check_presence(invoice)
        yield from _check_decimals(invoice)
    yield from _check_stated_sums(invoice)
    yield from _check_without_vat(invoice)
    yield from _check_with_vat(invoice)
    yield from _check_due(invoice)


def _check_presence(invoice: Invoice) -> Iterable[Finding]:
    for field, rule, term, name in _DEMANDED:
        if getattr(invoice.totals, field) is None:
            yield Finding(rule, term, f"The {name} ({term}) is missing.")


def _check_decimals(invoice: Invoice) -> Iterable[Finding]:
    for field, rule, term, name in _NAMED:
        amount: Decimal | None = getattr(invoice.totals, field)
        if amount is not None and has_more_decimals(amount, 2):
            yield Finding(
                rule,
                term,
                f"The {name} ({term}), {amount_text(amount, invoice.currency)}, has more than two decimals.",
                found=amount,
            )


def _check_stated_sums(invoice: Invoice) -> Iterable[Finding]:
    """BR-CO-10 to 12: what the lines, allowances and charges add up to is what the totals state."""
    totals, lines = invoice.totals, invoice.lines
    if totals.lines is not None:
        yield from _compare(invoice, _LINES, to_cents(lines.net), totals.lines)
    if totals.allowances is not None or lines.allowance_count:
        yield from _compare(invoice, _ALLOWANCES, to_cents(lines.allowances), totals.allowances)
    if totals.charges is not None or lines.charge_count:
        yield from _compare(invoice, _CHARGES, to_cents(lines.charges), totals.charges)


def _check_without_vat(invoice: Invoice) -> Iterable[Finding]:
    """BR-CO-13: lines, less allowances, plus charges."""
    totals = invoice.totals
    if totals.without_vat is None or totals.lines is None:
        return
    if invoice.profile is Profile.OIOUBL:
        yield from _compare(invoice, _OIOUBL_TAX, totals.vat or _ZERO, totals.without_vat)
    else:
        yield from _compare(invoice, _WITHOUT_VAT, to_cents(_net(totals)), totals.without_vat)


def _check_with_vat(invoice: Invoice) -> Iterable[Finding]:
    """BR-CO-15: the total without VAT plus the VAT, in the document's currency."""
    totals = invoice.totals
    if invoice.vat_totals > 1 and invoice.profile in (Profile.EN16931, Profile.EXTENSION):
        yield Finding(
            "BR-CO-15",
            "BT-110",
            f"There are {invoice.vat_totals} VAT totals (BT-110) in {invoice.currency}, where one is allowed.",
        )
    net = _net(totals) if invoice.profile is Profile.OIOUBL else totals.without_vat
    if totals.with_vat is None or net is None:
        return
    expected = to_cents(net + (totals.vat or _ZERO))
    if invoice.profile in (Profile.OIOUBL, Profile.OTHER):
        rounded = to_cents(expected + (totals.rounding or _ZERO))
        # Outside EN 16931 the rounding may already be part of this total.
        expected = rounded if totals.with_vat == rounded else expected
    yield from _compare(invoice, _WITH_VAT, expected, totals.with_vat)


def _check_due(invoice: Invoice) -> Iterable[Finding]:
    """BR-CO-16: the total with VAT, less what is paid, plus rounding."""
    totals = invoice.totals
    lenient = invoice.profile in (Profile.OIOUBL, Profile.OTHER)
    total = totals.with_vat
    if total is None and lenient and totals.without_vat is not None:
        total = totals.without_vat + (totals.vat or _ZERO)
    if total is None:
        return
    before_rounding = total - (totals.prepaid or _ZERO) + (totals.third_party or _ZERO)
    if lenient and totals.payable == to_cents(before_rounding):
        return
    yield from _compare(invoice, _DUE, to_cents(before_rounding + (totals.rounding or _ZERO)), totals.payable)


def _net(totals: Totals) -> Decimal:
    return (totals.lines or _ZERO) - (totals.allowances or _ZERO) + (totals.charges or _ZERO)


def _compare(invoice: Invoice, rule: _Sum, expected: Decimal, found: Decimal | None) -> Iterable[Finding]:
    if expected == found:
        return
    problem = "is missing" if found is None else f"is {amount_text(found, invoice.currency)}"
    yield Finding(
        rule.code,
        rule.term,
        f"{rule.name} ({rule.term}) {problem}, and should be {amount_text(expected, invoice.currency)}: {rule.basis}.",
        expected=expected,
        found=found,
    )
