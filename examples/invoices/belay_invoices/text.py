"""Text from foreign documents, made safe to show and to name files with."""

import re
import unicodedata

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Letters and marks by category, and yet nothing to see: fillers, Braille blank, joiners, variation selectors.
_HIDDEN_RANGES = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)
_NOT_SLUG = re.compile(r"[^a-z0-9]+")

MAXIMUM_SHOWN = 200
"""Characters of a foreign text that are kept; the rest is counted."""


def visible(text: str) -> str:
    """The text with every character that a screen would hide or obey written as ``<U+XXXX>``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"<U+{ord(character):04X}>" if _is_hidden(character) else character for character in text)


def one_line(text: str, limit: int = MAXIMUM_SHOWN) -> str:
    """The text on one line, visible, and cut to ``limit`` characters with a count of what is left out."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return visible(line)
    return f"{visible(line[:limit])} … ({len(line) - limit} more)"


def slug(text: str, limit: int = 40) -> str:
    """Lower-case ASCII letters, digits and single hyphens: a name no file system reads as anything else."""
    taken_apart = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(character for character in taken_apart if not unicodedata.combining(character))
    return _NOT_SLUG.sub("-", plain).strip("-")[:limit].strip("-") or "x"


def _is_hidden(character: str) -> bool:
    if unicodedata.category(character) in _HIDDEN_CATEGORIES:
        return True
    point = ord(character)
    return any(first <= point <= last for first, last in _HIDDEN_RANGES)
