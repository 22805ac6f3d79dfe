"""What is kept of an invoice: enough to check, book and file it, small however long the document is."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Literal, TypeAlias


def _bare(text: str) -> str:
    """Letters and digits only: registrations are written with and without points and spaces."""
    return "".join(character for character in text.casefold() if character.isalnum())


class Kind(StrEnum):
    """Whether the supplier asks for money or gives it back."""

    INVOICE = "invoice"
    CREDIT_NOTE = "credit note"


class Profile(StrEnum):
    """The rule book that the document says it follows (BT-24), as far as it changes what is checked."""

    EN16931 = "en16931"
    """EN 16931, or nothing said."""
    EXTENSION = "extension"
    """An extension of EN 16931, which may add codes and payments to third parties."""
    OIOUBL = "oioubl"
    """Danish OIOUBL, which writes the tax where EN 16931 writes the total without VAT."""
    OTHER = "other"
    """Some other use of UBL: terms may be missing, and only the sums that are there are checked."""


@dataclass(frozen=True, slots=True)
class Party:
    """A seller or buyer: its name, and what identifies it."""

    name: str
    vat_id: str | None = None
    legal_id: str | None = None
    country: str | None = None

    @property
    def identities(self) -> tuple[str, ...]:
        """Everything by which two documents can be seen to name the same party, the strongest first."""
        registered = (("vat", self.vat_id), ("legal", self.legal_id))
        found = [f"{kind}:{_bare(value)}" for kind, value in registered if value and _bare(value)]
        return (*found, f"name:{_bare(self.name) or self.name}")


@dataclass(frozen=True, slots=True)
class Totals:
    """The amounts of the whole document (BG-22), in its currency; None where the document has none."""

    payable: Decimal
    """BT-115, the amount due for payment."""
    lines: Decimal | None = None
    """BT-106, the sum of the line net amounts as stated."""
    allowances: Decimal | None = None
    """BT-107."""
    charges: Decimal | None = None
    """BT-108."""
    without_vat: Decimal | None = None
    """BT-109."""
    vat: Decimal | None = None
    """BT-110."""
    with_vat: Decimal | None = None
    """BT-112."""
    prepaid: Decimal | None = None
    """BT-113."""
    rounding: Decimal | None = None
    """BT-114."""
    vat_accounting: Decimal | None = None
    """BT-111, the VAT in the accounting currency."""
    third_party: Decimal | None = None
    """Payments collected for third parties, an XRechnung extension; they add to what is due."""


@dataclass(frozen=True, slots=True)
class VatLine:
    """One group of the VAT breakdown (BG-23) as stated."""

    category: str | None
    """BT-118."""
    rate: Decimal | None
    """BT-119, in per cent."""
    taxable: Decimal | None
    """BT-116."""
    tax: Decimal | None
    """BT-117."""
    has_reason: bool = False
    """Whether an exemption reason is given (BT-120 or BT-121)."""


@dataclass(frozen=True, slots=True)
class TaxedGroup:
    """What the lines, allowances and charges of one VAT category and rate add up to."""

    category: str | None
    rate: Decimal | None
    lines: int
    net: Decimal
    allowances: Decimal
    charges: Decimal

    @property
    def taxable(self) -> Decimal:
        """What the breakdown should give as the taxable amount."""
        return self.net - self.allowances + self.charges


@dataclass(frozen=True, slots=True)
class LineDifference:
    """A line whose net amount is not its quantity times its price, less allowances, plus charges."""

    position: int
    """Counted from 1."""
    expected: Decimal
    found: Decimal


@dataclass(frozen=True, slots=True)
class Lines:
    """What was read of the lines and of the document's allowances and charges."""

    count: int
    net: Decimal
    """The sum of BT-131."""
    allowances: Decimal
    """The sum of BT-92."""
    allowance_count: int
    charges: Decimal
    """The sum of BT-99."""
    charge_count: int
    groups: tuple[TaxedGroup, ...]
    uncategorised: int
    """Lines without a VAT category code (BT-151)."""
    differing: int
    """Lines whose net amount does not follow from quantity and price."""
    first_difference: LineDifference | None
    items: tuple[str, ...]
    """The first distinct item names (BT-153)."""
    classifications: tuple[str, ...]
    """The first distinct item classification codes (BT-158)."""


@dataclass(frozen=True, slots=True)
class Invoice:
    """One invoice or credit note. Texts are on one line, visible and cut; identifiers are whole."""

    kind: Kind
    profile: Profile
    number: str
    type_code: str | None
    issue_date: date
    due_date: date | None
    currency: str
    tax_currency: str | None
    supplier: Party
    buyer: Party | None
    accounting_reference: str | None
    """BT-19, what the buyer asked the seller to write for the buyer's own books."""
    totals: Totals
    vat_totals: int
    """How many VAT totals there are in the document's currency; EN 16931 has one."""
    vat_lines: tuple[VatLine, ...]
    lines: Lines
    other_currencies: tuple[str, ...]
    """Currencies of amounts that should be in the document's currency, and are not."""
    has_payment_terms: bool
    checks_line_prices: bool
    """Whether the rule book has a rule for the net amount of each line (Peppol BIS Billing, XRechnung)."""
    is_credit_document: bool
    """A CreditNote document."""
    is_credit_by_code: bool
    """An Invoice document whose type code makes it a credit note."""
    digest: str
    """SHA-256 of the file's bytes, in hexadecimal."""

    @property
    def document_keys(self) -> tuple[str, ...]:
        """What names this invoice in the world: kind, number and supplier, by each identity of the supplier.

        Two documents that share one of them are the same invoice, however often and in whatever form it comes.
        """
        number = "".join(self.number.split()).casefold()
        return tuple(f"{self.kind} {number} {identity}" for identity in self.supplier.identities)

    @property
    def signed_payable(self) -> Decimal:
        """The amount due as the buyer books it: a credit note takes from what is owed."""
        return -self.totals.payable if self.kind is Kind.CREDIT_NOTE else self.totals.payable


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about an invoice that a person should look at before it is paid."""

    code: str
    """The rule: EN 16931's or Peppol's own name, or one of belay's in lower case."""
    term: str | None
    """The business term it is about, such as BT-112."""
    message: str
    expected: Decimal | None = None
    found: Decimal | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


Code: TypeAlias = Literal[
    "no_file",
    "empty",
    "too_large",
    "not_xml",
    "hostile_xml",
    "other_format",
    "missing_field",
    "bad_value",
]
"""What is wrong, for programs; the message says it for people."""


class UnreadableInvoice(Exception):
    """A file could not be read as a UBL invoice or credit note.

    The message names fields, rules and positions, and never repeats what the file says: it may have been
    written to be shown.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)
        self.code: Code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
