"""Migrations: forward only, all or nothing, checked at every opening, and equal to what statements believe."""

import asyncio
import json
import re
import sqlite3
import sys
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import belay_drivers.postgres.open as postgres_opening
import belay_drivers.sqlite.open as sqlite_opening
from belay_core.errors import MigrationRefused, SchemaMismatch
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.stores import LeaseTimes, find_migrations
from belay_drivers.postgres import migrate_postgres, open_postgres
from belay_drivers.sql.schema import tables
from belay_drivers.sql.schema.migration_plan import MigrationSet, own_set, planned
from belay_drivers.sqlite import migrate_sqlite, open_sqlite
from belay_testing.cases import case

BELONGING_TO_ONE = {("belay_journal", "xid"), ("belay_journal", "position")}
"""Columns that only one database has, for its feed."""

SLOW_IN_SQLITE = """CREATE TABLE slow AS
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000000) SELECT max(i) FROM n"""
"""A second of work or so, for a statement to be in the middle of."""


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

    async def columns(self, table):
        return await self.run(lambda tx: {column["name"] for column in sa.inspect(tx).get_columns(table)})

    async def check(self):
        await find_migrations(self.url).check(self.url)


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


def own(place):
    return [(step.id, step.name) for step in planned([place.module.OWN])]


@pytest.fixture
def next_migration(monkeypatch, place):
    """Lets the code of the test believe in one more migration."""
    before = place.module.OWN
    last = own(place)[-1][0]

    def add(sql, number=last + 1, name="later"):
        given = {**place.module.OWN.migrations, f"{number:04d}_{name}": sql}
        monkeypatch.setattr(place.module, "OWN", MigrationSet("", 0, given))
        return number, name

    def forget():
        monkeypatch.setattr(place.module, "OWN", before)

    return SimpleNamespace(add=add, forget=forget)


@case(62)
async def test_migrating_says_what_it_did_and_does_nothing_twice(place):
    assert await place.migrate() == own(place)
    assert await place.migrate() == []
    async with place.open() as stores:
        assert stores.lease == LeaseTimes(1_000, 30_000, 10_000)


@case(62)
@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'", "ignore:Can't validate argument 'dialect_options'")
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
    next_migration.add("CREATE TABLE belay_extra (x TEXT);\n\nCREATE TABLE belay_runs (x TEXT);\n")
    with pytest.raises(Exception, match=r"unknown|constraint|content"):
        await place.migrate()
    assert "belay_extra" not in await place.tables()
    next_migration.add("CREATE TABLE belay_extra (x TEXT);\n")
    [(_, name)] = await place.migrate()
    assert name == "later"


async def test_an_older_schema_is_refused_and_the_command_named(place, next_migration):
    await place.migrate()
    next_migration.add("CREATE TABLE belay_extra (x TEXT);\n")
    for look in (place.open().__aenter__, place.check):
        with pytest.raises(SchemaMismatch, match=r"lacks migrations \(later\); run `belay migrate`") as refused:
            await look()
        assert refused.value.state == "older"
    await place.migrate()
    await place.check()
    async with place.open():
        pass


async def test_what_a_newer_release_added_is_borne(place, next_migration):
    await place.migrate()
    next_migration.add("CREATE TABLE belay_extra (x TEXT);\n")
    await place.migrate()
    next_migration.forget()
    await place.check()
    assert await place.migrate() == []
    async with place.open() as stores:
        assert await stores.runs.find(RunId("nobody")) is None


async def test_what_a_newer_release_took_away_is_refused_by_code_that_still_needs_it(place, next_migration):
    await place.migrate()
    expanding, _ = next_migration.add("ALTER TABLE belay_runs ADD COLUMN extra TEXT;\n")
    next_migration.add("SELECT 1;\n", expanding + 1, f"contract_{expanding:04d}_drop_the_old")
    await place.migrate()
    next_migration.forget()
    for attempt in (place.migrate, place.check, place.open().__aenter__):
        with pytest.raises(SchemaMismatch, match=rf"migration {expanding + 1}.*belay migrate") as refused:
            await attempt()
        assert refused.value.state == "newer"
    # The release that came with the expansion no longer uses what was dropped.
    next_migration.add("ALTER TABLE belay_runs ADD COLUMN extra TEXT;\n", expanding)
    await place.check()
    assert await place.migrate() == []
    async with place.open():
        pass


@pytest.mark.parametrize("change", ["checksum = 'x'", "name = 'other'"])
async def test_a_migration_changed_after_it_was_applied_is_refused(place, change):
    await place.migrate()
    await place.execute(f"UPDATE belay_migrations SET {change}")  # noqa: S608
    with pytest.raises(SchemaMismatch, match="migration 1 was applied in another form") as refused:
        async with place.open():
            pass
    assert refused.value.state == "altered"


