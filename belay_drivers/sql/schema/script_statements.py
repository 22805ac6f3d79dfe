"""Split a script into statements, without parsing SQL: a statement ends at a semicolon at the end of a line."""

import re
from typing import Final

_END: Final = re.compile(r";[ \t]*$", re.MULTILINE)
_DOLLARS: Final = re.compile(r"\$(?:[A-Za-z_]\w*)?\$")
_TRIGGER: Final = re.compile(
    r"(?:\s|--[^\n]*\n)*CREATE\s+(?:TEMP\s+|TEMPORARY\s+)?TRIGGER\b.*\bBEGIN\b", re.IGNORECASE | re.DOTALL
)
_COMMENT: Final = re.compile(r"^\s*--[^\n]*$", re.MULTILINE)


def statements_of(sql: str) -> list[str]:
    """The statements one by one.

    The body of a function between dollar quotes, and that of a trigger up to its ``END;``, are part of theirs.
    """
    found: list[str] = []
    begun = ""
    for piece in _pieces(sql):
        begun += piece
        if _is_whole(begun):
            found.append(begun.strip().removesuffix(";"))
            begun = ""
    found.append(begun.strip())
    return [statement for statement in found if _COMMENT.sub("", statement).strip()]


def _pieces(sql: str) -> list[str]:
    ends = [match.end() for match in _END.finditer(sql)]
    return [sql[begin:end] for begin, end in zip([0, *ends], [*ends, len(sql)], strict=True)]


def _is_whole(text: str) -> bool:
    if not text.rstrip().endswith(";"):
        return False
    if len(_DOLLARS.findall(text)) % 2:
        return False
    return not _TRIGGER.match(text) or re.search(r"\bEND\s*;\s*$", text, re.IGNORECASE) is not None
