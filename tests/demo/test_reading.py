"""Reading what other programs write, and refusing what is no invoice."""

import dataclasses
import os
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from belay_core.demo.checking import check
from belay_core.demo.invoice import Finding, Invoice, Kind, Profile
from belay_core.demo.markup import MAXIMUM_BYTES, MAXIMUM_DEPTH, MAXIMUM_TAG
from belay_core.demo.reading import read_invoice
from belay_core.demo.unreadable import UnreadableInvoice
from tests.demo.ubl import Document, Extra, Line, decorated, enveloped, extended, prefixed, unprefixed

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


def refused(data: bytes) -> UnreadableInvoice:
    with pytest.raises(UnreadableInvoice) as caught:
        read_invoice(data)
    return caught.value


def content(invoice: Invoice) -> Invoice:
    """The invoice without what depends on the bytes of its file."""
    return dataclasses.replace(invoice, digest="", size=0)


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


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (b" \r\n\t ", "empty"),
        (b"\x00" * 50, "empty"),
        (b"%PDF-1.7 and so on", "other_format"),
        (b"\n%PDF-1.7 and so on", "other_format"),
        (b'{"invoice": 1}', "other_format"),
        (b"\xef\xbb\xbf[1]", "other_format"),
        (b"PK\x03\x04....", "other_format"),
        (b"UNA:+.? 'UNB+UNOC:3", "other_format"),
        (b"0\x82\x01\x02abc", "other_format"),
        (b"<!DOCTYPE html><html></html>", "other_format"),
        (b"<html><body/></html>", "other_format"),
        (b"hello", "not_xml"),
        (b"<a>", "not_xml"),
        (b"<a></b>", "not_xml"),
        (b"<a>&nbsp;</a>", "not_xml"),
        (b"<a>\xff</a>", "not_xml"),
        (b'<?xml version="1.0" encoding="utf-32"?><a/>', "not_xml"),
        (b'<?xml version="1.0" encoding="rot13"?><n/>', "not_xml"),
        (b'<?xml version="1.0" encoding="shift_jis"?><n/>', "not_xml"),
        (b"<a/>", "other_format"),
        (b"<Invoice/>", "other_format"),
        (b"<!DOCTYPE a><a/>", "hostile_xml"),
        (b'<!DOCTYPE a SYSTEM "http://collector.example/a.dtd"><a/>', "hostile_xml"),
        (b'<!DOCTYPE a [<!ENTITY % p SYSTEM "http://collector.example/"> %p;]><a/>', "hostile_xml"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "hostile_xml"),
    ],
)
def test_what_is_no_invoice_is_told_by_its_code(data: bytes, code: str):
    assert refused(data).code == code


@pytest.mark.parametrize(
    ("root", "named"),
    [
        ('<x:CrossIndustryInvoice xmlns:x="urn:un:unece:uncefact:data:standard:CrossIndustryInvoice:100"/>', "CII"),
        (
            '<p:FatturaElettronica xmlns:p="http://ivaservizi.agenziaentrate.gov.it/docs/xsd/fatture/v1.2"/>',
            "FatturaPA",
        ),
        ('<f:Facturae xmlns:f="http://www.facturae.gob.es/formato/Versiones/Facturaev3_2_2.xml"/>', "Facturae"),
        ('<Order xmlns="urn:oasis:names:specification:ubl:schema:xsd:Order-2"/>', "UBL document"),
        ('<Invoice xmlns="urn:oasis:names:tc:ubl:Invoice:1:0"/>', "UBL 1"),
        ("<Finvoice/>", "Finvoice"),
        ('<a xmlns="urn:secret">x</a>', "another kind"),
    ],
)
def test_other_formats_are_named(root: str, named: str):
    error = refused(root.encode())
    assert error.code == "other_format"
    assert named in error.message


@pytest.mark.parametrize(
    ("element", "term", "path"),
    [
        ("ID", "BT-1", "/Invoice/cbc:ID"),
        ("IssueDate", "BT-2", "/Invoice/cbc:IssueDate"),
        ("DocumentCurrencyCode", "BT-5", "/Invoice/cbc:DocumentCurrencyCode"),
        ("PayableAmount", "BT-115", "/Invoice/cac:LegalMonetaryTotal/cbc:PayableAmount"),
        ("LineExtensionAmount", "BT-131", "/Invoice/cac:InvoiceLine[1]/cbc:LineExtensionAmount"),
    ],
)
@pytest.mark.parametrize("emptied", [True, False])
def test_a_missing_field_is_named(element: str, term: str, path: str, emptied: bool):
    xml = Document().xml()
    start = xml.index(f"<cbc:{element}", xml.index("<cac:InvoiceLine>") if element.startswith("Line") else 0)
    end = xml.index(f"</cbc:{element}>", start) + len(f"</cbc:{element}>")
    error = refused((xml[:start] + (f"<cbc:{element}> </cbc:{element}>" if emptied else "") + xml[end:]).encode())
    assert error.code == "missing_field"
    assert term in error.message
    assert path in error.message


