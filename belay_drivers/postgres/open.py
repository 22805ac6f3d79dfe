"""Opening PostgreSQL: one pool, used for transactions and for statements that commit by themselves."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from belay_core.clock import Clock, SystemClock, reading
from belay_core.ids import IdSource, Uuid7Ids
from belay_core.stores.bundle import Stores
from belay_core.stores.drivers import Migrations
from belay_drivers.postgres.channel import PostgresChannel, StatementClient, TransactionChannel
from belay_drivers.postgres.clock import FollowingClock
from belay_drivers.postgres.connections import Address, Pooler, address_of, fleeting, held, pooled
from belay_drivers.postgres.dialect import DIALECT
from belay_drivers.postgres.feed import PostgresFeed
from belay_drivers.postgres.hot import PostgresHotStatements
from belay_drivers.postgres.relay import listening
from belay_drivers.postgres.roles import grants
from belay_drivers.sql.connection.connection_runner import LoopRunner
from belay_drivers.sql.connection.database import Body, Database, Engines
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
from belay_drivers.sql.stores.assembly import DriverOptions, assembled
from belay_drivers.sql.stores.group_commit import GroupCommit, PipelineTuner
from belay_drivers.sql.stores.views import Views

T = TypeVar("T")

OWN: Final = own_set("belay_drivers.postgres")
_TIME: Final = text("SELECT extract(epoch FROM clock_timestamp()) * 1000.0")
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('belay:' || current_schema(), 0))")
# Whoever asks for a table while a migration waits for it waits behind the migration: so that waits shortly, lets
# them pass, and tries again.
_PATIENCE: Final = ("SET LOCAL lock_timeout = '3s'", "SET LOCAL statement_timeout = 0")


@asynccontextmanager
async def open_postgres(
    url: str, *, clock: Clock | None = None, ids: IdSource | None = None, pooler: Pooler | None = None
) -> AsyncGenerator[Stores]:
    """Open the stores in a PostgreSQL database: ``postgresql://user@host/name``.

    The schema has to be there: ``SchemaMismatch`` names the command that makes it. Without a clock the stores follow
    the database's. ``pooler="transaction"``, or ``?pooler=transaction`` in the URL, is for a server behind a pooler
    that hands out connections by transaction. Everything is closed when the block is left.
    """
    address = address_of(url, pooler)
    engine = pooled(address)
    channel, looks = _wires(engine, address)
    database = Database(_engines(engine, address, channel), DIALECT)
    group_commit = GroupCommit(database, channel, PipelineTuner())
    try:
        times = await database.read(lambda tx: verify(tx, planned([OWN]), DIALECT))
        following = None
        if clock is None:
            following = _Following(database, FollowingClock(stale_after_ms=times.stale_after_ms))
            await following.refresh()
            clock = following.clock
        stores = assembled(
            database,
            clock=clock,
            ids=ids or Uuid7Ids(),
            lease=times,
            views=_views(engine),
            hot=PostgresHotStatements(database, channel, looks, None if following is None else following.clock),
            group_commit=group_commit,
            **_beside(following),
        )
        async with listening(stores.notifier, address):
            yield stores
    finally:
        await group_commit.close()
        await looks.close()
        await engine.dispose()


def _beside(following: "_Following | None") -> DriverOptions:
    """What looks after a clock that follows the database's."""
    if following is None:
        return {}
    return {"refresh": following.refresh, "trusts_stale": following.clock.settled}


async def migrate_postgres(
    url: str, sets: Sequence[MigrationSet] = (), *, pooler: Pooler | None = None
) -> list[tuple[int, str]]:
    """Bring the schema of a database up to this code's, and to these sets; the migrations that this call applied.

    Raises ``SchemaMismatch`` and ``MigrationRefused``; then, and when cancelled, nothing was applied.
    """
    steps = planned([OWN, *sets])
    now_ms = reading(SystemClock())
    go_on = until_cancelled()
    sent: list[tuple[int, str]] = []

    def migrate(tx: Connection) -> list[tuple[int, str]]:
        if not missing(tx, steps):
            return []
        for statement in _PATIENCE:
            tx.exec_driver_sql(statement)
        tx.execute(_LOCK)
        sent.extend(applied := apply(tx, steps, now_ms, go_on=go_on))
        return applied

    def again(tx: Connection) -> list[tuple[int, str]]:
        # No reply came to a commit: of what was sent, the ledger has what arrived.
        migrate(tx)
        return [row for row in applied_at(tx, now_ms) if row in sent]

    return await _once(address_of(url, pooler), migrate, again)


class PostgresMigrations(Migrations):
    """This driver's migrations, as the command line finds them: belay's own and those of installed packages."""

    async def migrate(self, url: str) -> list[tuple[int, str]]:
        """Apply what is missing, all or nothing; the id and name of each migration this call applied."""
        return await migrate_postgres(url, installed_sets("postgresql"))

    async def check(self, url: str) -> None:
        """Change nothing; ``SchemaMismatch`` where something is missing."""
        steps = self._steps()
        await _once(address_of(url), lambda tx: check(tx, steps, DIALECT))

    def sql(self, since: int = -1) -> str:
        """The migrations above an id as one script, for those who apply them by other means."""
        return printed(self._steps(), _NOW, since)

    def roles(self) -> str:
        """A script that makes the roles and gives each what it needs; run after migrating."""
        return grants()

    def _steps(self) -> Sequence[Migration]:
        return planned([OWN, *installed_sets("postgresql")])


MIGRATIONS: Final = PostgresMigrations()
"""What the command line migrates PostgreSQL by."""


def _wires(engine: AsyncEngine, address: Address) -> tuple[StatementClient, StatementClient]:
    """What is sent straight: writes one after another, and reads beside them."""
    if address.pooler:
        through = TransactionChannel(LoopRunner(engine))
        return through, through
    return PostgresChannel(held(address)), PostgresChannel(held(address))


def _engines(engine: AsyncEngine, address: Address, channel: StatementClient) -> Engines:
    runner = LoopRunner(engine)
    if address.pooler:
        # Outside a transaction each message of a statement may reach another server.
        return Engines(runner, runner)
    return Engines(runner, LoopRunner(engine.execution_options(isolation_level="AUTOCOMMIT")), channel.sync_engine)


def _views(engine: AsyncEngine) -> Views:
    standing = LoopRunner(engine.execution_options(isolation_level="REPEATABLE READ"))
    return Views(Database(Engines(standing, standing), DIALECT), standing.hold, PostgresFeed())


async def _once(address: Address, body: Body[T], resent: Body[T] | None = None) -> T:
    engine = fleeting(address)
    runner = LoopRunner(engine)
    try:
        return await Database(Engines(runner, runner), DIALECT).write(body, resent)
    finally:
        await engine.dispose()


class _Following:
    """Asks the database for the time where nothing else has done so lately."""

    def __init__(self, database: Database, clock: FollowingClock) -> None:
        self.clock = clock
        self._database = database

    async def refresh(self) -> None:
        """Sample the clock, if the last sample is old."""
        if self.clock.is_due():
            await self._database.read(self._sample)

    def _sample(self, tx: Connection) -> None:
        # Twice: the first answer on a connection carries the cost of preparing the statement.
        for _ in range(2):
            asked = self.clock.elapsed()
            moment = float(tx.execute(_TIME).scalar_one())
            self.clock.learn(asked, self.clock.elapsed(), moment)
