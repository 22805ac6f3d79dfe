"""From bytes to an XML tree with the attacks on parsers refused, and the fields of a UBL document by path.

What a file is when it is no UBL invoice is named in words of this module, never in those of the file.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar
from xml.etree.ElementTree import Element, TreeBuilder  # only the tree: defusedxml does the parsing
from xml.parsers.expat import ErrorString

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError

from belay_invoices.invoice import UnreadableInvoice

T = TypeVar("T")

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


MAXIMUM_BYTES: Final = 32 * 1024 * 1024
"""Bytes of one invoice, attachments included."""

MAXIMUM_DEPTH: Final = 100
"""Elements around the innermost one."""

MAXIMUM_NODES: Final = 500_000
"""Elements and attributes of one invoice: some ten thousand lines."""

MAXIMUM_TAG: Final = 1024 * 1024
"""Bytes of one tag or comment."""

_PIECE = 256 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff", b"<\x00", b"\x00<")
_DECLARATION = re.compile(rb"<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9._:-]{1,40})[\"']")
# Expat asks Python for any other encoding by name, and Python's codecs include some that are no text.
_SINGLE_BYTE = re.compile(r"utf-?8|us-ascii|ascii|latin-?1|iso[-_]?8859-?\d{1,2}|(windows-|cp)125\d")
_SIXTEEN_BIT = re.compile(r"utf-?16(le|be)?|ucs-?2|unicode")


class _TooLarge(Exception):
    """The document exceeds a limit; the argument names it."""


class _BoundedTree(TreeBuilder):
    """Builds the tree, and stops when it grows beyond what an invoice can be."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._nodes = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._nodes += 1 + len(attrs)
        if self._depth > MAXIMUM_DEPTH:
            raise _TooLarge(f"elements lie more than {MAXIMUM_DEPTH} deep")
        if self._nodes > MAXIMUM_NODES:
            raise _TooLarge(f"there are more than {MAXIMUM_NODES} elements and attributes")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse(data: bytes) -> Element:
    """The root element of an XML document.

    Raises:
        UnreadableInvoice: The bytes are empty, too many, another format, no XML, or XML with a document type
            declaration, which every attack by entities needs and no UBL document has.
    """
    if len(data) > MAXIMUM_BYTES:
        raise UnreadableInvoice("too_large", f"the file has more than {MAXIMUM_BYTES} bytes")
    if not data.strip(b"\x00 \t\r\n"):
        raise UnreadableInvoice("empty", "the file has no content")
    other = by_beginning(data)
    if other is not None:
        raise UnreadableInvoice("other_format", f"the file is {other}, not a UBL invoice")
    return _parse(data)


def _parse(data: bytes) -> Element:
    try:
        parser = DefusedXMLParser(target=_BoundedTree(), encoding=_encoding(data), forbid_dtd=True)
        _feed(parser, _from_first_tag(data))
        root: Element = parser.close()
    except DefusedXmlException:
        raise UnreadableInvoice(
            "hostile_xml", "the XML has a document type declaration or entities, which no UBL invoice has"
        ) from None
    except _TooLarge as excess:
        raise UnreadableInvoice("too_large", f"{excess}") from None
    except ParseError as error:
        raise UnreadableInvoice("not_xml", _where(error)) from None
    except (ValueError, LookupError):
        raise UnreadableInvoice("not_xml", "the XML is in an encoding that cannot be read") from None
    return root


def _feed(parser: DefusedXMLParser, data: bytes) -> None:
    """Feeds the parser piece by piece, and stops at a tag that does not end.

    Expat keeps a tag until it is whole, and only then could its attributes be counted: millions in one tag would
    fill the memory before. Text goes through in pieces, so attachments may be of any length.
    """
    for start in range(0, len(data), _PIECE):
        parser.feed(data[start : start + _PIECE])
        if start + _PIECE - parser.parser.CurrentByteIndex > MAXIMUM_TAG:
            raise _TooLarge(f"one tag or comment is longer than {MAXIMUM_TAG} bytes")


def _where(error: ParseError) -> str:
    line, column = error.position
    # The parser's own text may quote the document; the text of its error code cannot.
    return f"the XML is not well-formed at line {line}, column {column + 1}: {ErrorString(error.code)}"


def _from_first_tag(data: bytes) -> bytes:
    # Blanks before an XML declaration are against the standard, and a common slip of exporters.
    return data.lstrip(b" \t\r\n") if data[:1].isspace() else data


def _encoding(data: bytes) -> str | None:
    """What to tell the parser about the encoding; None leaves it to the document."""
    if data.startswith(_UTF8_MARK):
        return "utf-8"
    if data.startswith(_UTF16_MARKS):
        return None
    declared = _DECLARATION.match(data[:512].lstrip(b" \t\r\n"))
    if declared is None:
        return None
    name = declared.group(1).decode("ascii").lower()
    if _SIXTEEN_BIT.fullmatch(name):
        # The declaration was read byte by byte, so the document cannot be in 16 bits: a string that was
        # written to a file as UTF-8 and kept the declaration it had in memory.
        return "utf-8"
    if _SINGLE_BYTE.fullmatch(name):
        return None
    raise LookupError(name)


