"""``belay migrate``."""

import asyncio

import click

from belay_core.cli import options
from belay_core.cli.database import admitted, told_plainly
from belay_core.cli.failing import DONE
from belay_core.cli.printing import emit, say
from belay_core.stores.opening import find_migrations


@click.command()
@click.option("--sql", is_flag=True, help="Print all migrations as SQL, and change nothing.")
@options.database
@options.as_json
def migrate(*, sql: bool, database: str | None, as_json: bool) -> int:
    """Bring the schema of a database up to this version.

    Migrations only go forward; running this again changes nothing. With --sql they are printed, for those who apply
    them by other means.
    """
    url = admitted(database)
    if sql:
        _print(asyncio.run(_script(url)), as_json=as_json)
    else:
        _tell(asyncio.run(_applied(url)), as_json=as_json)
    return DONE


async def _script(url: str) -> str:
    async with told_plainly(url):
        return find_migrations(url).sql()


async def _applied(url: str) -> list[tuple[int, str]]:
    async with told_plainly(url):
        return await find_migrations(url).migrate(url)


def _print(script: str, *, as_json: bool) -> None:
    if as_json:
        emit({"sql": script})
        return
    for line in script.splitlines():
        say(line)


def _tell(applied: list[tuple[int, str]], *, as_json: bool) -> None:
    if as_json:
        emit({"applied": [{"id": number, "name": name} for number, name in applied]})
        return
    for number, name in applied:
        say(f"applied {number:04d} {name}")
    if not applied:
        say("the schema is up to date")
