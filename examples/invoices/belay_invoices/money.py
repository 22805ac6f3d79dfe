"""Currencies of ISO 4217 and their smallest units, amounts as text, and rounding as EN 16931 means it."""

from decimal import ROUND_FLOOR, Context, Decimal

_TWO_DECIMALS = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF "
    "CHE CHF CHW CNH CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ "
    "GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK "
    "MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB "
    "SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN "
    "UYU UZS VED VES WST XAG XAU XBA XBB XBC XBD XCD XCG XDR XPD XPT XSU XTS XUA XXX YER ZAR ZMW ZWG"
)
# Withdrawn, and still on invoices that were written while they were money.
_WITHDRAWN = "CUC HRK SLL STD ZWL"
_WHOLE = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"
_THREE_DECIMALS = "BHD IQD JOD KWD LYD OMR TND"
_FOUR_DECIMALS = "CLF UYW"

DECIMALS: dict[str, int] = {
    **dict.fromkeys(_TWO_DECIMALS.split(), 2),
    **dict.fromkeys(_WITHDRAWN.split(), 2),
    **dict.fromkeys(_WHOLE.split(), 0),
    **dict.fromkeys(_THREE_DECIMALS.split(), 3),
    **dict.fromkeys(_FOUR_DECIMALS.split(), 4),
}
"""Decimals of each currency's smallest unit. Codes that have none, such as metals, count as two."""


class InexactAmount(ValueError):
    """An amount is no whole number of its currency's smallest unit."""


def is_known(currency: str) -> bool:
    """Whether ISO 4217 lists this alphabetic code."""
    return currency in DECIMALS


def minor_units(amount: Decimal, currency: str) -> int:
    """The amount counted in the currency's smallest unit: 12.34 EUR is 1234, 1234 JPY is 1234.

    Raises:
        InexactAmount: A part of the smallest unit would be lost.
    """
    scaled = _scaled(amount, currency)
    whole = int(scaled)
    if whole != scaled:
        raise InexactAmount(f"{amount:f} {currency} is no whole number of its smallest unit")
    return whole


def is_whole(amount: Decimal, currency: str) -> bool:
    """Whether the amount can be paid exactly in this currency."""
    scaled = _scaled(amount, currency)
    return scaled == int(scaled)


def from_minor_units(minor: int, currency: str) -> Decimal:
    """The amount that ``minor`` smallest units make."""
    return Decimal(minor).scaleb(-DECIMALS.get(currency, 2))


def _scaled(amount: Decimal, currency: str) -> Decimal:
    # The usual context keeps 28 digits, and would round away what must be seen here.
    return amount.scaleb(DECIMALS.get(currency, 2), Context(prec=100))


_HALF = Decimal("0.5")
_HUNDRED = Decimal(100)


def amount_text(amount: Decimal, currency: str) -> str:
    """At least two decimals, more where they say something, and the currency."""
    whole, _, decimals = f"{amount:f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')} {currency}"


def to_cents(amount: Decimal) -> Decimal:
    """Rounded to two decimals, halves upwards also below zero: the rounding of the standard's own rules."""
    return to_whole(amount * _HUNDRED) / _HUNDRED


def to_whole(amount: Decimal) -> Decimal:
    """Rounded to a whole number, halves upwards also below zero."""
    return (amount + _HALF).to_integral_value(ROUND_FLOOR)


def has_more_decimals(amount: Decimal, decimals: int) -> bool:
    """Whether digits other than zero follow after that many decimals."""
    scaled = amount.scaleb(decimals)
    return scaled != scaled.to_integral_value(ROUND_FLOOR)