_PREFIXES = {"cac": f"{{{UBL}CommonAggregateComponents-2}}", "cbc": f"{{{UBL}CommonBasicComponents-2}}"}

MAXIMUM_WHOLE_DIGITS: Final = 15
"""Digits before the point: amounts stay exact in 64 bits of the smallest unit."""

MAXIMUM_DECIMALS: Final = 30
"""Digits after the point: prices carry many, and programs that count in binary write all they have."""

_MAXIMUM_NUMBER = 100
_NUMBER = re.compile(r"([+-]?)0*(\d*)(?:\.(\d*))?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:Z|[+-]\d{2}:\d{2})?", re.ASCII)
_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Term:
    """A field by its business term and its name in words."""

    number: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.number})"


Reader: TypeAlias = Callable[[str, Term, str], T]
"""Makes a value of a text; the term and the path are for the error where that cannot be done."""


@dataclass(frozen=True, slots=True)
class Node:
    """An element, and the path by which it was reached."""

    element: Element
    path: str

    def each(self, path: str) -> Iterator["Node"]:
        """Every element at this path below, in the document's order."""
        for element in self.element.findall(_expanded(path)):
            yield Node(element, f"{self.path}/{path}")

    def first(self, path: str) -> "Node | None":
        """The first element at this path below."""
        return next(self.each(path), None)

    def text(self, path: str) -> str | None:
        """The first text at this path below that is not blank, on one line."""
        for element in self.element.findall(_expanded(path)):
            line = " ".join((element.text or "").split())
            if line:
                return line
        return None

    def required(self, path: str, term: Term) -> str:
        """As ``text``, and an error where there is none."""
        found = self.text(path)
        if found is None:
            raise UnreadableInvoice("missing_field", f"{term} is missing at {self.path}/{path}")
        return found

    def value(self, read: Reader[T], path: str, term: Term) -> T | None:
        """The value that ``read`` makes of the text at this path below; None where there is none."""
        found = self.text(path)
        return None if found is None else read(found, term, f"{self.path}/{path}")

    def required_value(self, read: Reader[T], path: str, term: Term) -> T:
        """As ``value``, and an error where there is none."""
        return read(self.required(path, term), term, f"{self.path}/{path}")

    def number(self, path: str, term: Term) -> Decimal | None:
        """The number at this path below; None where there is none."""
        return self.value(decimal, path, term)

    def currency_of(self, path: str) -> str | None:
        """The currency of the amount at this path below; None where it names none or there is none."""
        element = self.element.find(_expanded(path))
        name = "" if element is None else element.get("currencyID", "").strip()
        return name or None


def decimal(text: str, term: Term, path: str) -> Decimal:
    """An ``xs:decimal``: digits with an optional sign and point, no exponent, no thousands."""
    # The pattern can split leading zeros in many ways, so it is not shown a text of any length.
    found = _NUMBER.fullmatch(text) if len(text) <= _MAXIMUM_NUMBER else None
    if found is None or not text.strip("+-."):
        raise UnreadableInvoice(
            "bad_value", f"{term} at {path} is no decimal number: digits, at most one point, no commas"
        )
    sign, whole, decimals = found[1], found[2] or "0", found[3] or ""
    if len(whole) > MAXIMUM_WHOLE_DIGITS or len(decimals) > MAXIMUM_DECIMALS:
        raise UnreadableInvoice(
            "bad_value",
            f"{term} at {path} has more than {MAXIMUM_WHOLE_DIGITS} digits before "
            f"or {MAXIMUM_DECIMALS} after the point",
        )
    value = Decimal(f"{whole}.{decimals}" if decimals else whole)
    # Zero has no sign here: minus nothing would be shown, and compare equal to nothing.
    return value.copy_negate() if sign == "-" and value else value


def calendar_date(text: str, term: Term, path: str) -> date:
    """An ``xs:date`` that exists in the calendar; a time zone is allowed and dropped."""
    found = _DATE.fullmatch(text)
    try:
        if found is not None:
            return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        pass
    raise UnreadableInvoice("bad_value", f"{term} at {path} is no calendar date in the form YYYY-MM-DD")


def currency_code(text: str, term: Term, path: str) -> str:
    """Three capital letters; whether they are a currency is for the checks."""
    if _CURRENCY.fullmatch(text) is None:
        raise UnreadableInvoice("bad_value", f"{term} at {path} is no currency code of three capital letters")
    return text


@lru_cache(maxsize=256)
def _expanded(path: str) -> str:
    return "/".join(_PREFIXES[step[:3]] + step[4:] for step in path.split("/"))
