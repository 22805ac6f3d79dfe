"""Reading what other programs write, and refusing what is no invoice."""

import dataclasses
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from belay_invoices.checks import check
from belay_invoices.invoice import Finding, Invoice, Kind, Profile
from belay_invoices.ubl_reader import read_invoice
from tests.examples.invoices.ubl import Document, Extra, Line, decorated, enveloped, extended, prefixed, unprefixed

RICH = Document(
    number="Größe ½",
    supplier="Bücher & Söhne",
    lines=(
        Line(Decimal(3), Decimal("33.333"), rate=Decimal("19.00"), name="Résumé"),
        Line(Decimal(250), Decimal("4.99"), base=Decimal(100), rate=Decimal(7), allowance=Decimal("0.48")),
        Line(Decimal(-1), Decimal(5), rate=Decimal(19), charge=Decimal("0.25")),
        Line(Decimal(2), Decimal(10), category="E", rate=Decimal(0)),
    ),
    extras=(Extra(Decimal(5)), Extra(Decimal("2.50"), charge=True, rate=Decimal(7))),
    prepaid=Decimal(20),
    rounding=Decimal("0.02"),
    tax_currency="SEK",
)


def content(invoice: Invoice) -> Invoice:
    """The invoice without what depends on the bytes of its file."""
    return dataclasses.replace(invoice, digest="")


def test_fields_are_where_they_belong():
    invoice = read_invoice(RICH.bytes())
    assert invoice.number == "Größe ½"
    assert invoice.supplier.name == "Bücher & Söhne"
    assert invoice.supplier.vat_id == "DE000000001"
    assert invoice.buyer is not None
    assert invoice.buyer.name == "Buyer"
    assert invoice.issue_date == date(2026, 3, 31)
    assert invoice.due_date == date(2026, 4, 30)
    assert invoice.lines.count == 4
    assert invoice.lines.net == sum(line.net for line in RICH.lines)
    assert invoice.totals.prepaid == Decimal(20)
    assert [(line.category, line.rate) for line in invoice.vat_lines] == [
        ("S", Decimal(19)),
        ("S", Decimal(7)),
        ("E", Decimal(0)),
    ]
    assert check(invoice) == []


