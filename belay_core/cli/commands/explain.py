"""``belay explain``."""

from functools import partial

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE
from belay_core.cli.output import emit, facts, say
from belay_core.cli.time_text import moment_and_age


@click.command()
@options.run
@options.database
@options.as_json
def explain(*, run: str, database: str | None, as_json: bool) -> int:
    """Say why a run stands where it stands, and what gets it going."""
    return with_client(database, partial(_explained, run=run, as_json=as_json))


async def _explained(session: CommandSession, *, run: str, as_json: bool) -> int:
    from belay_core.cli.documents import explanation_document

    found = await session.client.explain(run)
    if as_json:
        emit(explanation_document(found))
        return DONE
    facts(
        [
            ("run", found.run_id),
            ("workflow", found.workflow),
            ("state", found.state),
            ("because", found.because),
            ("since", moment_and_age(found.since_ms, session.now_ms)),
            ("wakes", moment_and_age(found.wakes_at_ms, session.now_ms)),
        ]
    )
    for number, way in enumerate(found.ways_out):
        say(f"{'ways out' if number == 0 else '        '}  {way}")
    return DONE
