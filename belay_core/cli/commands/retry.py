"""``belay retry``."""

from functools import partial

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE
from belay_core.cli.identity import acting_user
from belay_core.cli.output import write_json, write_line
from belay_core.cli.time_text import time_text


@click.command()
@options.run
@click.option("--reason", metavar="TEXT", help="Why it is retried, for the journal.")
@options.by
@options.database
@options.as_json
def retry(*, run: str, reason: str | None, by: str | None, database: str | None, as_json: bool) -> int:
    """Let a failed or cancelled run go on from its records, once what failed it was mended.

    What is recorded stays. The steps that failed the run are executed again.
    """
    return with_client(database, partial(_retried, run=run, reason=reason, by=acting_user(by), as_json=as_json))


async def _retried(session: CommandSession, *, run: str, reason: str | None, by: str, as_json: bool) -> int:
    outcome = await session.client.retry(run, by=by, reason=reason)
    at = time_text(outcome.retried_at_ms)
    if as_json:
        write_json({"run_id": run, "by": by, "reason": reason, "steps": [*outcome.step_keys], "retried_at": at})
    else:
        again = f", and tries {', '.join(outcome.step_keys)} again" if outcome.step_keys else ""
        write_line(f"run {run} goes on from its records{again}, says {by} at {at}")
    return DONE
