"""Checking an invoice before it is paid: EN 16931's rules, and what no paying office lets pass."""

from collections.abc import Callable, Iterable
from decimal import Context, localcontext

from belay_core.demo.checking_totals import check_totals
from belay_core.demo.checking_vat import check_vat
from belay_core.demo.currencies import is_known, is_whole
from belay_core.demo.invoice import Finding, Invoice, Profile
from belay_core.demo.money import shown

MAXIMUM_FINDINGS = 30
"""Findings that are listed one by one; the rest is counted."""

_PRECISION = 100


def check(invoice: Invoice) -> list[Finding]:
    """What a person should look at; empty where nothing speaks against paying.

    What is checked is what a payment hangs on: that the fields are there, that the sums and the VAT add up as
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
            f"The amount due (BT-115), {shown(invoice.totals.payable, invoice.currency)}, has more decimals than "
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
        f"{shown(first.expected, invoice.currency)}, and its net amount (BT-131) is "
        f"{shown(first.found, invoice.currency)}{f'; {others} further lines differ' if others else ''}.",
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
