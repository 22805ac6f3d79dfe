"""The reference page names every command, option, outcome and exit code there is."""

from pathlib import Path

import click
import pytest

from belay_core.cli import documents, error_report
from belay_core.cli.commands import decide
from belay_core.cli.group import COMMANDS, belay
from tests.cli.commanding import Cli

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
SHARED = PAGE.partition("## Commands")[0]


def section(name: str) -> str:
    """What the page says of one command."""
    for part in PAGE.split("\n### ")[1:]:
        if f"`belay {name}" in part.splitlines()[0]:
            return part
    raise AssertionError(f"the page has no section on {name}")


@pytest.mark.parametrize("name", [*COMMANDS, "demo"])
def test_the_page_has_every_command(name: str):
    assert section(name)


@pytest.mark.parametrize("name", [*COMMANDS, "demo"])
def test_the_page_has_every_option(name: str):
    command = belay.get_command(click.Context(belay), name)
    assert command is not None
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    reported = section(name) + SHARED
    assert [option.opts[0] for option in options if f"`{option.opts[0]}" not in reported.replace(" --", " `--")] == []


def test_the_page_has_every_outcome_and_exit_code():
    assert all(f"| `{outcome}` |" in PAGE for outcome in decide.OUTCOMES.values())
    codes = (error_report.DONE, error_report.REFUSED, error_report.USAGE, error_report.INTERRUPTED)
    assert all(f"\n| {code} | " in PAGE for code in codes)


def test_the_page_has_every_member_of_a_document(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    (approval,) = cli.json("approvals")
    members = {*cli.json("runs")[0], *cli.json("show", "r1"), *cli.json("explain", "r1")}
    members |= {*cli.json("approve", "r1", "--edit", '"Dearest"'), *cli.json("migrate")}
    members |= {name for name in approval if name.startswith(("subject", "edited"))}
    assert [name for name in sorted(members) if f"`{name}`" not in PAGE] == []
    assert documents.payload("{") == {"undecodable": "{"}
