"""Migrations: forward only, all or nothing, checked at every opening, and equal to what statements believe."""

import asyncio
import re
import sqlite3
from contextlib import closing
from functools import partial

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import belay_drivers.postgres.opening as postgres_opening
import belay_drivers.sqlite.opening as sqlite_opening
from belay_core.errors import SchemaMismatch
from belay_core.stores import LeaseTimes, find_migrations
from belay_drivers.postgres import migrate_postgres, open_postgres
from belay_drivers.sql import tables
from belay_drivers.sql.migrating import Migration, ladder
from belay_drivers.sqlite import migrate_sqlite, open_sqlite

BELONGING_TO_ONE = {("belay_journal", "xid"), ("belay_journal", "position")}
"""Columns that only one database has, for its feed."""


class Place:
    """A database that can be migrated, opened and looked into."""

    def __init__(self, url, migrate, opened, module):
        self.url, self.migrate, self.open, self.module = url, migrate, opened, module

    async def run(self, work):
        url = self.url.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite://", "sqlite+aiosqlite://")
        engine = create_async_engine(url)
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(work)
        finally:
            await engine.dispose()

    async def execute(self, *statements):
        await self.run(lambda tx: [tx.exec_driver_sql(statement) for statement in statements] and None)

    async def tables(self):
        return await self.run(lambda tx: set(sa.inspect(tx).get_table_names()))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'belay.db'}"
        yield Place(url, partial(migrate_sqlite, url), partial(open_sqlite, url), sqlite_opening)
        return
    server = request.getfixturevalue("belay_postgres_server")
    name = next(request.getfixturevalue("belay_postgres_names"))
    url = server.create_database(name)
    yield Place(url, partial(migrate_postgres, url), partial(open_postgres, url), postgres_opening)
    server.drop_database(name)


@pytest.fixture
def next_migration(monkeypatch, place):
    """Lets the code of the test believe in one more migration."""

    def add(sql, number=2, name="second"):
        steps = (*ladder(f"belay_drivers.{place.module.__name__.split('.')[1]}"), Migration(number, name, sql))
        monkeypatch.setattr(place.module, "_LADDER", steps)

    return add


async def test_migrating_says_what_it_did_and_does_nothing_twice(place):
    assert await place.migrate() == [(1, "first")]
    assert await place.migrate() == []
    async with place.open() as stores:
        assert stores.lease == LeaseTimes(1_000, 30_000, 10_000)


@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")
async def test_the_schema_is_what_statements_believe_it_to_be(place):
    await place.migrate()
    found = sa.MetaData()
    await place.run(found.reflect)
    assert set(found.tables) == set(tables.metadata.tables)
    for name, table in tables.metadata.tables.items():
        assert described(found.tables[name]) == described(table), name


def described(table):
    unique = {
        tuple(column.name for column in constraint.columns)
        for constraint in table.constraints
        if isinstance(constraint, sa.UniqueConstraint)
    } | {tuple(index.columns.keys()) for index in table.indexes if index.unique}
    return {
        "columns": {
            column.name: (family(column.type), column.nullable)
            for column in table.columns
            if (table.name, column.name) not in BELONGING_TO_ONE
        },
        "parents": {(key.parent.name, key.target_fullname) for key in table.foreign_keys},
        # An entry's key is a primary key on one database and a unique one on the other.
        "unique": unique - {("run_id", "entry")},
        "key": None if table.name == "belay_journal" else tuple(table.primary_key.columns.keys()),
        "indexes": {index.name for index in table.indexes if not index.unique} - {"belay_journal_feed"},
    }


def family(kind):
    return "text" if isinstance(kind, sa.String) else "integer" if isinstance(kind, sa.Integer) else repr(kind)


async def test_a_migration_that_fails_leaves_nothing_behind(place, next_migration):
    await place.migrate()
    next_migration("CREATE TABLE belay_extra (x TEXT);\n\nCREATE TABLE belay_runs (x TEXT);\n")
    with pytest.raises(Exception, match=r"unknown|constraint"):
        await place.migrate()
    assert "belay_extra" not in await place.tables()
    next_migration("CREATE TABLE belay_extra (x TEXT);\n")
    assert await place.migrate() == [(2, "second")]


