"""The page about names says what the code writes: nothing is left out, and nothing is made up."""

import re
from pathlib import Path

import pytest

from belay_core.telemetry import names, stores

PAGE = (Path(__file__).parents[2] / "docs/reference/span-names.md").read_text()
QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))
WRITTEN = {key: value for key, value in vars(names).items() if key.isupper()} | {
    span: span for span in sorted(stores.SPANS)
}


@pytest.mark.parametrize("constant", WRITTEN)
def test_every_name_is_on_the_page(constant):
    name = WRITTEN[constant]
    assert name in QUOTED or any(quoted.startswith(f"{name} {{") for quoted in QUOTED)


def row_of(span: str) -> set[str]:
    """What the page lists beside a span; "the same" is what the row above lists."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    at = next(number for number, row in enumerate(rows) if f"`{span}`" in row.split("|")[1])
    keys = set(re.findall(r"`(\w+)`", rows[at].split("|")[2]))
    if "the same" in rows[at]:
        keys |= set(re.findall(r"`(\w+)`", rows[at - 1].split("|")[2]))
    return keys


def test_the_page_lists_the_attributes_of_every_store_operation(example):
    assert row_of(example.span) == set(example.shown)


def test_the_page_names_nothing_else():
    dotted = re.compile(r"(?:belay|gen_ai|openinference)(?:\.\w+)+$")
    assert {quoted for quoted in QUOTED if dotted.match(quoted)} <= set(WRITTEN.values()) | {"belay_testing.spans"}


def test_no_name_is_spelled_twice():
    assert len(set(WRITTEN.values())) == len(WRITTEN)


@pytest.mark.parametrize("module", sorted(Path(names.__file__ or "").parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_other_module_spells_a_name(module):
    if module.stem == "names":
        return
    literals = set(re.findall(r'"([^"\n]*)"', module.read_text()))
    attributes = {value for key, value in WRITTEN.items() if key != value and ("." in value or "_" in value)}
    assert literals & attributes == set()
