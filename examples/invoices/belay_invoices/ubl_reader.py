"""From the bytes of a UBL 2.1 document to an ``Invoice``."""

import hashlib
import stat
from datetime import date
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from belay_invoices.invoice import Invoice, Kind, Party, Profile, Totals, UnreadableInvoice
from belay_invoices.text import one_line, visible
from belay_invoices.ubl_sums import Taxes, add_up, document_lines, read_taxes
from belay_invoices.ubl_xml import (
    CREDIT_NOTE,
    ENVELOPE,
    INVOICE,
    MAXIMUM_BYTES,
    Node,
    Term,
    by_root,
    calendar_date,
    currency_code,
    decimal,
    parse,
)

__all__ = ["UnreadableInvoice", "read_invoice"]

PRECISION: Final = 100
"""Significant digits of every sum and product, so that none is rounded before a rule says so."""

MAXIMUM_IDENTIFIER: Final = 200
"""Characters of an invoice number or registration; a longer one is refused, for half of it names nothing."""

# UNTDID 1001: what makes a document a credit note, whatever its root element is called.
_CREDIT_CODES = frozenset({"81", "83", "261", "262", "296", "308", "381", "396", "420", "458", "532"})
_LINE_PRICE_RULES = ("peppol.eu:2017:poacc:billing", "kosit:xrechnung_3")

_NUMBER = Term("BT-1", "the invoice number")
_ISSUED = Term("BT-2", "the issue date")
_DUE = Term("BT-9", "the payment due date")
_CURRENCY = Term("BT-5", "the invoice currency code")
_TAX_CURRENCY = Term("BT-6", "the VAT accounting currency code")
_SELLER = Term("BT-27", "the seller's name")
_PAYABLE = Term("BT-115", "the amount due for payment")
_THIRD_PARTY = Term("BT-DEX-002", "a payment for a third party")

_TOTALS: dict[str, tuple[str, Term]] = {
    "lines": ("cbc:LineExtensionAmount", Term("BT-106", "the sum of line net amounts")),
    "allowances": ("cbc:AllowanceTotalAmount", Term("BT-107", "the sum of allowances")),
    "charges": ("cbc:ChargeTotalAmount", Term("BT-108", "the sum of charges")),
    "without_vat": ("cbc:TaxExclusiveAmount", Term("BT-109", "the total without VAT")),
    "with_vat": ("cbc:TaxInclusiveAmount", Term("BT-112", "the total with VAT")),
    "prepaid": ("cbc:PrepaidAmount", Term("BT-113", "the paid amount")),
    "rounding": ("cbc:PayableRoundingAmount", Term("BT-114", "the rounding amount")),
}
_PARTY_NAMES = (
    "cac:PartyLegalEntity/cbc:RegistrationName",
    "cac:PartyName/cbc:Name",
    "cac:Person/cbc:FamilyName",
    "cac:Contact/cbc:Name",
)


def read_invoice(source: Path | bytes) -> Invoice:
    """The invoice or credit note in a file, or in the bytes of one.

    Raises:
        UnreadableInvoice: There is none, for the reason its code and message say. Whatever the bytes are,
            there is no other error; only a disk that fails has its own (``OSError``).
    """
    data = source if isinstance(source, bytes) else _bytes_of(source)
    with localcontext(Context(prec=PRECISION)):
        return _read(_document(data), data)


