"""Roles with the least rights: what each may do, what the database refuses it, and that this is enough to work."""

import asyncpg
import pytest

from belay_core import Approved, Context, Worker, step, workflow
from belay_core.errors import InvalidInput, SchemaMismatch
from belay_core.stores import find_migrations
from belay_drivers.postgres import migrate_postgres, open_postgres
from belay_drivers.postgres.roles import MIGRATOR, READER, WORKER, grants
from belay_drivers.sql.schema import tables
from belay_testing.drive import decide, run_ready
from tests.variants.least_rights import as_role, give_rights

TABLES = sorted(tables.metadata.tables)
WRITES = {
    "INSERT": "INSERT INTO {} DEFAULT VALUES",
    "UPDATE": "UPDATE {0} SET {1} = {1}",
    "DELETE": "DELETE FROM {}",
}
LOCKED = {"belay_migrations": set(WRITES), "belay_store": set(WRITES), "belay_journal": {"UPDATE", "DELETE"}}
DDL = [
    "CREATE TABLE theirs (x TEXT)",
    "ALTER TABLE belay_runs ADD COLUMN theirs TEXT",
    "DROP TABLE belay_journal",
    "TRUNCATE belay_journal",
    "CREATE INDEX theirs ON belay_runs (status)",
    "CREATE FUNCTION theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA theirs",
    "CREATE ROLE theirs",
]


@step(retries=1)
async def double(number: int) -> int:
    return number * 2


@workflow("modest")
async def modest(ctx: Context, number: int) -> int:
    answer = await ctx.gate("checked", subject=await ctx.step(double, number))
    return await ctx.step(double, answer.subject) if isinstance(answer, Approved) else 0


@pytest.fixture
async def url(belay_postgres):
    """A database whose rights are given out."""
    await give_rights(belay_postgres.url)
    return belay_postgres.url


async def refused(url, role, statement):
    """Whether the database refuses the statement to the role, for want of a right."""
    connection = await asyncpg.connect(as_role(url, role))
    try:
        await connection.execute(f"BEGIN; {statement}; ROLLBACK")
    except asyncpg.InsufficientPrivilegeError:
        return True
    except asyncpg.PostgresError:
        # Allowed, and stopped by something else.
        return False
    finally:
        await connection.close()
    return False


async def test_a_worker_needs_no_more(url):
    async with open_postgres(as_role(url, WORKER)) as stores, Worker(stores, [modest], background=False) as worker:
        run = await worker.client.start(modest, 3)
        await run_ready(worker)
        await decide(worker, run, "checked", by="ada")
        assert await run.result() == 12
        other = await worker.client.start(modest, 3)
        await worker.client.cancel(other.run_id)
        await run_ready(worker)


@pytest.mark.parametrize("role", [WORKER, READER])
@pytest.mark.parametrize("statement", DDL)
async def test_neither_worker_nor_reader_changes_the_schema(url, role, statement):
    assert await refused(url, role, statement)


@pytest.mark.parametrize("table", TABLES)
async def test_a_reader_reads_and_writes_nothing(url, table):
    for role in (READER, WORKER):
        assert not await refused(url, role, f"TABLE {table}")
    first = tables.metadata.tables[table].c[0].name
    for kind, statement in WRITES.items():
        assert await refused(url, READER, statement.format(table, first)), kind
        assert await refused(url, WORKER, statement.format(table, first)) == (kind in LOCKED.get(table, ())), kind


@pytest.mark.parametrize("role", [MIGRATOR, WORKER, READER])
async def test_a_role_can_do_nothing_beside(url, role):
    connection = await asyncpg.connect(as_role(url, role))
    can = await connection.fetchrow(
        "SELECT rolsuper, rolcreatedb, rolcreaterole, rolinherit, rolbypassrls, rolreplication FROM pg_roles "
        "WHERE rolname = current_user"
    )
    assert can
    assert not any(can.values())
    assert await connection.fetchval("SHOW search_path") in ('"public", pg_temp', "public, pg_temp")
    await connection.close()


async def test_the_migrator_migrates_what_it_then_owns(belay_postgres_server, belay_postgres_names):
    name = next(belay_postgres_names)
    url = belay_postgres_server.create_database(name)
    await migrate_postgres(url)
    await give_rights(url)
    connection = await asyncpg.connect(url)
    for table in TABLES:
        await connection.execute(f"DROP TABLE {table} CASCADE")
    await connection.close()
    for role in (WORKER, READER):
        with pytest.raises(SchemaMismatch) as mismatch:
            async with open_postgres(as_role(url, role)):
                pass
        assert mismatch.value.state == "empty"
        with pytest.raises(Exception, match="42501"):
            await migrate_postgres(as_role(url, role))
    assert await migrate_postgres(as_role(url, MIGRATOR))
    await give_rights(url)
    await give_rights(url)
    assert await migrate_postgres(as_role(url, WORKER)) == []
    async with open_postgres(as_role(url, WORKER)):
        pass
    belay_postgres_server.drop_database(name)


def test_the_script_names_every_table_and_is_what_the_command_prints():
    script = find_migrations("postgresql://host/name").roles()
    assert script == grants()
    assert all(f'"public".{table} ' in script for table in TABLES)
    assert '"of_ours".belay_runs' in grants("of_ours")
    for schema in ("", "a b", 'a"b', "Ab", "a;b"):
        with pytest.raises(ValueError, match="schema"):
            grants(schema)
    with pytest.raises(InvalidInput):
        find_migrations("sqlite://").roles()