async def test_a_ledger_that_holds_no_ids_is_refused(place):
    await place.migrate()
    await place.execute("INSERT INTO belay_migrations VALUES (-1, 'x', 'x', 1)")
    for attempt in (place.migrate, place.open().__aenter__):
        with pytest.raises(SchemaMismatch, match="-1"):
            await attempt()


async def test_holes_are_never_filled(place, next_migration):
    await place.migrate()
    number, _ = next_migration.add("SELECT 1;\n", own(place)[-1][0] + 2)
    await place.migrate()
    next_migration.add("SELECT 1;\n", number - 1)
    with pytest.raises(SchemaMismatch, match="never fills holes"):
        await place.migrate()


async def test_nothing_is_appended_over_what_another_release_applied(place, next_migration):
    await place.migrate()
    number, _ = next_migration.add("SELECT 1;\n")
    await place.migrate()
    next_migration.forget()
    next_migration.add("SELECT 2;\n", number + 1)
    with pytest.raises(SchemaMismatch, match="does not know"):
        await place.migrate()


async def test_many_that_migrate_at_once_apply_each_migration_once(place):
    applied = await asyncio.gather(*(place.migrate() for _ in range(8)))
    assert sorted(applied) == [[]] * 7 + [own(place)]


async def test_processes_that_migrate_at_once_apply_each_migration_once(place):
    script = (
        "import asyncio, json, sys; from belay_core.stores import find_migrations as find; url = sys.argv[1]; "
        "print(json.dumps(asyncio.run(find(url).migrate(url))))"
    )
    command = (sys.executable, "-c", script, place.url)
    running = [await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) for _ in range(4)]
    ended = await asyncio.gather(*(process.communicate() for process in running))
    assert sorted(json.loads(out) for out, _ in ended) == [[]] * 3 + [[list(step) for step in own(place)]]


@case(64)
async def test_a_migration_cancelled_in_the_middle_leaves_nothing_behind(place, next_migration):
    await place.migrate()
    before = [row.migration_id for row in await place.run(ledger)]
    slow = "SELECT pg_sleep(0.6)" if "postgres" in place.url else SLOW_IN_SQLITE
    next_migration.add(f"ALTER TABLE belay_runs ADD COLUMN extra TEXT;\n\n{slow};\n\nSELECT 1;\n")
    asked = asyncio.create_task(place.migrate())
    await asyncio.sleep(0.25)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert "extra" not in await place.columns("belay_runs")
    assert [row.migration_id for row in await place.run(ledger)] == before
    [(_, name)] = await place.migrate()
    assert name == "later"
    assert "extra" in await place.columns("belay_runs")


@case(64)
async def test_an_upgrade_keeps_what_is_there(place, next_migration):
    await place.migrate()
    async with place.open() as stores:
        await stores.runs.start(commands.Start(RunId("old"), "w", "1", '{"n":1}'))
        before = await stores.runs.find(RunId("old"))
    next_migration.add("ALTER TABLE belay_runs ADD COLUMN extra TEXT;\n")
    await place.migrate()
    async with place.open() as stores:
        assert await stores.runs.find(RunId("old")) == before


AUDIT = {
    "0001_initial": "CREATE TABLE audit_lines (run_id TEXT);\n",
    "0002_index": "CREATE INDEX audit_by_run ON audit_lines (run_id);\n",
}


async def test_a_package_adds_its_tables_in_a_block_of_its_own(place):
    given = dict(AUDIT)
    audit = MigrationSet("audit", 2_000, given)
    given.clear()
    applied = [(2_001, "audit_initial"), (2_002, "audit_index")]
    assert await place.migrate([audit]) == [*own(place), *applied]
    assert await place.migrate([audit]) == []
    assert "audit_lines" in await place.tables()
    # To belay they are somebody else's business.
    assert await place.migrate() == []
    async with place.open():
        pass


async def test_each_block_grows_by_itself(place, next_migration):
    await place.migrate([MigrationSet("audit", 2_000, {"0001_initial": AUDIT["0001_initial"]})])
    number, name = next_migration.add("SELECT 1;\n")
    assert await place.migrate([MigrationSet("audit", 2_000, AUDIT)]) == [(number, name), (2_002, "audit_index")]
    with pytest.raises(MigrationRefused, match="1001 begins a block below 2002") as refused:
        await place.migrate([MigrationSet("late", 1_000, {"0001_x": "SELECT 1;\n"})])
    assert refused.value.reason == "order"
    assert await place.migrate([MigrationSet("more", 3_000, {"0000_x": "SELECT 1;\n"})]) == [(3_000, "more_x")]


