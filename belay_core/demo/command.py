"""``belay demo``."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

if TYPE_CHECKING:
    from belay_core.demo.running import Approving, Wish
    from belay_core.demo.screen import Screen

_STDIN: Final = 0
_DONE: Final = 0
_NOT_RIGHT: Final = 1


@click.command()
@click.option(
    "--inbox",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of documents; the packaged samples unless given.",
)
# Not from the environment: a demo is not to fill the database that somebody works with.
@click.option("--database", metavar="URL", help="Where the runs are kept; a fresh SQLite file unless given.")
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "none"]),
    default="ask",
    show_default=True,
    help="Who decides where a person must look: you, here or by belay approve; nobody but a rubber stamp; nobody.",
)
@click.option("--kill", is_flag=True, help="Have worker processes do the work, and kill at least three of them.")
@click.option(
    "--by", metavar="NAME", envvar="BELAY_APPROVER", show_envvar=True, help="Who decides; your user name unless given."
)
@click.option("--moment", type=click.IntRange(0, 10_000), hidden=True, help="Milliseconds that a slow step takes.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to the standard output.")
def demo(
    *,
    inbox: Path | None,
    database: str | None,
    approve: str,
    kill: bool,
    by: str | None,
    moment: int | None,
    as_json: bool,
) -> int:
    """Watch a run survive its worker: book a folder of e-invoices, each in a durable run.

    Every document is read and checked, given a cost centre, shown to a person where one must look, posted to a ledger
    exactly once, and filed. At the end the ledger itself is asked. Exit codes: 0 where every document was posted
    exactly once or is visibly stopped, 1 otherwise.
    """
    from belay_core.demo.running import Wish
    from belay_core.demo.screen import Screen

    screen = Screen(sys.stderr if as_json else sys.stdout)
    wish = Wish(
        inbox=inbox,
        database=database,
        approve=cast("Approving", approve),
        kill=kill,
        by=_who(by),
        keyboard=_STDIN if screen.is_terminal and os.isatty(_STDIN) else None,
        moment_ms=moment,
    )
    return _shown(wish, screen, as_json=as_json)


def _shown(wish: "Wish", screen: "Screen", *, as_json: bool) -> int:
    """Run the demo and tell what came of it; the exit code."""
    from belay_core.demo.running import demonstrate
    from belay_core.demo.telling import tell_report

    try:
        found = asyncio.run(demonstrate(wish, screen))
    finally:
        screen.end()
    if found is None:
        raise click.Abort
    places, report = found
    tell_report(screen, places, report)
    if as_json:
        click.echo(json.dumps(report.document()))
    return _DONE if report.is_good else _NOT_RIGHT


def _who(by: str | None) -> str:
    """The name that was given, else that of the user this process runs as, by the operating system's word."""
    if by:
        return by
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return f"user {os.getuid()}"
