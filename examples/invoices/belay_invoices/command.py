"""``belay demo``: the command that the entry point ``belay.commands`` names. Importing it loads nothing but click."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    from belay_invoices.demo import Approve


@click.command(short_help="Watch a run survive its worker.")
@click.option(
    "--inbox",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of documents; the packaged samples unless given.",
)
# Not from the environment: a demo must not fill the database that somebody works with.
@click.option("--database", metavar="URL", help="Where the runs are kept; a fresh SQLite file unless given.")
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "none"]),
    default="ask",
    show_default=True,
    help="Who decides at a gate: you, here or by belay approve; the demo, which approves everything; nobody.",
)
@click.option("--kill", is_flag=True, help="Have worker processes do the work, and kill at least three of them.")
@click.option(
    "--by", metavar="NAME", envvar="BELAY_APPROVER", show_envvar=True, help="Who decides; your user name unless given."
)
@click.option("--step-ms", type=click.IntRange(0, 10_000), hidden=True, help="Milliseconds that a slow step takes.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to the standard output.")
def demo(
    *,
    inbox: Path | None,
    database: str | None,
    approve: str,
    kill: bool,
    by: str | None,
    step_ms: int | None,
    as_json: bool,
) -> int:
    """Watch a run survive its worker: book a folder of e-invoices, each in a durable run.

    Every document is read and checked, given a cost centre, shown to a person where one must look, posted to a ledger
    exactly once, and filed. At the end the ledger itself is asked. Exit codes: 0 where every document was posted
    exactly once or is visibly stopped, 1 otherwise.
    """
    try:
        from belay_invoices.demo import Options, demonstrate
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in {"", "belay_core", "belay_invoices"}:
            raise
        raise click.UsageError(f"{package} is not installed; pip install 'belay-core[demo]'") from None

    options = Options(
        inbox=inbox,
        database=database,
        approve=cast("Approve", approve),
        kill=kill,
        by=by or _user_name(),
        step_ms=step_ms,
    )
    report = demonstrate(options, sys.stderr if as_json else sys.stdout)
    if report is None:
        raise click.Abort
    if as_json:
        click.echo(json.dumps(report.document()))
    return 0 if report.is_good else 1


def _user_name() -> str:
    """The user this process runs as. The operating system says so; the environment could say anything."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
