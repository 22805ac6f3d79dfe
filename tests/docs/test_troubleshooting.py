"""The page of answers and errors knows every one there is, operation by operation, and none besides."""

import inspect
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from belay_core import errors
from belay_core.stores import Stores

PAGE = (Path(__file__).parents[2] / "docs/reference/troubleshooting.md").read_text()
CODES = {
    "RunStoreError": errors.RunStoreCode,
    "AttemptStoreError": errors.AttemptStoreCode,
    "ApprovalStoreError": errors.ApprovalStoreCode,
    "WaitingStoreError": errors.WaitingStoreCode,
    "JournalError": errors.JournalCode,
    "ChangesError": errors.ChangesCode,
    "RetentionError": errors.RetentionCode,
    "WriterError": errors.WriterCode,
    "DatabaseError": errors.DatabaseCode,
    "StoresUnusable": errors.StoresState,
    "SchemaMismatch": errors.SchemaState,
    "MigrationRefused": errors.MigrationRule,
}


def answered(operation: Any) -> set[type]:
    """The classes an operation answers with where they are outcomes; nothing for a mere read."""
    hint = operation.__annotations__["return"]
    if getattr(hint, "__origin__", None) is tuple:
        hint = get_args(hint)[0]
    classes = {each for each in (get_args(hint) or (hint,)) if inspect.isclass(each)}
    return classes if any(each.__module__.startswith("belay_core.stores.") for each in classes) else set()


def operations() -> dict[str, set[type]]:
    return {
        f"{store.__name__}.{name}": classes
        for store in get_type_hints(Stores).values()
        if inspect.isclass(store)
        for name in dir(store)
        if inspect.iscoroutinefunction(operation := getattr(store, name)) and (classes := answered(operation))
    }


def sections() -> dict[str, list[str]]:
    """The answers of every operation as the page lists them: a heading may name several operations."""
    found: dict[str, list[str]] = {}
    for heading, text in re.findall(r"^### (`.+?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL):
        rows = re.findall(r"^\| `(\w+)` \| \S.* \| \S.* \|$", text, re.MULTILINE)
        found |= dict.fromkeys(re.findall(r"`([\w.]+)`", heading), rows)
    return found


def error_rows() -> dict[str, list[str]]:
    """For every error the codes the page lists of it; an empty list for one without codes."""
    found: dict[str, list[str]] = {}
    part = PAGE[PAGE.index("## Errors") :]
    for names, code in re.findall(r"^\| (`[^|]+`) \| (?:`(\w+)`)? ?\| \S.* \| \S.* \|$", part, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            found.setdefault(name, []).extend([code] if code else [])
    return found


def test_every_operation_has_its_section_and_no_other_has():
    assert set(sections()) == set(operations())
    assert len(operations()) > 30


@pytest.mark.parametrize("operation", sorted(operations()))
def test_a_section_lists_every_answer_of_its_operation_once(operation):
    assert sorted(sections()[operation]) == sorted(each.__name__ for each in operations()[operation])


def test_every_error_is_on_the_page():
    classes = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, errors.BelayError) and each.__module__ == errors.__name__
    }
    assert set(error_rows()) == classes - {"BelayError", "StoreError"}


def test_every_error_with_codes_says_which_they_are():
    assert {name for name, codes in error_rows().items() if codes} == set(CODES)


@pytest.mark.parametrize("name", CODES)
def test_every_code_of_an_error_is_on_the_page(name):
    assert sorted(error_rows()[name]) == sorted(get_args(CODES[name]))
