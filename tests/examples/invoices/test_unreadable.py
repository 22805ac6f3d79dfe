"""Refusing what is no invoice: one error, with a code, that never repeats the file."""

import os
from decimal import Decimal
from pathlib import Path

import pytest

from belay_invoices.invoice import UnreadableInvoice
from belay_invoices.ubl_reader import read_invoice
from belay_invoices.ubl_xml import MAXIMUM_BYTES, MAXIMUM_DEPTH, MAXIMUM_TAG
from tests.examples.invoices.ubl import Document, Extra, Line, enveloped


def refused(data: bytes) -> UnreadableInvoice:
    with pytest.raises(UnreadableInvoice) as caught:
        read_invoice(data)
    return caught.value


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
def test_what_is_no_invoice_is_reported_by_its_code(data: bytes, code: str):
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


def test_an_allowance_without_an_amount_is_refused():
    xml = Document(extras=(Extra(Decimal("7.77")),)).xml().replace(">7.77</cbc:Amount>", "> </cbc:Amount>")
    assert refused(xml.encode()).code == "missing_field"


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


def test_an_envelope_holds_one_invoice():
    xml = Document().xml()
    error = refused(enveloped(xml + xml).encode())
    assert (error.code, "2 invoices" in error.message) == ("other_format", True)
    assert "without a UBL invoice" in refused(enveloped("<a/>").encode()).message