def test_a_missing_supplier_is_named():
    error = refused(Document().xml().replace("Seller &amp; Sons", " ").encode())
    assert (error.code, "BT-27" in error.message) == ("missing_field", True)


@pytest.mark.parametrize(
    ("old", "new", "term"),
    [
        (">2026-03-31<", ">31.03.2026<", "BT-2"),
        (">2026-03-31<", ">2026-02-29<", "BT-2"),
        (">2026-03-31<", ">2026-03-31T10:00:00<", "BT-2"),
        (">2026-03-31<", ">२०२६-03-31<", "BT-2"),
        (">2026-04-30<", ">2026-04-31<", "BT-9"),
        (">EUR<", ">€<", "BT-5"),
        (">EUR<", ">eur<", "BT-5"),
        (">119.00</cbc:Pay", ">1,19</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", ">1.19E2</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", ">NaN</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", ">١١٩</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", ">1_19</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", ">1 19</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", ">.</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", f">{'9' * 16}</cbc:Pay", "BT-115"),
        (">119.00</cbc:Pay", f">{'0' * 100_000}x</cbc:Pay", "BT-115"),
        (">A-1<", f">{'9' * 201}<", "BT-1"),
    ],
)
def test_a_bad_value_is_named_and_never_repeated(old: str, new: str, term: str):
    xml = Document().xml()
    assert old in xml
    error = refused(xml.replace(old, new).encode())
    assert error.code == "bad_value"
    assert term in error.message
    value = new[1:].partition("<")[0]
    assert value == "." or value not in error.message


def test_an_indicator_that_is_neither_is_refused():
    xml = Document(extras=(Extra(Decimal(1)),)).xml().replace(">false<", ">perhaps<")
    assert refused(xml.encode()).code == "bad_value"


@pytest.mark.parametrize(
    ("text", "value"),
    [("119", "119"), ("+119.00", "119.00"), ("0119.", "119"), ("-0.00", "0.00"), (".5", "0.5"), ("\n 1.5 ", "1.5")],
)
def test_decimals_are_read_as_xml_schema_has_them(text: str, value: str):
    xml = Document(customization="other").xml().replace(">119.00</cbc:Pay", f">{text}</cbc:Pay")
    assert str(read_invoice(xml.encode()).totals.payable) == value


def test_limits_hold():
    assert refused(b"<" + b"a" * MAXIMUM_BYTES).code == "too_large"
    deep = b"<a>" * (MAXIMUM_DEPTH + 1)
    assert refused(deep).code == "too_large"
    assert refused(b"<a>" * 2_000_000).code == "too_large"
    assert refused(b"<a>" + b"<b/>" * 600_000 + b"</a>").code == "too_large"
    attributes = b" ".join(b'a%d=""' % number for number in range(100_000))
    assert refused(b"<a " + attributes + b">" + (b"<b " + attributes + b"/>") * 5 + b"</a>").code == "too_large"
    assert refused(b'<a b="' + b"x" * (2 * MAXIMUM_TAG)).code == "too_large"
    assert refused(b"<a><!--" + b"x" * (2 * MAXIMUM_TAG)).code == "too_large"
    rates = tuple(Line(rate=Decimal(number)) for number in range(1, 600))
    assert refused(Document(lines=rates).bytes()).code == "too_large"


def test_files_that_cannot_be_opened_are_an_error_like_any_other(tmp_path: Path):
    large = tmp_path / "large.xml"
    with large.open("wb") as file:
        file.truncate(MAXIMUM_BYTES + 1)
    pipe = tmp_path / "pipe.xml"
    os.mkfifo(pipe)
    codes = {}
    for path in (tmp_path / "none.xml", tmp_path, large / "below.xml", pipe, large):
        with pytest.raises(UnreadableInvoice) as caught:
            read_invoice(path)
        codes[path.name] = caught.value.code
    assert codes.pop("large.xml") == "too_large"
    assert set(codes.values()) == {"no_file"}


def test_hidden_characters_are_shown_and_long_texts_are_cut():
    invoice = read_invoice(Document(supplier=f"Good\u202eBad\u200b {'x' * 300}", number="A\u00ad1").bytes())
    assert invoice.supplier.name.startswith("Good<U+202E>Bad<U+200B> xxx")
    assert invoice.supplier.name.endswith("more)")
    assert invoice.number == "A<U+00AD>1"
