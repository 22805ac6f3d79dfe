"""Columns of many rows on their way to PostgreSQL: one text each, which the server takes apart.

As arrays they would be most of what a flush costs: the driver asks of each element whether it is an array itself.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

TEXT: Final = "text"
NUMBER: Final = "bigint"

Column: TypeAlias = Sequence[Any]
"""Texts, or whole numbers, or None."""

_BETWEEN: Final = "\x1f"
"""Stands between two texts. JSON never holds it; an id may."""
_ABSENT: Final = "\x1e"
"""Stands for None."""


def arrays_given(kinds: Sequence[str], first: int) -> str:
    """Columns as arrays: what ``unnest`` takes, in SQL, with parameters numbered from ``first`` on."""
    return ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, first))


def texts_given(kinds: Sequence[str], first: int) -> str:
    """The same as ``joined`` makes them."""
    return ", ".join(
        f"string_to_array(${number}::text, E'\\x1f', E'\\x1e')" if kind == TEXT else f"${number}::text::{kind}[]"
        for number, kind in enumerate(kinds, first)
    )


def joined(kinds: Sequence[str], columns: Sequence[Column]) -> list[str] | None:
    """Each column as one text; None where something in them would be taken for something else, so that arrays it is."""
    try:
        texts = [
            _joined_texts(column) if kind == TEXT else _joined_numbers(column)
            for kind, column in zip(kinds, columns, strict=True)
        ]
    except (TypeError, ValueError):
        # A value that is neither: as arrays the driver refuses it, and then each write goes alone.
        return None
    found = [each for each in texts if each is not None]
    return found if len(found) == len(texts) else None


def _joined_texts(column: Column) -> str | None:
    text = _BETWEEN.join([_ABSENT if each is None else each for each in column])
    # The server takes an empty text for no elements at all.
    if not text or text.count(_BETWEEN) >= len(column) or text.count(_ABSENT) > column.count(None):
        return None
    return text


def _joined_numbers(column: Column) -> str:
    return f"{{{','.join(['NULL' if each is None else f'{each:d}' for each in column])}}}"
