"""``belay approvals``."""

from functools import partial

import click

from belay_core.cli import options
from belay_core.cli.approval_text import show_approval
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE
from belay_core.cli.output import write_json, write_line
from belay_core.errors import InvalidInput

_MOST: int = 1_000


@click.command()
@click.argument("run", required=False)
@click.option("--limit", type=int, default=100, show_default=True, help="At most so many, up to 1000.")
@options.database
@options.as_json
def approvals(*, run: str | None, limit: int, database: str | None, as_json: bool) -> int:
    """List what waits for a decision, the oldest first, of one run or of all.

    Each is shown with its subject as it is stored, and with the digest that a decision is bound to.
    """
    if not 1 <= limit <= _MOST:
        raise InvalidInput("limit", f"must be a whole number from 1 to {_MOST}")
    return with_client(database, partial(_listed, run=run, limit=limit, as_json=as_json))


async def _listed(session: CommandSession, *, run: str | None, limit: int, as_json: bool) -> int:
    from belay_core.cli.documents import approval_document

    if run is not None:
        await session.client.get(run)
    found = await session.client.approvals(run, limit=limit)
    if as_json:
        write_json([approval_document(each) for each in found])
        return DONE
    for number, each in enumerate(found):
        if number:
            write_line()
        show_approval(each, session.now_ms)
    if not found:
        write_line("nothing waits for a decision")
    return DONE
