"""``belay explain``."""

from functools import partial

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE
from belay_core.cli.output import write_fields, write_json, write_line
from belay_core.cli.time_text import time_and_age


@click.command()
@options.run
@options.database
@options.as_json
def explain(*, run: str, database: str | None, as_json: bool) -> int:
    """Explain the state of a run, and what makes it continue."""
    return with_client(database, partial(_explained, run=run, as_json=as_json))


async def _explained(session: CommandSession, *, run: str, as_json: bool) -> int:
    from belay_core.cli.documents import explanation_document

    found = await session.client.explain(run)
    if as_json:
        write_json(explanation_document(found))
        return DONE
    write_fields(
        [
            ("run", found.run_id),
            ("workflow", found.workflow),
            ("state", found.state),
            ("because", found.because),
            ("since", time_and_age(found.since_ms, session.now_ms)),
            ("wakes", time_and_age(found.wakes_at_ms, session.now_ms)),
        ]
    )
    for number, way in enumerate(found.ways_out):
        write_line(f"{'ways out' if number == 0 else '        '}  {way}")
    return DONE
