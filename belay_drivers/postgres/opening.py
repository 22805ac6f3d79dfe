"""Opening PostgreSQL: one pool, used for transactions and for statements that commit by themselves."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import URL, Connection, NullPool, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from belay_core import limits
from belay_core.ids import IdSource, Uuid7Ids
from belay_core.moments import Clock, SystemClock, reading
from belay_core.stores.bundle import Stores
from belay_core.stores.opening import Migrations
from belay_drivers.postgres.clock import FollowingClock
from belay_drivers.postgres.dialect import DIALECT
from belay_drivers.postgres.hot import PostgresHotPaths
from belay_drivers.sql.carrying import LoopCarrier
from belay_drivers.sql.database import Database, Engines
from belay_drivers.sql.migrating import apply, ladder, printed, verify
from belay_drivers.sql.stores import assembled

POOL_SIZE: Final = 10
CONNECT_TIMEOUT: Final = 5.0
GRACE: Final = 0.5
"""Seconds the driver waits beyond the database's own time limit, whose error says what happened."""
_LADDER: Final = ladder("belay_drivers.postgres")
_TIME: Final = text("SELECT extract(epoch FROM clock_timestamp()) * 1000.0")
_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('belay:' || current_schema(), 0))")
_PATIENCE: Final = text("SET LOCAL lock_timeout = '5s'")


@asynccontextmanager
async def open_postgres(url: str, *, clock: Clock | None = None, ids: IdSource | None = None) -> AsyncGenerator[Stores]:
    """Open the stores in a PostgreSQL database: ``postgresql://user@host/name``.

    The schema has to be there: ``SchemaMismatch`` names the command that makes it. Without a clock the stores follow
    the database's. Everything is closed when the block is left.
    """
    engine = _engine(url)
    try:
        alone = LoopCarrier(engine.execution_options(isolation_level="AUTOCOMMIT"))
        database = Database(Engines(LoopCarrier(engine), alone, alone), DIALECT)
        times = await database.read(lambda tx: verify(tx, _LADDER))
        if clock is not None:
            yield assembled(database, clock=clock, ids=ids or Uuid7Ids(), lease=times, hot=PostgresHotPaths())
            return
        following = _Following(database, FollowingClock(stale_after_ms=times.stale_after_ms))
        await following.refresh()
        yield assembled(
            database,
            clock=following.clock,
            ids=ids or Uuid7Ids(),
            lease=times,
            hot=PostgresHotPaths(following.clock),
            refresh=following.refresh,
            trusts_stale=following.clock.settled,
        )
    finally:
        await engine.dispose()


async def migrate_postgres(url: str) -> list[tuple[int, str]]:
    """Bring the schema of a database up to this code's; the migrations that this call applied."""
    engine = create_async_engine(
        _address(url),
        hide_parameters=True,
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
        connect_args=_arguments(url, {"application_name": "belay"}),
    )
    now_ms = reading(SystemClock())

    def migrate(tx: Connection) -> list[tuple[int, str]]:
        tx.execute(_PATIENCE)
        tx.execute(_LOCK)
        return apply(tx, _LADDER, now_ms)

    carrier = LoopCarrier(engine)
    try:
        return await Database(Engines(carrier, carrier), DIALECT).write(migrate)
    finally:
        await engine.dispose()


class PostgresMigrations(Migrations):
    """This driver's migrations, as the command line finds them."""

    async def migrate(self, url: str) -> list[tuple[int, str]]:
        """Apply what is missing, all or nothing; the id and name of each migration this call applied."""
        return await migrate_postgres(url)

    def sql(self) -> str:
        """All migrations as one script, for those who apply them by other means."""
        return printed(_LADDER, "(extract(epoch FROM clock_timestamp()) * 1000)::bigint")


MIGRATIONS: Final = PostgresMigrations()


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


def _engine(url: str) -> AsyncEngine:
    milliseconds = str(int(limits.STATEMENT_TIMEOUT * 1000))
    settings = {
        "application_name": "belay",
        # A role or a database may have other defaults; the fences are written for this level.
        "default_transaction_isolation": "read committed",
        # Without statistics, as on a new database, the planner would collect and sort all ready runs to take a few:
        # 89 ms over 110,000 of them, against 0.3 by walking the index.
        "enable_bitmapscan": "off",
        "idle_in_transaction_session_timeout": "60000",
        "jit": "off",
        "statement_timeout": milliseconds,
    }
    return create_async_engine(
        _address(url),
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        pool_size=POOL_SIZE,
        max_overflow=0,
        # Every use ends its own transaction; resetting would be a round trip for nothing.
        pool_reset_on_return=None,
        connect_args={**_arguments(url, settings), "command_timeout": limits.STATEMENT_TIMEOUT + GRACE},
    )


def _address(url: str) -> URL:
    return make_url(url).set(drivername="postgresql+asyncpg").difference_update_query(["sslmode"])


def _arguments(url: str, settings: dict[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"server_settings": settings, "timeout": CONNECT_TIMEOUT}
    sslmode = make_url(url).query.get("sslmode")
    if isinstance(sslmode, str):
        # libpq's word for it, which the driver takes under another name.
        arguments["ssl"] = sslmode
    return arguments
