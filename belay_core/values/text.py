"""Text that every store keeps: identifiers, and names of the engine (specs, run store 2.1; kernel 2)."""

from typing import TypeGuard

from belay_core import limits


def is_well_formed(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: Python allows lone surrogates, no database does."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_durable(value: object) -> TypeGuard[str]:
    """Whether a value may name something for good: 1 to 1,024 UTF-16 code units, well-formed, without NUL."""
    if type(value) is not str or not 0 < len(value) <= limits.MAXIMUM_IDENTIFIER_LENGTH:
        return False
    if "\0" in value or not is_well_formed(value):
        return False
    return utf16_units(value) <= limits.MAXIMUM_IDENTIFIER_LENGTH


def is_name(value: object) -> TypeGuard[str]:
    """Whether a value may name something only the engine keeps: durable, and at most 512 bytes of UTF-8."""
    return is_durable(value) and len(value.encode()) <= limits.MAXIMUM_NAME_BYTES


def utf16_units(text: str) -> int:
    """The length of a well-formed text in UTF-16 code units; a character beyond the first plane counts two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
