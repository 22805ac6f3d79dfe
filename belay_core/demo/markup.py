"""From bytes to an XML tree, with the attacks on XML parsers shut out."""

import re
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder  # the tree alone: defusedxml does the parsing
from xml.parsers.expat import ErrorString

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError

from belay_core.demo.formats import by_beginning
from belay_core.demo.unreadable import UnreadableInvoice

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


class _TooMuch(Exception):
    """The document passes a limit; the argument says which."""


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
            raise _TooMuch(f"elements lie more than {MAXIMUM_DEPTH} deep")
        if self._nodes > MAXIMUM_NODES:
            raise _TooMuch(f"there are more than {MAXIMUM_NODES} elements and attributes")
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
    except _TooMuch as excess:
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
            raise _TooMuch(f"one tag or comment is longer than {MAXIMUM_TAG} bytes")


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
