"""Options that several commands share, and what is true of every text that is typed."""

from typing import Any

import click

from belay_core.admission.text import is_well_formed


class Text(click.ParamType):
    """Text as the database can keep it: the shell may hand over bytes that are no characters."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        if not isinstance(value, str) or "\0" in value or not is_well_formed(value):
            self.fail("must be well-formed text without NUL", param, ctx)
        return value


TEXT = Text()

database = click.option(
    "--database",
    type=TEXT,
    metavar="URL",
    envvar="BELAY_DATABASE",
    show_envvar=True,
    help="Where the runs are, such as sqlite:///belay.db or postgresql://host/name.",
)
app = click.option(
    "--app",
    type=TEXT,
    metavar="MODULE:ATTRIBUTE",
    envvar="BELAY_APP",
    show_envvar=True,
    help="The workflows: a list or tuple of them, or one, in a module importable from here.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON to the standard output, errors too.")
by = click.option(
    "--by",
    type=TEXT,
    metavar="NAME",
    envvar="BELAY_APPROVER",
    show_envvar=True,
    help="Who says this; your user name on this machine unless given.",
)
run = click.argument("run", type=TEXT)
