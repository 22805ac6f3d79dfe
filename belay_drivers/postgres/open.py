"""Open PostgreSQL: one pool, for transactions and for statements that commit by themselves."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from belay_core.clock import Clock, SystemClock, reading
from belay_core.errors import InvalidInput
from belay_core.ids import IdSource, Uuid7Ids
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.drivers import Migrations
from belay_drivers.postgres.channel import PostgresChannel, StatementClient, TransactionChannel
from belay_drivers.postgres.clock import FollowingClock
from belay_drivers.postgres.connections import (
    Address,
    Pooler,
    address_of,
    dedicated_engine,
    pooled_engine,
    reached,
    single_use_engine,
)
from belay_drivers.postgres.dialect import DIALECT
from belay_drivers.postgres.feed import PostgresFeed
from belay_drivers.postgres.hot import PostgresHotStatements
from belay_drivers.postgres.relay import relay_notifications
from belay_drivers.postgres.roles import grants
from belay_drivers.sql.connection.connection_runner import LoopRunner
from belay_drivers.sql.connection.database import Body, Database, Engines, Usage
from belay_drivers.sql.schema.migration_plan import Migration, MigrationSet, installed_sets, own_set, planned
from belay_drivers.sql.schema.migration_runner import (
    applied_at,
    apply,
    check,
    missing,
    printed,
    until_cancelled,
    verify,
)
from belay_drivers.sql.stores.assembly import DriverOptions, assemble_stores
from belay_drivers.sql.stores.group_commit import GroupCommit, PipelineTuner
from belay_drivers.sql.stores.views import Views

T = TypeVar("T")

OWN: Final = own_set("belay_drivers.postgres")
_TIME: Final = text("SELECT extract(epoch FROM clock_timestamp()) * 1000.0")
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('belay:' || current_schema(), 0))")
# A statement that needs a table while a migration waits for its lock queues behind the migration: so the migration
# waits only briefly, lets them pass, and tries again.
_PATIENCE: Final = ("SET LOCAL lock_timeout = '3s'", "SET LOCAL statement_timeout = 0")


@asynccontextmanager
async def open_postgres(
    url: str, *, clock: Clock | None = None, ids: IdSource | None = None, pooler: Pooler | None = None
) -> AsyncGenerator[Stores]:
    """Open the stores in a PostgreSQL database: ``postgresql://user@host/name``.

    The schema has to exist: ``SchemaMismatch`` names the command that creates it. Without a clock the stores follow
    the database's. ``pooler="transaction"``, or ``?pooler=transaction`` in the URL, is for a server behind a pooler in
    transaction mode. Everything is closed when the block is left.
    """
    address = address_of(url, pooler)
    engine = pooled_engine(address)
    channel, reads = _channels(engine, address)
    database = Database(_engines(engine, address, channel), DIALECT)
    group_commit = GroupCommit(database, channel, PipelineTuner())
    try:
        times = await reached(database.read(_verified), engine, address)
        sampler = None
        if clock is None:
            sampler = _ClockSampler(database, FollowingClock(stale_after_ms=times.stale_after_ms))
            await sampler.refresh()
            clock = sampler.clock
        stores = assemble_stores(
            database,
            clock=clock,
            ids=ids or Uuid7Ids(),
            lease=times,
            views=_views(engine, database.usage),
            hot=PostgresHotStatements(database, channel, reads, None if sampler is None else sampler.clock),
            group_commit=group_commit,
            **_clock_options(sampler),
        )
        async with relay_notifications(stores.notifier, address):
            yield stores
    finally:
        database.usage.close()
        await group_commit.close()
        await reads.close()
        await engine.dispose()


def _verified(tx: Connection) -> LeaseTimes:
    _require_utf8(tx)
    return verify(tx, planned([OWN]), DIALECT)


def _require_utf8(tx: Connection) -> None:
    """Raise ``InvalidInput`` for a database of another encoding: it would refuse texts that belay has to keep."""
    encoding = tx.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise InvalidInput("url", f"its database has the encoding {encoding}; create one WITH ENCODING 'UTF8'")


def _clock_options(sampler: "_ClockSampler | None") -> DriverOptions:
    """The driver options of a clock that follows the database's."""
    if sampler is None:
        return {}
    return {"refresh": sampler.refresh, "trusts_stale": sampler.clock.settled}


