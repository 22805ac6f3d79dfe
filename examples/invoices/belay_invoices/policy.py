"""Policy of the paying office: which cost centre bears an invoice, and when a person is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from belay_invoices.invoice import Finding, Invoice
from belay_invoices.money import amount_text


@dataclass(frozen=True, slots=True)
class Rule:
    """Assigns a cost centre to the invoices it fits; every condition that is given must hold."""

    name: str
    cost_centre: str
    suppliers: tuple[str, ...] = ()
    """Parts of the supplier's name, or a whole VAT or legal identifier; one must be there."""
    keywords: tuple[str, ...] = ()
    """Words, of which one must be in the name of an item; ``word*`` also finds what begins with it."""
    classifications: tuple[str, ...] = ()
    """Beginnings of item classification codes (BT-158); one item's code must begin with one of them."""
    countries: tuple[str, ...] = ()
    """Supplier countries; it must be one of them."""

    def fits(self, invoice: Invoice) -> bool:
        """Whether this rule is for that invoice; a rule without conditions is for every one."""
        return (
            (not self.suppliers or _names_supplier(invoice, self.suppliers))
            and (not self.keywords or _has_word(invoice.lines.items, self.keywords))
            and (not self.classifications or _begins(invoice.lines.classifications, self.classifications))
            and (not self.countries or invoice.supplier.country in self.countries)
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cost centre, and the rule that chose it."""

    cost_centre: str
    rule: str


COST_CENTRES: Final = {
    "1100": "Premises and energy",
    "2100": "Information technology",
    "2200": "Telephone and networks",
    "3100": "Travel",
    "3200": "Freight and customs",
    "4100": "Production material",
    "5100": "Consulting and legal",
    "6100": "Office and printing",
    "7100": "Training",
    "9900": "To be assigned",
}
"""The cost centres there are, and what they are for."""

DEFAULT: Final = Assignment("9900", "no rule fits")

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "premises and energy",
        "1100",
        keywords=("electricity", "strom", "energy", "heating", "rent", "miete", "cleaning", "reinigung*"),
    ),
    Rule(
        "telephone",
        "2200",
        keywords=("telephone*", "mobile", "broadband", "internet", "roaming", "telefon*", "mobilfunk*"),
    ),
    Rule(
        "software and hosting",
        "2100",
        keywords=("software*", "licence*", "license*", "lizenz*", "hosting", "cloud", "server*", "laptop*"),
    ),
    Rule("information technology by code", "2100", classifications=("43", "8111", "48", "72")),
    Rule("training", "7100", keywords=("training*", "course*", "seminar*", "workshop*", "schulung*")),
    Rule("travel", "3100", keywords=("hotel*", "flight*", "railway", "taxi*", "conference*", "reise*", "bahn*")),
    Rule(
        "freight",
        "3200",
        keywords=("freight", "shipping", "transport*", "customs", "courier", "fracht*", "versand*", "spedition*"),
    ),
    Rule("consulting", "5100", keywords=("consult*", "advice", "legal", "audit*", "beratung*", "notar*")),
    Rule(
        "office",
        "6100",
        keywords=("paper", "toner", "print*", "office", "stationery", "papier*", "magazine*", "book", "books"),
    ),
    Rule(
        "production material",
        "4100",
        keywords=("steel", "bolt*", "timber", "aluminium", "resin", "bearing*", "stahl*", "holz*", "schraube*"),
    ),
)
"""In order; the first that fits decides."""

APPROVAL_LIMIT: Final = Decimal(10_000)
"""A person is asked above this amount, in every currency that has no limit of its own."""

_LIMITS: dict[str, Decimal] = {
    "CZK": Decimal(250_000),
    "DKK": Decimal(75_000),
    "HUF": Decimal(4_000_000),
    "ISK": Decimal(1_500_000),
    "JPY": Decimal(1_600_000),
    "KRW": Decimal(15_000_000),
    "NOK": Decimal(115_000),
    "PLN": Decimal(43_000),
    "RON": Decimal(50_000),
    "SEK": Decimal(115_000),
}


def assign(invoice: Invoice, rules: Sequence[Rule] = RULES) -> Assignment:
    """The cost centre that bears the invoice.

    What the buyer asked the seller to write (BT-19) comes first, if it is a cost centre that there is: the seller
    writes it, so anything else there is not believed. Then the first rule that fits.
    """
    reference = (invoice.accounting_reference or "").strip()
    if reference in COST_CENTRES:
        return Assignment(reference, "the accounting reference on the invoice (BT-19)")
    return next((Assignment(rule.cost_centre, rule.name) for rule in rules if rule.fits(invoice)), DEFAULT)


def approval_limit(currency: str) -> Decimal:
    """The amount in this currency above which a person is asked."""
    return _LIMITS.get(currency, APPROVAL_LIMIT)


def reasons_to_ask(invoice: Invoice, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Why a person decides: what was found, and an amount above the limit in either direction. Empty: no need to."""
    limit = approval_limit(invoice.currency)
    reasons = [str(finding) for finding in findings]
    if abs(invoice.totals.payable) > limit:
        reasons.append(f"The amount is above the limit of {amount_text(limit, invoice.currency)}.")
    return tuple(reasons)


def _names_supplier(invoice: Invoice, wanted: tuple[str, ...]) -> bool:
    name = invoice.supplier.name.casefold()
    identifiers = (invoice.supplier.vat_id, invoice.supplier.legal_id)
    return any(one.casefold() in name or one in identifiers for one in wanted)


def _has_word(texts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    spaced = "".join(character if character.isalnum() else " " for character in " ".join(texts).casefold())
    beginnings = tuple(word[:-1] for word in wanted if word.endswith("*"))
    return any(word in wanted or word.startswith(beginnings) for word in spaced.split())


def _begins(codes: tuple[str, ...], beginnings: tuple[str, ...]) -> bool:
    return any(code.startswith(beginnings) for code in codes)
