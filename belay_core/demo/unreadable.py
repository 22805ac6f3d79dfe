"""The one error of reading: a file that is no invoice belay can book."""

from typing import Literal, TypeAlias

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
