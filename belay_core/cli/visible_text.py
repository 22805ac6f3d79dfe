"""Text that is safe to print: characters that a terminal obeys, reorders or leaves blank are escaped."""

from typing import Final

_BLANK: Final = (
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # inherent vowels of Khmer
    (0x180B, 0x180D),  # Mongolian variation selectors
    (0x180F, 0x180F),
    (0x2800, 0x2800),  # the Braille pattern without dots
    (0x3164, 0x3164),  # Hangul fillers of other widths
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFFA0, 0xFFA0),
    (0x16FE4, 0x16FE4),  # Khitan filler
    (0x1D159, 0x1D159),  # a note without a head
    (0xE0100, 0xE01EF),  # more variation selectors
)
"""Characters that Unicode counts as letters, marks or symbols, and that are drawn as nothing."""

_HIDDEN: Final = frozenset(chr(code) for first, last in _BLANK for code in range(first, last + 1))


def visible(text: str) -> str:
    """The text with every character that does not show as itself written ``<U+XXXX>``, as code point.

    These are all control, format, surrogate, private and unassigned characters, line and paragraph separators, blanks
    other than the space, and letters, marks and symbols that are drawn as nothing. Nothing is removed.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() and char not in _HIDDEN else f"<U+{ord(char):04X}>" for char in text)
