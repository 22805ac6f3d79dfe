"""``belay cancel``."""

from functools import partial
from typing import assert_never

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE, REFUSED
from belay_core.cli.identity import acting_user
from belay_core.cli.output import write_error, write_json, write_line
from belay_core.cli.time_text import time_text
from belay_core.records.run import RunStatus
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, Terminal


@click.command()
@options.run
@options.by
@options.database
@options.as_json
def cancel(*, run: str, by: str | None, database: str | None, as_json: bool) -> int:
    """Ask a run to stop.

    The request is kept with the run: it ends cancelled once its running steps have ended, whichever worker has it.
    """
    return with_client(database, partial(_request_cancel, run=run, by=acting_user(by), as_json=as_json))


async def _request_cancel(session: CommandSession, *, run: str, by: str, as_json: bool) -> int:
    answer = await session.client.cancel(run, by=by)
    match answer:
        case CancelRequested(requested_at_ms=at_ms):
            outcome, line = "cancel_requested", f"run {run} is asked to stop"
        case AlreadyRequested(requested_at_ms=at_ms):
            outcome, line = "already_requested", f"run {run} was asked to stop before, at {time_text(at_ms)}"
        case Terminal(status=status):
            return _report_ended(run, status, as_json=as_json)
        case _:
            assert_never(answer)
    if as_json:
        write_json({"run_id": run, "outcome": outcome, "requested_at": time_text(at_ms)})
    else:
        write_line(line)
    return DONE


def _report_ended(run: str, status: RunStatus, *, as_json: bool) -> int:
    """Print that the run has ended already; a success only if it was cancelled."""
    if as_json:
        write_json({"run_id": run, "outcome": "over", "status": status.value})
    else:
        write_error(f"belay: run {run} is over already: it is {status.value}")
    return DONE if status is RunStatus.CANCELLED else REFUSED