VARIANTS = {
    "other prefixes": lambda xml: prefixed(xml).encode(),
    "no prefixes": lambda xml: unprefixed(xml).encode(),
    "comments and blanks": lambda xml: decorated(xml).encode(),
    "extension and attachment": lambda xml: extended(xml).encode(),
    "attachment of megabytes": lambda xml: extended(xml, 5_000_000).encode(),
    "attachment in 16 bits": lambda xml: (
        f'\ufeff<?xml version="1.0" encoding="UTF-16"?>{extended(xml, 3_000_000)}'.encode("utf-16-le")
    ),
    "attachment in a single-byte encoding": lambda xml: (
        f'<?xml version="1.0" encoding="windows-1252"?>{extended(xml, 3_000_000)}'.encode("cp1252")
    ),
    "attachment in a CDATA section": lambda xml: (
        extended(xml, 3_000_000).replace(">QUJD", "><![CDATA[QUJD").replace("QUJD</", "QUJD]]></").encode()
    ),
    "envelope": lambda xml: enveloped(xml).encode(),
    "byte order mark": lambda xml: b"\xef\xbb\xbf" + xml.encode(),
    "mark and declaration": lambda xml: f'\ufeff<?xml version="1.0" encoding="utf-8"?>{xml}'.encode(),
    "mark against declaration": lambda xml: f'\ufeff<?xml version="1.0" encoding="iso-8859-1"?>{xml}'.encode(),
    "blanks before declaration": lambda xml: f'\n  <?xml version="1.0"?>{xml}'.encode(),
    "utf-16": lambda xml: f'<?xml version="1.0" encoding="UTF-16"?>{xml}'.encode("utf-16"),
    "utf-16, big end first": lambda xml: f'\ufeff<?xml version="1.0" encoding="UTF-16"?>{xml}'.encode("utf-16-be"),
    "utf-16 without a mark": lambda xml: f'<?xml version="1.0" encoding="UTF-16LE"?>{xml}'.encode("utf-16-le"),
    "utf-16 claimed, utf-8 written": lambda xml: f'<?xml version="1.0" encoding="utf-16"?>{xml}'.encode(),
    "latin 1": lambda xml: f'<?xml version="1.0" encoding="ISO-8859-1"?>{xml}'.encode("iso-8859-1"),
    "latin 9": lambda xml: f"<?xml version='1.0' encoding='ISO-8859-15'?>{xml}".replace("½", "%").encode("iso-8859-15"),
    "windows 1252": lambda xml: f'<?xml version="1.0" encoding="windows-1252"?>{xml}'.encode("cp1252"),
    "ascii and references": lambda xml: f'<?xml version="1.0" encoding="US-ASCII"?>{xml}'.encode(
        "ascii", "xmlcharrefreplace"
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_document_is_read_however_it_is_written(name: str):
    written = VARIANTS[name](RICH.xml())
    expected = RICH if name != "latin 9" else dataclasses.replace(RICH, number="Größe %")
    assert content(read_invoice(written)) == content(read_invoice(expected.bytes()))


def test_a_path_is_read_like_its_bytes(tmp_path: Path):
    path = tmp_path / "a.xml"
    path.write_bytes(RICH.bytes())
    assert read_invoice(path) == read_invoice(RICH.bytes())


@pytest.mark.parametrize(
    ("root", "code", "kind", "sign"),
    [
        ("Invoice", "380", Kind.INVOICE, 1),
        ("Invoice", "384", Kind.INVOICE, 1),
        ("Invoice", "381", Kind.CREDIT_NOTE, -1),
        ("CreditNote", "381", Kind.CREDIT_NOTE, -1),
        ("CreditNote", None, Kind.CREDIT_NOTE, -1),
    ],
)
def test_a_credit_note_is_booked_the_other_way(root: str, code: str | None, kind: Kind, sign: int):
    invoice = read_invoice(Document(root=root, type_code=code, due=None).bytes())
    assert invoice.kind is kind
    assert invoice.signed_payable == sign * Decimal(119)


def test_only_the_vat_in_the_documents_currency_counts():
    invoice = read_invoice(Document(tax_currency="NOK").bytes())
    assert invoice.totals.vat == Decimal(19)
    assert invoice.totals.vat_accounting == Decimal("1.23")
    assert invoice.vat_totals == 1


def test_lines_within_lines_are_part_of_the_line_around_them():
    xml = Document().xml()
    inner = xml[xml.index("<cac:InvoiceLine>") : xml.index("</cac:InvoiceLine>")]
    inner = inner.replace("InvoiceLine", "SubInvoiceLine") + "</cac:SubInvoiceLine>"
    invoice = read_invoice(xml.replace("</cac:InvoiceLine>", inner + "</cac:InvoiceLine>").encode())
    assert invoice.lines.count == 1
    assert check(invoice) == []


def test_thousands_of_lines_make_a_small_invoice():
    invoice = read_invoice(Document(lines=(Line(name="x" * 300),) * 3000).bytes())
    assert invoice.lines.count == 3000
    assert len(TypeAdapter(Invoice).dump_json(invoice)) < 20_000
    assert check(invoice) == []


@pytest.mark.parametrize(
    ("customization", "profile"),
    [
        ("urn:cen.eu:en16931:2017", Profile.EN16931),
        ("urn:cen.eu:en16931:2017#compliant#urn:xeinkauf.de:kosit:xrechnung_3.0", Profile.EN16931),
        (
            "urn:cen.eu:en16931:2017#conformant#urn:fdc:peppol.eu:2017:poacc:billing:international:aunz:3.0",
            Profile.EXTENSION,
        ),
        ("OIOUBL-2.02", Profile.OIOUBL),
        ("urn:www.example:invoice:1", Profile.OTHER),
        ("", Profile.EN16931),
    ],
)
def test_the_rule_book_is_recognised(customization: str, profile: Profile):
    assert read_invoice(Document(customization=customization).bytes()).profile is profile


# ------------------------------------------------------------------ round trip


@pytest.mark.parametrize("document", [RICH, Document(), Document(root="CreditNote", type_code="381")])
def test_an_invoice_survives_json_unchanged(document: Document):
    adapter = TypeAdapter(Invoice)
    invoice = read_invoice(document.bytes())
    back = adapter.validate_json(adapter.dump_json(invoice))
    assert back == invoice
    assert repr(back) == repr(invoice)


def test_findings_survive_json_unchanged():
    adapter = TypeAdapter(list[Finding])
    findings = check(read_invoice(Document(changed={"PayableAmount": Decimal("1.50")}).bytes()))
    assert findings
    back = adapter.validate_json(adapter.dump_json(findings))
    assert back == findings
    assert repr(back) == repr(findings)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("text", "value"),
    [("119", "119"), ("+119.00", "119.00"), ("0119.", "119"), ("-0.00", "0.00"), (".5", "0.5"), ("\n 1.5 ", "1.5")],
)
def test_decimals_are_read_as_xml_schema_has_them(text: str, value: str):
    xml = Document(customization="other").xml().replace(">119.00</cbc:Pay", f">{text}</cbc:Pay")
    assert str(read_invoice(xml.encode()).totals.payable) == value


def test_hidden_characters_are_shown_and_long_texts_are_cut():
    invoice = read_invoice(Document(supplier=f"Good\u202eBad\u200b {'x' * 300}", number="A\u00ad1").bytes())
    assert invoice.supplier.name.startswith("Good<U+202E>Bad<U+200B> xxx")
    assert invoice.supplier.name.endswith("more)")
    assert invoice.number == "A<U+00AD>1"
