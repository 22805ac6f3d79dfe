"""What a page points at is there: other pages, files, tests and commands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(?:#[^)\s]*)?\)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:belay_\w+|tests|docs|examples|requirements)/[\w./-]*")
COMMAND = re.compile(r"`make ([a-z-]+)[^`]*`|^\$ make ([a-z-]+)", re.MULTILINE)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def known_tests() -> set[str]:
    files = [file for folder in ("tests", "belay_testing") for file in (ROOT / folder).rglob("*.py")]
    return {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_links_of_a_page_lead_somewhere(page):
    """The site's build follows anchors too; this holds for whoever reads the files, and for the README."""
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def test_the_files_a_page_names_are_there():
    gone = [
        f"{named(page)}: {code}"
        for page in PAGES
        for code in CODE.findall(page.read_text())
        if FILE.fullmatch(code) and not (ROOT / code).exists()
    ]
    assert gone == []


def test_the_tests_a_page_names_are_there():
    known = known_tests()
    gone = [
        f"{named(page)}: {code}"
        for page in PAGES
        for code in CODE.findall(page.read_text())
        if re.fullmatch(r"test_\w+", code) and code not in known
    ]
    assert gone == []


def test_the_commands_a_page_names_are_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    gone = [
        f"{named(page)}: make {name}"
        for page in PAGES
        for found in COMMAND.findall(page.read_text())
        if (name := found[0] or found[1]) not in targets
    ]
    assert gone == []
