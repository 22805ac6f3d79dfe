"""Copies for code that may change what it is given: what a step does to its arguments, the body never sees."""

import copy
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from belay_core.errors import ValueRefused

T = TypeVar("T")

IMMUTABLE: Final = frozenset(
    {str, int, float, bool, NoneType, bytes, Decimal, UUID, datetime, date, time, timedelta, complex}
)
"""Types whose values, exactly of them, need no copy."""


class OwnArguments(NamedTuple):
    """Arguments that can be changed in place: each call is made with a copy of its own."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def own_copy(value: T) -> T:
    """A value of its own, equal to this one. Raises ``ValueRefused`` where its type cannot be copied."""
    if type(value) in IMMUTABLE:
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  (an author's own __deepcopy__ or __reduce__ may raise anything)
        found: Any = type(value).__name__
    raise ValueRefused(f"a value of type {found} cannot be copied")
