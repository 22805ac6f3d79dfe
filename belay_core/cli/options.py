"""Options of several commands."""

import click

database = click.option(
    "--database",
    metavar="URL",
    envvar="BELAY_DATABASE",
    show_envvar=True,
    help="Where the runs are, such as sqlite:///belay.db or postgresql://host/name.",
)
app = click.option(
    "--app",
    metavar="MODULE:ATTRIBUTE",
    envvar="BELAY_APP",
    show_envvar=True,
    help="The workflows: a list or tuple of them, or one, in a module importable from here.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON to the standard output, errors too.")
by = click.option(
    "--by",
    metavar="NAME",
    envvar="BELAY_APPROVER",
    show_envvar=True,
    help="Who says this; your user name on this machine unless given.",
)
run = click.argument("run")
