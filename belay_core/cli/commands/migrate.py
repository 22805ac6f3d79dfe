"""``belay migrate``."""

import asyncio

import click

from belay_core.cli import options
from belay_core.cli.database import admitted, plain
from belay_core.cli.failing import DONE
from belay_core.cli.printing import emit, say


@click.command()
@click.option("--sql", is_flag=True, help="Print all migrations as SQL, and change nothing.")
@options.database
@options.as_json
def migrate(*, sql: bool, database: str | None, as_json: bool) -> int:
    """Bring the schema of a database up to this version.

    Migrations only go forward; running this again changes nothing. With --sql they are printed, for those who apply
    them by other means.
    """
    from belay_core.stores.opening import find_migrations

    url = admitted(database)
    try:
        migrations = find_migrations(url)
        if sql:
            return _printed(migrations.sql(), as_json=as_json)
        applied = asyncio.run(migrations.migrate(url))
    except Exception as error:  # noqa: BLE001  (drivers may raise anything on their way to a connection)
        raise plain(error, url) from None
    if as_json:
        emit({"applied": [{"id": number, "name": name} for number, name in applied]})
    else:
        for number, name in applied:
            say(f"applied {number:04d} {name}")
        if not applied:
            say("the schema is up to date")
    return DONE


def _printed(script: str, *, as_json: bool) -> int:
    if as_json:
        emit({"sql": script})
    else:
        for line in script.splitlines():
            say(line)
    return DONE