async def test_a_renamed_migration_is_known_by_its_former_name(place):
    await place.migrate([MigrationSet("audit", 2_000, {"0001_initial": AUDIT["0001_initial"]})])
    renamed = {"0001_lines": AUDIT["0001_initial"], "0002_index": AUDIT["0002_index"]}
    with pytest.raises(SchemaMismatch, match="another form"):
        await place.migrate([MigrationSet("audit", 2_000, renamed)])
    audit = MigrationSet("audit", 2_000, renamed, {"0001_lines": ["audit_initial"]})
    assert await place.migrate([audit]) == [(2_002, "audit_index")]
    names = {row.migration_id: row.name for row in await place.run(ledger)}
    assert names[2_001] == "audit_initial"


def ledger(tx):
    return tx.execute(sa.select(tables.migrations).order_by(tables.migrations.c.migration_id)).all()


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
        connection = await asyncpg.connect(place.url)
        await connection.execute(script)
        await connection.close()
    assert await place.migrate() == []
    async with place.open():
        pass


async def test_a_script_may_begin_above_what_is_applied(place):
    last = own(place)[-1][0]
    find = find_migrations(place.url)
    assert find.sql(last) == ""
    assert "belay_migrations" in find.sql(last - 1)
    assert f"-- {last:04d} " in find.sql(last - 1)


@pytest.mark.parametrize("theirs", ["TABLE theirs (x TEXT)", "VIEW theirs AS SELECT 1 AS x"])
async def test_a_database_of_somebody_elses_is_refused_and_left_alone(place, theirs):
    await place.execute(f"CREATE {theirs}")
    for look in (place.open().__aenter__, place.check):
        with pytest.raises(SchemaMismatch, match="has no belay schema; run `belay migrate`") as refused:
            await look()
        assert refused.value.state == "foreign"
    assert "belay_runs" not in await place.tables()
    assert await place.migrate() == own(place)


@pytest.mark.parametrize("mark", ["application_id", "user_version"])
async def test_a_file_that_an_application_has_marked_is_left_alone(tmp_path, mark):
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as file:
        file.execute(f"PRAGMA {mark} = 7")
        file.commit()
    with pytest.raises(SchemaMismatch) as refused:
        async with open_sqlite(tmp_path / "theirs.db"):
            pass
    assert refused.value.state == "foreign"


async def test_readers_pass_a_migration_that_waits(belay_postgres, monkeypatch):
    last = planned([postgres_opening.OWN])[-1].id
    more = {
        **postgres_opening.OWN.migrations,
        f"{last + 1:04d}_later": "ALTER TABLE belay_runs ADD COLUMN extra TEXT;\n",
    }
    async with belay_postgres as stores:
        reader = await asyncpg.connect(belay_postgres.url)
        await reader.execute("BEGIN; SELECT count(*) FROM belay_runs")
        monkeypatch.setattr(postgres_opening, "OWN", MigrationSet("", 0, more))
        migrating = asyncio.create_task(migrate_postgres(belay_postgres.url))
        await asyncio.sleep(0.5)
        before = asyncio.get_running_loop().time()
        # Well under the five seconds after which a statement of belay is given up.
        assert await stores.runs.find(RunId("nobody")) is None
        assert 0.1 < asyncio.get_running_loop().time() - before < 4
        assert not migrating.done()
        await reader.execute("COMMIT")
        await reader.close()
        assert await migrating == [(last + 1, "later")]


async def test_postgres_never_gets_its_schema_silently(belay_postgres_server, belay_postgres_names):
    name = next(belay_postgres_names)
    url = belay_postgres_server.create_database(name)
    with pytest.raises(SchemaMismatch, match="belay migrate") as refused:
        async with open_postgres(url):
            pass
    assert refused.value.state == "empty"
    belay_postgres_server.drop_database(name)


async def test_an_empty_file_gets_its_schema_from_the_first_to_open_it(tmp_path):
    path = tmp_path / "new.db"

    async def once():
        async with open_sqlite(path) as stores:
            return stores.lease

    assert await asyncio.gather(*(once() for _ in range(6))) == [LeaseTimes()] * 6


@pytest.mark.parametrize("table", sorted(tables.metadata.tables))
def test_the_files_of_both_databases_name_the_same_tables(table):
    for package in ("belay_drivers.sqlite", "belay_drivers.postgres"):
        assert any(f"CREATE TABLE {table} " in sql for sql in own_set(package).migrations.values())
