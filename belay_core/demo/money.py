"""Amounts as people read them, and rounding as EN 16931 means it."""

from decimal import ROUND_FLOOR, Decimal

_HALF = Decimal("0.5")
_HUNDRED = Decimal(100)


def shown(amount: Decimal, currency: str) -> str:
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
    """Whether digits other than zero stand behind that many decimals."""
    scaled = amount.scaleb(decimals)
    return scaled != scaled.to_integral_value(ROUND_FLOOR)
