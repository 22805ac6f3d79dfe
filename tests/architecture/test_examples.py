"""Examples are written as a customer's code is: on the public names alone, and belay knows none of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import belay_core

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PACKAGES = ("belay_core", "belay_drivers", "belay_integrations", "belay_testing")
OPEN = {"belay_core": set(belay_core.__all__), "belay_core.errors": None}
"""Modules an example may import from, and the names where not all of them are public."""


def private(source: str) -> Iterator[str]:
    """What a module imports of belay's packages that is not for customers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] in PACKAGES)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            public = OPEN.get(node.module, set())
            yield from (
                f"{node.module}.{each.name}" for each in node.names if public is not None and each.name not in public
            )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from belay_core import Client, step\nfrom belay_core.errors import StoreError\nimport asyncio", []),
        ("from belay_core import engine", ["belay_core.engine"]),
        ("from belay_core.client import Client", ["belay_core.client.Client"]),
        ("def late():\n    import belay_core.engine.settings", ["belay_core.engine.settings"]),
        ("from belay_drivers.sqlite import open_sqlite", ["belay_drivers.sqlite.open_sqlite"]),
    ],
)
def test_an_import_that_is_not_public_is_found(source: str, found: list[str]):
    assert list(private(source)) == found


def test_examples_use_public_names_alone():
    modules = sorted(EXAMPLES.rglob("*.py"))
    assert modules
    assert {str(path.relative_to(ROOT)): found for path in modules if (found := [*private(path.read_text())])} == {}


def test_belay_knows_no_example():
    packages = {path.parent.name for path in EXAMPLES.rglob("__init__.py")}
    assert packages == {"belay_invoices"}
    word = re.compile(rf"\b(?:{'|'.join(packages)}|UBL)\b")
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 100
    assert [str(path.relative_to(ROOT)) for path in files if word.search(path.read_text())] == []


def test_the_readme_of_the_invoices_says_what_each_module_holds():
    text = (EXAMPLES / "invoices" / "README.md").read_text()
    modules = {path.name for path in (EXAMPLES / "invoices" / "belay_invoices").glob("*.py")} - {"__init__.py"}
    assert {
        name for row in re.findall(r"^\| (`.*) \|", text, re.MULTILINE) for name in re.findall(r"\w+\.py", row)
    } == modules


def test_the_workflow_of_the_invoices_is_read_in_one_go():
    assert len((EXAMPLES / "invoices" / "belay_invoices" / "workflow.py").read_text().splitlines()) < 150
