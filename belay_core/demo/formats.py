"""Telling what a file is when it is no UBL invoice; every name here is ours, never the file's."""

from typing import Final

UBL: Final = "urn:oasis:names:specification:ubl:schema:xsd:"
INVOICE: Final = f"{{{UBL}Invoice-2}}Invoice"
CREDIT_NOTE: Final = f"{{{UBL}CreditNote-2}}CreditNote"
ENVELOPE: Final = "{http://www.unece.org/cefact/namespaces/StandardBusinessDocumentHeader}StandardBusinessDocument"
"""The envelope in which Peppol carries documents."""

_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "a PDF; an invoice embedded in it (ZUGFeRD, Factur-X) is not looked for"),
    (b"{\\rtf", "a text document (RTF)"),
    (b"{", "JSON"),
    (b"[", "JSON"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"II*\x00", "a picture (TIFF)"),
    (b"MM\x00*", "a picture (TIFF)"),
    (b"\xd0\xcf\x11\xe0", "an old office document or mail"),
    (b"0\x80", "a signed envelope (CAdES, .p7m)"),
    (b"0\x82", "a signed envelope (CAdES, .p7m)"),
    (b"0\x83", "a signed envelope (CAdES, .p7m)"),
    (b"-----BEGIN", "a PEM file"),
    (b"UNA", "EDIFACT"),
    (b"UNB+", "EDIFACT"),
    (b"ISA*", "ANSI X12"),
    (b"<html", "an HTML page"),
    (b"<!doctype html", "an HTML page"),
)

_NAMESPACES: tuple[tuple[str, str], ...] = (
    ("urn:un:unece:uncefact:data:standard:CrossIndustryInvoice:", "a Cross Industry Invoice (UN/CEFACT CII)"),
    ("urn:ferd:CrossIndustryDocument:invoice:", "a ZUGFeRD 1 invoice (CII)"),
    ("urn:un:unece:uncefact:data:standard:SCRDMCCBDACIO", "an Order-X order"),
    ("http://ivaservizi.agenziaentrate.gov.it/docs/xsd/fatture", "an Italian FatturaPA invoice"),
    ("http://www.fatturapa.gov.it/", "an Italian FatturaPA invoice"),
    ("http://www.facturae.", "a Spanish Facturae invoice"),
    ("http://www.ebinterface.at/", "an Austrian ebInterface invoice"),
    ("http://crd.gov.pl/wzor/", "a Polish KSeF invoice"),
    ("http://www.isdoc.cz/", "a Czech ISDOC invoice"),
    ("http://isdoc.cz/", "a Czech ISDOC invoice"),
    ("http://schemas.nav.gov.hu/OSA/", "a Hungarian NAV invoice report"),
    ("http://www.forum-datenaustausch.ch/invoice", "a Swiss health invoice"),
    ("http://www.sat.gob.mx/cfd/", "a Mexican CFDI invoice"),
    ("http://www.portalfiscal.inf.br/nfe", "a Brazilian NF-e invoice"),
    ("urn:sfti:documents:BasicInvoice:", "a Svefaktura invoice"),
    ("http://rep.oio.dk/ubl/xml/schemas/0p71", "a Danish OIOXML invoice"),
    ("urn:oasis:names:tc:ubl:", "a UBL 1 document"),
    ("http://schemas.xmlsoap.org/soap/envelope", "a SOAP message"),
    ("http://www.w3.org/2003/05/soap-envelope", "a SOAP message"),
    ("http://www.w3.org/1999/xhtml", "an HTML page"),
    (
        "http://www.unece.org/cefact/namespaces/StandardBusinessDocumentHeader",
        "an envelope without a UBL invoice",
    ),
    (UBL, "a UBL document that is neither an invoice nor a credit note"),
)

_PLAIN_ROOTS: dict[str, str] = {
    "Finvoice": "a Finnish Finvoice invoice",
    "FatturaElettronica": "an Italian FatturaPA invoice",
    "Facturae": "a Spanish Facturae invoice",
    "E_Invoice": "an Estonian e-invoice",
    "cXML": "a cXML message",
    "Invoice": "an invoice without the UBL namespace",
    "CreditNote": "a credit note without the UBL namespace",
    "html": "an HTML page",
}


def by_beginning(data: bytes) -> str | None:
    """What a file is by its first bytes, or None where it may be XML."""
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    lowered = start[:16].lower()
    for beginning, name in _BEGINNINGS:
        if start.startswith(beginning) or lowered.startswith(beginning):
            return name
    return _BEGINNINGS[0][1] if b"%PDF-" in start and not start.startswith(b"<") else None


def by_root(tag: str) -> str:
    """What an XML document is by its root element's name, as ElementTree spells it."""
    namespace, _, local = tag[1:].rpartition("}") if tag.startswith("{") else ("", "", tag)
    for beginning, name in _NAMESPACES:
        if namespace.startswith(beginning):
            return name
    return _PLAIN_ROOTS.get(local, "XML of another kind") if not namespace else "XML of another kind"
