"""Writes the reference's list of all names (``python -m tests.architecture.reference_listing``).

A git host shows the list, while the other pages are filled from the docstrings in the built site alone.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.architecture.test_reference import DIRECTIVE, PAGES, ROOT, WHOLE, found, members, public, text

LISTING = ROOT / "docs" / "reference" / "all-names.md"
HEAD = """# All names

Every public name with its signature and the first sentence of what it says, page by page, for a place that shows these
files as they are, such as a git host: there the other pages lack what the built site (`make docs`) takes from the code.

This page is written by `python -m tests.architecture.reference_listing`; a test compares it with the code.
"""

_LONGEST_VALUE = 30
"""Characters of the longest value of a constant that is shown."""


def listing() -> str:
    """The page: a section for each page of the reference that takes names from the code."""
    return "\n".join([HEAD, *(line for page in PAGES if page != LISTING for line in _section(page.name))])


def _section(page: str) -> Iterator[str]:
    content = (LISTING.parent / page).read_text()
    if paths := DIRECTIVE.findall(content):
        title = content.partition("\n")[0].removeprefix("# ")
        yield f"## [{title}]({page})\n"
        for path in paths:
            for name in _names(path):
                yield from _entry(name)
        yield ""


def _names(path: str) -> list[str]:
    return [f"{path}.{each.rpartition('.')[2]}" for each in public(path)] if path in WHOLE else [path]


def _entry(path: str) -> Iterator[str]:
    shown = found(path)
    module = path.rpartition(".")[0]
    yield f"* {_said(shown, text(shown), f'{module}.')}"
    if shown.is_class:
        for member in members(shown):
            if said := text(member) or _inherited(shown, member):
                yield f"    * {_said(member, said)}"


def _inherited(kind: Any, member: Any) -> str:
    bases = (base.members[member.name] for base in kind.mro() if member.name in base.members)
    return next((said for base in bases if (said := text(base))), "")


def _said(member: Any, docstring: str, prefix: str = "") -> str:
    return f"{', '.join(f'`{each}`' for each in _signatures(member, prefix))}: {_first_sentence(docstring)}"


def _signatures(member: Any, prefix: str) -> list[str]:
    if member.is_function:
        word = "async " if "async" in member.labels else ""
        return [f"{word}{prefix}{_line(each)}" for each in member.overloads or [member]]
    if member.is_class and _is_called(member):
        return [f"{prefix}{_line(member)}"]
    typed = f": {' '.join(str(member.annotation).split())}" if member.is_attribute and member.annotation else ""
    # The number of a limit; what is longer than that is no number.
    value = str(member.value) if member.is_attribute and member.parent.is_module and member.value else ""
    return [f"{prefix}{member.name}{typed}{f' = {value}' if 0 < len(value) <= _LONGEST_VALUE else ''}"]


def _is_called(kind: Any) -> bool:
    """Whether calling the class makes one: neither a member of an enumeration nor a protocol."""
    return not any(re.search(r"\b(?:Enum|StrEnum|Protocol)\b", str(base)) for base in kind.bases)


def _line(member: Any) -> str:
    # griffe has no signature for a class that inherits how it is made.
    return " ".join(str(member.signature() or member.name).split())


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`\"])", paragraph, maxsplit=1)[0]


if __name__ == "__main__":
    LISTING.write_text(listing())
