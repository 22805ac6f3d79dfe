"""``belay runs``."""

from functools import partial

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE
from belay_core.cli.output import write_json, write_line, write_table
from belay_core.cli.time_text import age


@click.command()
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--status", help="Only runs in this status, such as running or failed.")
@click.option("--waiting-for", metavar="REASON", help="Only runs that wait for it: approval, ..")
@click.option("--limit", type=int, default=100, show_default=True, help="At most so many, up to 1000.")
@click.option("--before", metavar="RUN", help="Only runs older than this one: the next page.")
@options.database
@options.as_json
def runs(*, database: str | None, as_json: bool, **wanted: str | int | None) -> int:
    """List runs, the newest first.

    STATE is the status of a run or, while it is suspended, what it waits for.
    """
    return with_client(database, partial(_listed, wanted=wanted, as_json=as_json))


async def _listed(session: CommandSession, *, wanted: dict[str, str | int | None], as_json: bool) -> int:
    from belay_core.cli.documents import run_document
    from belay_core.client.explanation import shown_state

    if isinstance(last := wanted["before"], str):
        # The page after a run that does not exist would be empty, as if it were the last one.
        await session.client.get(last)
    found = await session.client.list(**wanted)  # type: ignore[arg-type]  # the options have the parameters' names
    if as_json:
        write_json([run_document(run) for run in found])
    elif found:
        rows = [
            (shown_state(run), age(session.now_ms - run.created_at_ms), run.workflow or "-", run.run_id)
            for run in found
        ]
        write_table(("STATE", "AGE", "WORKFLOW", "RUN"), rows)
    else:
        write_line("no runs")
    return DONE
