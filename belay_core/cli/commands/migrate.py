"""``belay migrate``."""

import asyncio

import click

from belay_core.cli import options
from belay_core.cli.database import checked_url, reportable_errors, require_file
from belay_core.cli.error_report import DONE
from belay_core.cli.output import write_json, write_line
from belay_core.stores.drivers import find_migrations


@click.command()
@click.option("--sql", is_flag=True, help="Print the migrations as SQL, and change nothing.")
@click.option("--since", type=click.IntRange(min=0), metavar="ID", help="With --sql: only those above this id.")
@click.option("--check", is_flag=True, help="Change nothing; end with 1 where a migration is missing.")
@click.option("--roles", is_flag=True, help="Print SQL that makes roles with the least rights; PostgreSQL only.")
@options.database
@options.as_json
def migrate(*, sql: bool, since: int | None, check: bool, roles: bool, database: str | None, as_json: bool) -> int:
    """Bring the schema of a database up to this version.

    Migrations only go forward; running this again changes nothing. With --sql they are printed, for those who apply
    them by other means.
    """
    url = checked_url(database)
    if sql + check + roles > 1:
        raise click.UsageError("only one of --sql, --check and --roles can be given")
    if since is not None and not sql:
        raise click.UsageError("--since belongs to --sql")
    if roles:
        _print(asyncio.run(_roles(url)), as_json=as_json)
    elif sql:
        _print(asyncio.run(_script(url, -1 if since is None else since)), as_json=as_json)
    elif check:
        require_file(url)
        asyncio.run(_checked(url))
        _report([], as_json=as_json)
    else:
        _report(asyncio.run(_applied(url)), as_json=as_json)
    return DONE


async def _script(url: str, since: int) -> str:
    async with reportable_errors(url):
        return find_migrations(url).sql(since)


async def _roles(url: str) -> str:
    async with reportable_errors(url):
        return find_migrations(url).roles()


async def _checked(url: str) -> None:
    async with reportable_errors(url):
        await find_migrations(url).check(url)


async def _applied(url: str) -> list[tuple[int, str]]:
    async with reportable_errors(url):
        return await find_migrations(url).migrate(url)


def _print(script: str, *, as_json: bool) -> None:
    if as_json:
        write_json({"sql": script})
        return
    for line in script.splitlines():
        write_line(line)


def _report(applied: list[tuple[int, str]], *, as_json: bool) -> None:
    if as_json:
        write_json({"applied": [{"id": number, "name": name} for number, name in applied]})
        return
    for number, name in applied:
        write_line(f"applied {number:04d} {name}")
    if not applied:
        write_line("the schema is up to date")
