"""Reading fields of a UBL document by path: a missing or bad one is an error that names the path."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Final
from xml.etree.ElementTree import Element

from belay_core.demo.formats import UBL
from belay_core.demo.unreadable import UnreadableInvoice

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

    def number(self, path: str, term: Term) -> Decimal | None:
        """The number at this path below; None where there is none."""
        found = self.text(path)
        return None if found is None else decimal(found, term, f"{self.path}/{path}")

    def day(self, path: str, term: Term) -> date | None:
        """The calendar date at this path below; None where there is none."""
        found = self.text(path)
        return None if found is None else calendar_date(found, term, f"{self.path}/{path}")

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
