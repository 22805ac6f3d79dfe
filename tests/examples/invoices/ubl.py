"""Writes UBL documents as other programs do: right by default, and wrong wherever a test asks for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from xml.sax.saxutils import escape

UBL = "urn:oasis:names:specification:ubl:schema:xsd:"
CENT = Decimal("0.01")
EN16931 = "urn:cen.eu:en16931:2017"
PEPPOL = f"{EN16931}#compliant#urn:fdc:peppol.eu:2017:poacc:billing:3.0"
REASONS = {"E": "exempt", "AE": "reverse charge", "K": "intra-community", "G": "export", "O": "not subject"}


def cents(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, ROUND_HALF_UP)


@dataclass(frozen=True)
class Line:
    quantity: Decimal = Decimal(1)
    price: Decimal = Decimal(100)
    base: Decimal | None = None
    category: str = "S"
    rate: Decimal | None = Decimal(19)
    allowance: Decimal = Decimal(0)
    charge: Decimal = Decimal(0)
    name: str = "Something"
    code: str | None = None

    @property
    def net(self) -> Decimal:
        return cents(self.quantity * self.price / (self.base or 1)) - self.allowance + self.charge


@dataclass(frozen=True)
class Extra:
    """An allowance or charge of the whole document."""

    amount: Decimal
    charge: bool = False
    category: str = "S"
    rate: Decimal | None = Decimal(19)

    @property
    def signed(self) -> Decimal:
        return self.amount if self.charge else -self.amount


@dataclass(frozen=True)
class Document:
    """A document; ``changed`` replaces fields by name, or leaves them out where it has None."""

    lines: tuple[Line, ...] = (Line(),)
    extras: tuple[Extra, ...] = ()
    root: str = "Invoice"
    type_code: str | None = "380"
    number: str = "A-1"
    customization: str = EN16931
    currency: str = "EUR"
    prepaid: Decimal | None = None
    rounding: Decimal | None = None
    tax_currency: str | None = None
    supplier: str = "Seller & Sons"
    supplier_vat: str | None = "DE000000001"
    issued: str = "2026-03-31"
    due: str | None = "2026-04-30"
    changed: Mapping[str, Decimal | str | None] = field(default_factory=dict[str, Decimal | str | None])

    def groups(self) -> dict[tuple[str, Decimal | None], Decimal]:
        sums: dict[tuple[str, Decimal | None], Decimal] = {}
        for line in self.lines:
            sums[line.category, line.rate] = sums.get((line.category, line.rate), Decimal(0)) + line.net
        for extra in self.extras:
            key = (extra.category, extra.rate)
            sums[key] = sums.get(key, Decimal(0)) + extra.signed
        return sums

    def amounts(self) -> dict[str, Decimal | None]:
        allowances = [extra.amount for extra in self.extras if not extra.charge]
        charges = [extra.amount for extra in self.extras if extra.charge]
        net = sum((line.net for line in self.lines), Decimal(0))
        without = net - sum(allowances) + sum(charges)
        vat = sum((cents(sum_ * (rate or 0) / 100) for (_, rate), sum_ in self.groups().items()), Decimal(0))
        right: dict[str, Decimal | None] = {
            "LineExtensionAmount": net,
            "TaxExclusiveAmount": without,
            "TaxInclusiveAmount": without + vat,
            "AllowanceTotalAmount": sum(allowances, Decimal(0)) if allowances else None,
            "ChargeTotalAmount": sum(charges, Decimal(0)) if charges else None,
            "PrepaidAmount": self.prepaid,
            "PayableRoundingAmount": self.rounding,
            "PayableAmount": without + vat - (self.prepaid or 0) + (self.rounding or 0),
            "TaxAmount": vat,
        }
        return {name: self._or_changed(name, value) for name, value in right.items()}

    def _or_changed(self, name: str, value: Decimal | None) -> Decimal | None:
        changed = self.changed.get(name, value)
        assert not isinstance(changed, str)
        return changed

    def xml(self) -> str:
        """The document with the usual prefixes, without an XML declaration."""
        is_credit = self.root == "CreditNote"
        amounts = self.amounts()
        parts = [
            _text("CustomizationID", self.customization or None),
            _text("ID", self.number),
            _text("IssueDate", self.issued),
            None if is_credit else _text("DueDate", self.due),
            _text("CreditNoteTypeCode" if is_credit else "InvoiceTypeCode", self.type_code),
            _text("DocumentCurrencyCode", self.currency),
            _text("TaxCurrencyCode", self.tax_currency),
            _party("AccountingSupplierParty", self.supplier, self.supplier_vat),
            _party("AccountingCustomerParty", "Buyer", None),
            *(self._extra(extra) for extra in self.extras),
            self._tax_total(amounts),
            self._accounting_total(),
            self._monetary_total(amounts),
            *(self._line(number, line) for number, line in enumerate(self.lines, start=1)),
        ]
        body = "\n".join(part for part in parts if part)
        return (
            f'<{self.root} xmlns="{UBL}{self.root}-2" xmlns:cac="{UBL}CommonAggregateComponents-2" '
            f'xmlns:cbc="{UBL}CommonBasicComponents-2">\n{body}\n</{self.root}>'
        )

    def bytes(self) -> bytes:
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{self.xml()}'.encode()

    def _amount(self, name: str, value: Decimal | None) -> str:
        return "" if value is None else f'<cbc:{name} currencyID="{self.currency}">{value:f}</cbc:{name}>'

    def _extra(self, extra: Extra) -> str:
        return (
            f"<cac:AllowanceCharge><cbc:ChargeIndicator>{str(extra.charge).lower()}</cbc:ChargeIndicator>"
            f"<cbc:AllowanceChargeReason>because</cbc:AllowanceChargeReason>{self._amount('Amount', extra.amount)}"
            f"{_category('TaxCategory', extra.category, extra.rate)}</cac:AllowanceCharge>"
        )

    def _tax_total(self, amounts: Mapping[str, Decimal | None]) -> str:
        groups = "".join(
            f"<cac:TaxSubtotal>{self._amount('TaxableAmount', self._or_changed('TaxableAmount', taxable))}"
            f"{self._amount('TaxAmount', self._or_changed('GroupTaxAmount', cents(taxable * (rate or 0) / 100)))}"
            f"{_category('TaxCategory', category, rate, REASONS.get(category))}</cac:TaxSubtotal>"
            for (category, rate), taxable in self.groups().items()
        )
        return f"<cac:TaxTotal>{self._amount('TaxAmount', amounts['TaxAmount'])}{groups}</cac:TaxTotal>"

    def _accounting_total(self) -> str:
        if self.tax_currency is None or self.tax_currency == self.currency:
            return ""
        amount = f'<cbc:TaxAmount currencyID="{self.tax_currency}">1.23</cbc:TaxAmount>'
        return f"<cac:TaxTotal>{amount}</cac:TaxTotal>"

    def _monetary_total(self, amounts: Mapping[str, Decimal | None]) -> str:
        inner = "".join(self._amount(name, value) for name, value in amounts.items() if name != "TaxAmount")
        return f"<cac:LegalMonetaryTotal>{inner}</cac:LegalMonetaryTotal>"

    def _line(self, number: int, line: Line) -> str:
        is_credit = self.root == "CreditNote"
        element, quantity = ("CreditNoteLine", "CreditedQuantity") if is_credit else ("InvoiceLine", "InvoicedQuantity")
        code = (
            f"<cac:CommodityClassification><cbc:ItemClassificationCode>{line.code}</cbc:ItemClassificationCode>"
            "</cac:CommodityClassification>"
            if line.code
            else ""
        )
        extras = "".join(
            f"<cac:AllowanceCharge><cbc:ChargeIndicator>{indicator}</cbc:ChargeIndicator>"
            f"{self._amount('Amount', amount)}</cac:AllowanceCharge>"
            for indicator, amount in (("false", line.allowance), ("true", line.charge))
            if amount
        )
        base = "" if line.base is None else f"<cbc:BaseQuantity>{line.base:f}</cbc:BaseQuantity>"
        return (
            f"<cac:{element}><cbc:ID>{number}</cbc:ID><cbc:{quantity}>{line.quantity:f}</cbc:{quantity}>"
            f"{self._amount('LineExtensionAmount', line.net)}{extras}<cac:Item><cbc:Name>{escape(line.name)}</cbc:Name>"
            f"{code}{_category('ClassifiedTaxCategory', line.category, line.rate)}</cac:Item>"
            f"<cac:Price>{self._amount('PriceAmount', line.price)}{base}</cac:Price></cac:{element}>"
        )


def _text(name: str, value: str | None) -> str:
    return "" if value is None else f"<cbc:{name}>{escape(value)}</cbc:{name}>"


def _party(role: str, name: str, vat: str | None) -> str:
    scheme = (
        ""
        if vat is None
        else f"<cac:PartyTaxScheme><cbc:CompanyID>{vat}</cbc:CompanyID><cac:TaxScheme><cbc:ID>VAT</cbc:ID>"
        "</cac:TaxScheme></cac:PartyTaxScheme>"
    )
    return (
        f"<cac:{role}><cac:Party>{scheme}<cac:PartyLegalEntity><cbc:RegistrationName>{escape(name)}"
        f"</cbc:RegistrationName></cac:PartyLegalEntity></cac:Party></cac:{role}>"
    )


def _category(element: str, code: str, rate: Decimal | None, reason: str | None = None) -> str:
    percent = "" if rate is None else f"<cbc:Percent>{rate:f}</cbc:Percent>"
    why = "" if reason is None else f"<cbc:TaxExemptionReason>{reason}</cbc:TaxExemptionReason>"
    return (
        f"<cac:{element}><cbc:ID>{code}</cbc:ID>{percent}{why}<cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme>"
        f"</cac:{element}>"
    )


# ------------------------------------------------------------------ the same document, written differently


def prefixed(xml: str) -> str:
    """Other prefixes, also for the root element."""
    for old, new in (("cac", "a"), ("cbc", "b")):
        xml = xml.replace(f"<{old}:", f"<{new}:").replace(f"</{old}:", f"</{new}:")
        xml = xml.replace(f"xmlns:{old}=", f"xmlns:{new}=")
    root = "CreditNote" if xml.startswith("<CreditNote") else "Invoice"
    return xml.replace(f"<{root} xmlns=", f"<u:{root} xmlns:u=", 1).removesuffix(f"</{root}>") + f"</u:{root}>"


def unprefixed(xml: str) -> str:
    """No prefixes at all: each element declares its own default namespace, as some serialisers do."""
    xml = xml.replace(f' xmlns:cac="{UBL}CommonAggregateComponents-2"', "")
    xml = xml.replace(f' xmlns:cbc="{UBL}CommonBasicComponents-2"', "")
    for prefix, name in (("cac", "CommonAggregateComponents-2"), ("cbc", "CommonBasicComponents-2")):
        pieces = xml.split(f"<{prefix}:")
        open_database = [piece.replace(">", f' xmlns="{UBL}{name}">', 1) for piece in pieces[1:]]
        xml = "<".join([pieces[0], *open_database]).replace(f"</{prefix}:", "</")
    return xml


def decorated(xml: str) -> str:
    """Comments, processing instructions and blanks wherever they may stand, also inside values."""
    xml = xml.replace("<cac:", "<!-- a comment with <tags> -->\n\t<cac:")
    xml = xml.replace("<cbc:ID>", "<cbc:ID>\n    ").replace("</cbc:ID>", "\r\n  </cbc:ID>")
    xml = xml.replace("<cbc:PayableAmount", "<?render bold?><cbc:PayableAmount")
    return xml.replace("</cbc:PayableAmount>", "<!-- due -->\u0020\n</cbc:PayableAmount>")


def extended(xml: str, attachment: int = 10) -> str:
    """With a UBL extension that looks like an invoice itself, and an attachment of that many bytes."""
    extension = (
        '<ext:UBLExtensions xmlns:ext="urn:oasis:names:specification:ubl:schema:xsd:CommonExtensionComponents-2">'
        "<ext:UBLExtension><ext:ExtensionContent><cbc:ID>not this one</cbc:ID><cac:LegalMonetaryTotal>"
        "<cbc:PayableAmount>999</cbc:PayableAmount></cac:LegalMonetaryTotal></ext:ExtensionContent>"
        "</ext:UBLExtension></ext:UBLExtensions>"
    )
    document = (
        "<cac:AdditionalDocumentReference><cbc:ID>Timesheet</cbc:ID><cac:Attachment>"
        '<cbc:EmbeddedDocumentBinaryObject mimeCode="application/pdf" filename="t.pdf">'
        f"{'QUJD' * (attachment // 4 + 1)}</cbc:EmbeddedDocumentBinaryObject></cac:Attachment>"
        "</cac:AdditionalDocumentReference>"
    )
    xml = xml.replace("<cbc:CustomizationID>", extension + "<cbc:CustomizationID>", 1)
    return xml.replace("<cac:AccountingSupplierParty>", document + "<cac:AccountingSupplierParty>", 1)


def enveloped(xml: str) -> str:
    """In the envelope of a Peppol message."""
    return (
        '<StandardBusinessDocument xmlns="http://www.unece.org/cefact/namespaces/StandardBusinessDocumentHeader">'
        f"<StandardBusinessDocumentHeader><HeaderVersion>1.0</HeaderVersion></StandardBusinessDocumentHeader>{xml}"
        "</StandardBusinessDocument>"
    )