async def migrate_postgres(
    url: str, sets: Sequence[MigrationSet] = (), *, pooler: Pooler | None = None
) -> list[tuple[int, str]]:
    """Apply the missing migrations of belay and of these sets; returns those that this call applied.

    Raises ``SchemaMismatch`` and ``MigrationRefused``; then, and when cancelled, nothing was applied.
    """
    steps = planned([OWN, *sets])
    now_ms = reading(SystemClock())
    go_on = until_cancelled()
    sent: list[tuple[int, str]] = []

    def migrate(tx: Connection) -> list[tuple[int, str]]:
        _require_utf8(tx)
        if not missing(tx, steps):
            return []
        for statement in _PATIENCE:
            tx.exec_driver_sql(statement)
        tx.execute(_LOCK)
        sent.extend(applied := apply(tx, steps, now_ms, go_on=go_on))
        return applied

    def again(tx: Connection) -> list[tuple[int, str]]:
        # The reply to a commit was lost: the ledger shows what was committed.
        migrate(tx)
        return [row for row in applied_at(tx, now_ms) if row in sent]

    return await _run_once(address_of(url, pooler), migrate, again)


class PostgresMigrations(Migrations):
    """This driver's migrations, as the command line finds them: belay's own and those of installed packages."""

    async def migrate(self, url: str) -> list[tuple[int, str]]:
        """Apply missing migrations, all or none; returns id and name of each one that this call applied."""
        return await migrate_postgres(url, installed_sets("postgresql"))

    async def check(self, url: str) -> None:
        """Change nothing; raises ``SchemaMismatch`` if a migration is missing."""
        steps = self._steps()
        await _run_once(address_of(url), lambda tx: check(tx, steps, DIALECT))

    def sql(self, since: int = -1) -> str:
        """The migrations above an id as one script, for those who apply them by other means."""
        return printed(self._steps(), _NOW, since)

    def roles(self) -> str:
        """A script that creates the roles with their rights; run it after the migrations."""
        return grants()

    def _steps(self) -> Sequence[Migration]:
        return planned([OWN, *installed_sets("postgresql")])


MIGRATIONS: Final = PostgresMigrations()
"""The entry point of the command line."""


def _channels(engine: AsyncEngine, address: Address) -> tuple[StatementClient, StatementClient]:
    """The channels for direct statements: one for writes, one for concurrent reads."""
    if address.pooler:
        through = TransactionChannel(LoopRunner(engine))
        return through, through
    return PostgresChannel(dedicated_engine(address)), PostgresChannel(dedicated_engine(address))


def _engines(engine: AsyncEngine, address: Address, channel: StatementClient) -> Engines:
    runner = LoopRunner(engine)
    if address.pooler:
        # Outside a transaction each message of a statement may reach another server connection.
        return Engines(runner, runner)
    return Engines(runner, LoopRunner(engine.execution_options(isolation_level="AUTOCOMMIT")), channel.sync_engine)


def _views(engine: AsyncEngine, usage: Usage) -> Views:
    standing = LoopRunner(engine.execution_options(isolation_level="REPEATABLE READ"))
    return Views(Database(Engines(standing, standing), DIALECT, usage=usage), standing.hold, PostgresFeed())


async def _run_once(address: Address, body: Body[T], resent: Body[T] | None = None) -> T:
    engine = single_use_engine(address)
    runner = LoopRunner(engine)
    try:
        return await reached(Database(Engines(runner, runner), DIALECT).write(body, resent), engine, address)
    finally:
        await engine.dispose()


class _ClockSampler:
    """Samples the database's time, if no other statement has done so lately."""

    def __init__(self, database: Database, clock: FollowingClock) -> None:
        self.clock = clock
        self._database = database

    async def refresh(self) -> None:
        """Sample the clock, if the last sample is old."""
        if self.clock.is_due():
            await self._database.read(self._sample)

    def _sample(self, tx: Connection) -> None:
        # Twice: the first query on a connection includes the time to prepare the statement.
        for _ in range(2):
            asked = self.clock.elapsed()
            moment = float(tx.execute(_TIME).scalar_one())
            self.clock.learn(asked, self.clock.elapsed(), moment)