async def test_an_older_schema_is_refused_and_the_command_named(place, next_migration):
    await place.migrate()
    next_migration("CREATE TABLE belay_extra (x TEXT);\n")
    with pytest.raises(SchemaMismatch, match=r"lacks migrations \(second\); run `belay migrate`"):
        async with place.open():
            pass
    await place.migrate()
    async with place.open():
        pass


async def test_a_newer_schema_is_refused(place):
    await place.migrate()
    await place.execute("INSERT INTO belay_migrations VALUES (9, 'later', 'x', 1)")
    for attempt in (place.migrate, place.open().__aenter__):
        with pytest.raises(SchemaMismatch, match=r"migration 9.*belay migrate"):
            await attempt()


@pytest.mark.parametrize("change", ["checksum = 'x'", "name = 'other'"])
async def test_a_migration_changed_after_it_was_applied_is_refused(place, change):
    await place.migrate()
    await place.execute(f"UPDATE belay_migrations SET {change}")  # noqa: S608
    with pytest.raises(SchemaMismatch, match="migration 1 was applied in another form"):
        async with place.open():
            pass


async def test_holes_are_never_filled(place, next_migration):
    await place.migrate()
    next_migration("SELECT 1;\n", number=3)
    await place.migrate()
    next_migration("SELECT 1;\n", number=2)
    with pytest.raises(SchemaMismatch):
        await place.migrate()


async def test_many_that_migrate_at_once_apply_each_migration_once(place):
    applied = await asyncio.gather(*(place.migrate() for _ in range(8)))
    assert sorted(applied) == [[]] * 7 + [[(1, "first")]]


async def test_each_database_has_a_name_of_its_own_and_one_set_of_lease_times(place):
    await place.migrate()
    rows = await place.run(lambda tx: tx.execute(sa.select(tables.store)).all())
    [(source, *times)] = rows
    assert re.fullmatch("[0-9a-f]{32}", source)
    assert times == [1_000, 30_000, 10_000]
    await place.execute("UPDATE belay_store SET interval_ms = 2000, stale_after_ms = 60000")
    async with place.open() as stores:
        assert stores.lease == LeaseTimes(2_000, 60_000, 10_000)
        assert stores.lease.tolerance_ms == 48_000
    await place.execute("DELETE FROM belay_store")
    with pytest.raises(SchemaMismatch):
        async with place.open():
            pass


async def test_the_printed_script_makes_the_same_schema(place):
    script = find_migrations(place.url).sql()
    if place.url.startswith("sqlite"):
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as file:
            file.executescript(script)
    else:
        import asyncpg

        connection = await asyncpg.connect(place.url)
        await connection.execute(script)
        await connection.close()
    assert await place.migrate() == []
    async with place.open():
        pass


async def test_a_database_of_somebody_elses_is_refused_and_left_alone(place):
    await place.execute("CREATE TABLE theirs (x TEXT)")
    with pytest.raises(SchemaMismatch, match="has no belay schema; run `belay migrate`"):
        async with place.open():
            pass
    assert await place.tables() == {"theirs"}
    assert await place.migrate() == [(1, "first")]


async def test_postgres_never_gets_its_schema_silently(belay_postgres_server, belay_postgres_names):
    name = next(belay_postgres_names)
    url = belay_postgres_server.create_database(name)
    with pytest.raises(SchemaMismatch, match="belay migrate"):
        async with open_postgres(url):
            pass
    belay_postgres_server.drop_database(name)


async def test_an_empty_file_gets_its_schema_from_whoever_opens_it_first(tmp_path):
    path = tmp_path / "new.db"

    async def once():
        async with open_sqlite(path) as stores:
            return stores.lease

    assert await asyncio.gather(*(once() for _ in range(6))) == [LeaseTimes()] * 6


@pytest.mark.parametrize("table", sorted(tables.metadata.tables))
def test_the_files_of_both_databases_name_the_same_tables(table):
    for package in ("belay_drivers.sqlite", "belay_drivers.postgres"):
        assert any(f"CREATE TABLE {table} " in step.sql for step in ladder(package))