def _bytes_of(path: Path) -> bytes:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise UnreadableInvoice("no_file", "this is no regular file")
        if facts.st_size > MAXIMUM_BYTES:
            raise UnreadableInvoice("too_large", f"the file has more than {MAXIMUM_BYTES} bytes")
        with path.open("rb") as file:
            # One byte more than allowed is enough to see that a growing file is too large.
            return file.read(MAXIMUM_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableInvoice("no_file", "the file is not there") from None
    except PermissionError:
        raise UnreadableInvoice("no_file", "the file may not be read") from None


def _document(data: bytes) -> Node:
    root = parse(data)
    if root.tag == ENVELOPE:
        root = _enveloped(root)
    if root.tag == INVOICE:
        return Node(root, "/Invoice")
    if root.tag == CREDIT_NOTE:
        return Node(root, "/CreditNote")
    raise UnreadableInvoice("other_format", f"the file is {by_root(root.tag)}, not a UBL 2.1 invoice")


def _enveloped(envelope: Element) -> Element:
    found = [child for child in envelope if child.tag in (INVOICE, CREDIT_NOTE)]
    if len(found) > 1:
        # Reading the first would lose the others without a word.
        raise UnreadableInvoice(
            "other_format", f"the file is an envelope with {len(found)} invoices, and one file is one invoice here"
        )
    return found[0] if found else envelope


def _read(document: Node, data: bytes) -> Invoice:
    customization = document.text("cbc:CustomizationID") or ""
    profile = _profile(customization)
    type_code = document.text("cbc:InvoiceTypeCode") or document.text("cbc:CreditNoteTypeCode")
    is_credit_document = document.element.tag == CREDIT_NOTE
    is_credit_by_code = not is_credit_document and type_code in _CREDIT_CODES
    currency = document.required_value(currency_code, "cbc:DocumentCurrencyCode", _CURRENCY)
    tax_currency = document.value(currency_code, "cbc:TaxCurrencyCode", _TAX_CURRENCY)
    taxes = read_taxes(document, currency, tax_currency)
    return Invoice(
        kind=Kind.CREDIT_NOTE if is_credit_document or is_credit_by_code else Kind.INVOICE,
        profile=profile,
        number=_identifier(document.required("cbc:ID", _NUMBER), _NUMBER),
        type_code=_short(type_code),
        issue_date=document.required_value(calendar_date, "cbc:IssueDate", _ISSUED),
        due_date=_due_date(document),
        currency=currency,
        tax_currency=tax_currency,
        supplier=_supplier(document),
        buyer=_party(document, "cac:AccountingCustomerParty/cac:Party"),
        accounting_reference=_short(document.text("cbc:AccountingCost")),
        totals=_totals(document, taxes, profile),
        vat_totals=taxes.total_count,
        vat_lines=taxes.lines,
        lines=add_up(document),
        other_currencies=_other_currencies(document, currency),
        has_payment_terms=document.text("cac:PaymentTerms/cbc:Note") is not None,
        checks_line_prices=any(name in customization for name in _LINE_PRICE_RULES),
        is_credit_document=is_credit_document,
        is_credit_by_code=is_credit_by_code,
        digest=hashlib.sha256(data).hexdigest(),
    )


def _profile(customization: str) -> Profile:
    if "en16931" in customization:
        return Profile.EXTENSION if "#conformant#" in customization else Profile.EN16931
    if customization.startswith("OIOUBL"):
        return Profile.OIOUBL
    return Profile.OTHER if customization else Profile.EN16931


def _short(text: str | None) -> str | None:
    return None if text is None else one_line(text)


def _identifier(text: str, term: Term) -> str:
    if len(text) > MAXIMUM_IDENTIFIER:
        raise UnreadableInvoice("bad_value", f"{term} has more than {MAXIMUM_IDENTIFIER} characters")
    return visible(text)


def _due_date(document: Node) -> date | None:
    """BT-9: of the document, or of the payment means where a credit note has it; the first of several."""
    for path in ("cbc:DueDate", "cac:PaymentMeans/cbc:PaymentDueDate", "cac:PaymentTerms/cbc:PaymentDueDate"):
        found = document.value(calendar_date, path, _DUE)
        if found is not None:
            return found
    return None


def _supplier(document: Node) -> Party:
    path = "cac:AccountingSupplierParty/cac:Party"
    found = _party(document, path)
    if found is None:
        raise UnreadableInvoice("missing_field", f"{_SELLER} is missing at {document.path}/{path}/{_PARTY_NAMES[0]}")
    return found


def _party(document: Node, path: str) -> Party | None:
    party = document.first(path)
    names = () if party is None else (party.text(name) for name in _PARTY_NAMES)
    name = next((name for name in names if name), None)
    if party is None or name is None:
        return None
    legal_id = party.text("cac:PartyLegalEntity/cbc:CompanyID") or party.text("cac:PartyIdentification/cbc:ID")
    return Party(
        name=one_line(name),
        vat_id=_short(_vat_id(party)),
        legal_id=_short(legal_id),
        country=_short(party.text("cac:PostalAddress/cac:Country/cbc:IdentificationCode")),
    )


def _vat_id(party: Node) -> str | None:
    for scheme in party.each("cac:PartyTaxScheme"):
        if (scheme.text("cac:TaxScheme/cbc:ID") or "").upper() in ("VAT", "GST"):
            return scheme.text("cbc:CompanyID")
    return None


def _totals(document: Node, taxes: Taxes, profile: Profile) -> Totals:
    path = "cac:LegalMonetaryTotal"
    found = document.first(path)
    if found is None:
        raise UnreadableInvoice("missing_field", f"{_PAYABLE} is missing at {document.path}/{path}/cbc:PayableAmount")
    amounts = {name: found.number(field, term) for name, (field, term) in _TOTALS.items()}
    return Totals(
        payable=found.required_value(decimal, "cbc:PayableAmount", _PAYABLE),
        vat=taxes.total,
        vat_accounting=taxes.accounting_total,
        third_party=_third_party_payments(document) if profile is Profile.EXTENSION else None,
        **amounts,
    )


def _third_party_payments(document: Node) -> Decimal | None:
    payments = [each.number("cbc:PaidAmount", _THIRD_PARTY) for each in document.each("cac:PrepaidPayment")]
    amounts = [payment for payment in payments if payment is not None]
    return sum(amounts, Decimal(0)) if amounts else None


def _other_currencies(document: Node, currency: str) -> tuple[str, ...]:
    """Currencies other than the document's among the amounts that are added up."""
    found: set[str] = set()
    total = document.first("cac:LegalMonetaryTotal")
    if total is not None:
        found.update(amount.get("currencyID", "").strip() for amount in total.element)
    for line in document_lines(document):
        found.add(line.currency_of("cbc:LineExtensionAmount") or "")
    for allowance in document.each("cac:AllowanceCharge"):
        found.add(allowance.currency_of("cbc:Amount") or "")
    found -= {"", currency}
    return tuple(sorted(one_line(name, 8) for name in found)[:5])
