"""Columns of many rows as parameters for PostgreSQL: one text each, which the server splits.

Arrays would be most of the cost of a flush: the driver checks for each element whether it is an array itself.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

TEXT: Final = "text"
NUMBER: Final = "bigint"

Column: TypeAlias = Sequence[Any]
"""Texts, or whole numbers, or None."""

_BETWEEN: Final = "\x1f"
"""The separator of texts. JSON never holds it; an id may."""
_ABSENT: Final = "\x1e"
"""The text for None."""


def arrays_given(kinds: Sequence[str], first: int) -> str:
    """SQL of columns as arrays, the arguments of ``unnest``, with parameters numbered from ``first`` on."""
    return ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, first))


def texts_given(kinds: Sequence[str], first: int) -> str:
    """The same for columns as ``joined`` makes them."""
    return ", ".join(
        f"string_to_array(${number}::text, E'\\x1f', E'\\x1e')" if kind == TEXT else f"${number}::text::{kind}[]"
        for number, kind in enumerate(kinds, first)
    )


def joined(kinds: Sequence[str], columns: Sequence[Column]) -> list[str] | None:
    """Each column as one text; None if a value holds a separator, so that arrays are needed."""
    try:
        texts = [
            _joined_texts(column) if kind == TEXT else _joined_numbers(column)
            for kind, column in zip(kinds, columns, strict=True)
        ]
    except (TypeError, ValueError):
        # An invalid value: as arrays the driver refuses it, and then each write is sent alone.
        return None
    found = [each for each in texts if each is not None]
    return found if len(found) == len(texts) else None


def _joined_texts(column: Column) -> str | None:
    text = _BETWEEN.join([_ABSENT if each is None else each for each in column])
    # The server splits an empty text into no elements.
    if not text or text.count(_BETWEEN) >= len(column) or text.count(_ABSENT) > column.count(None):
        return None
    return text


def _joined_numbers(column: Column) -> str:
    return f"{{{','.join(['NULL' if each is None else f'{each:d}' for each in column])}}}"
