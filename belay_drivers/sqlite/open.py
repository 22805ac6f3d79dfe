"""Opening SQLite: one writer and a few readers over a file, or one connection over a database in memory."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool, StaticPool, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core.clock import Clock, SystemClock, reading
from belay_core.errors import DatabaseError, DatabaseUnreachable, InvalidInput, StoresUnusable
from belay_core.ids import IdSource, Uuid7Ids
from belay_core.stores.bundle import LeaseTimes, Stores
from belay_core.stores.drivers import Migrations
from belay_core.stores.file_url import MEMORY, names_sqlite, path_of
from belay_drivers.sql.connection.connection_runner import LoopRunner, ThreadRunner
from belay_drivers.sql.connection.database import Database, Engines
from belay_drivers.sql.connection.dialect import Failure
from belay_drivers.sql.schema.migration_plan import Migration, MigrationSet, installed_sets, own_set, planned
from belay_drivers.sql.schema.migration_runner import apply, check, printed, until_cancelled, verify
from belay_drivers.sql.stores.assembly import assemble_stores
from belay_drivers.sql.stores.group_commit import GroupCommit
from belay_drivers.sql.stores.views import Views
from belay_drivers.sqlite.channel import SqliteChannel
from belay_drivers.sqlite.clock import ClockWatch
from belay_drivers.sqlite.dialect import DIALECT
from belay_drivers.sqlite.feed import SqliteFeed
from belay_drivers.sqlite.hot import SqliteHotStatements
from belay_drivers.sqlite.memory_copy import copied_session
from belay_drivers.sqlite.readers import FileReader, MemoryReader, Reader

READERS: Final = 4
T = TypeVar("T")

BUSY_TIMEOUT: Final = 5.0
_FAILURES: Final = {
    "busy": "another process holds its lock",
    "io": "it cannot be opened, read or written, or is no database",
    "constraint": "its content breaks a rule of the schema",
}
"""Seconds a statement waits for another process's write."""
_JOURNAL_LIMIT: Final = 16 * 2**20
"""Bytes of the write-ahead log that are kept for reuse; what one large write or a long read added is given back."""
_PRAGMAS: Final = (
    "foreign_keys=ON",
    "journal_mode=WAL",
    f"journal_size_limit={_JOURNAL_LIMIT}",
    "synchronous=FULL",
    "temp_store=MEMORY",
)
OWN: Final = own_set("belay_drivers.sqlite")


@asynccontextmanager
async def open_sqlite(
    path_or_url: "str | os.PathLike[str]", *, clock: Clock | None = None, ids: IdSource | None = None
) -> AsyncGenerator[Stores]:
    """Open the stores in a SQLite file, or in memory with ``":memory:"``.

    An empty file and a database in memory get their schema; any other schema than this code's is refused with
    ``SchemaMismatch``, which names the command that helps. URLs are ``sqlite:///relative.db``,
    ``sqlite:////absolute.db`` and ``sqlite://`` for memory; one with a host or parameters raises ``InvalidInput``.
    Everything is closed when the block is left.
    """
    clock = clock or SystemClock()
    files = _Files(_path_of(path_or_url))
    channel = SqliteChannel(files.writer)
    group_commit = GroupCommit(files.database, channel)
    try:
        times = await files.opened(files.made_ready(clock))
        watch = ClockWatch(clock, times.stale_after_ms, files.database)
        yield assemble_stores(
            files.database,
            refresh=watch.refresh,
            trusts_stale=watch.settled,
            clock=clock,
            ids=ids or Uuid7Ids(),
            lease=times,
            views=files.views,
            group_commit=group_commit,
            hot=SqliteHotStatements(files.database, channel, files.looks),
        )
    finally:
        files.database.usage.close()
        await group_commit.close()
        await files.close()


async def migrate_sqlite(
    path_or_url: "str | os.PathLike[str]", sets: Sequence[MigrationSet] = ()
) -> list[tuple[int, str]]:
    """Bring the schema of a file up to this code's, and to these sets; the migrations that this call applied.

    Raises ``SchemaMismatch`` and ``MigrationRefused``; then, and when cancelled, nothing was applied.
    """
    steps = planned([OWN, *sets])
    files = _Files(_path_of(path_or_url))
    try:
        return await files.opened(files.migrated(SystemClock(), steps))
    finally:
        await files.close()


class SqliteMigrations(Migrations):
    """This driver's migrations, as the command line finds them: belay's own and those of installed packages."""

    async def migrate(self, url: str) -> list[tuple[int, str]]:
        """Apply what is missing, all or nothing; the id and name of each migration this call applied."""
        return await migrate_sqlite(url, installed_sets("sqlite"))

    async def check(self, url: str) -> None:
        """Change nothing; ``SchemaMismatch`` where something is missing."""
        steps = self._steps()
        files = _Files(_path_of(url))
        try:
            await files.database.read(lambda tx: check(tx, steps, DIALECT))
        finally:
            await files.close()

    def sql(self, since: int = -1) -> str:
        """The migrations above an id as one script, for those who apply them by other means."""
        return printed(self._steps(), "CAST(strftime('%s', 'now') AS INTEGER) * 1000", since)

    def roles(self) -> str:
        """Refuses: a file has no roles, only the rights of the file system."""
        raise InvalidInput("roles", "are for PostgreSQL; a SQLite file has none")

    def _steps(self) -> Sequence[Migration]:
        return planned([OWN, *installed_sets("sqlite")])


MIGRATIONS: Final = SqliteMigrations()
"""What the command line migrates SQLite by."""


def _path_of(path_or_url: "str | os.PathLike[str]") -> str:
    text = os.fspath(path_or_url)
    return path_of("path_or_url", text) if names_sqlite(text) else text


@dataclass(frozen=True, slots=True)
class _Opened:
    engines: Engines
    writer: ThreadRunner
    looks: Reader
    write_lock: asyncio.Lock
    read_lock: asyncio.Lock | None


class _Files:
    """The engines over one database, and the stores' way to it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._full_path = Path(path).absolute()
        self._identity: tuple[int, int] | None = None
        self._opened = _in_memory() if path == MEMORY else _in_file(path)
        self.database = Database(
            self._opened.engines,
            DIALECT,
            one_writer=self._opened.write_lock,
            one_reader=self._opened.read_lock,
            patience=None,
            check_present=self._check_present,
        )

    @property
    def writer(self) -> ThreadRunner:
        """The thread that writes."""
        return self._opened.writer

    @property
    def looks(self) -> Reader:
        """A way to read past whatever is being written."""
        return self._opened.looks

    @property
    def views(self) -> Views:
        """Reads of one moment: any reader of a file has them, and of a database in memory a copy."""
        readers = self._opened.engines.read
        hold = partial(copied_session, self.database) if self._path == MEMORY else readers.hold
        return Views(self.database, hold, SqliteFeed())

    async def opened(self, opening: Awaitable[T]) -> T:
        """Await the first use of the file. Raises ``DatabaseUnreachable``, with its path, where it cannot be used."""
        try:
            return await opening
        except DatabaseError as failure:
            why = _FAILURES.get(failure.code, "it cannot be used")
            error = DatabaseUnreachable(f"SQLite file {self._full_path}: {why} ({failure})")
            error.__cause__ = failure
        raise error

    async def made_ready(self, clock: Clock) -> LeaseTimes:
        """Give an empty database its schema, check any other, and answer its lease times."""
        _reach(self._path)
        steps, now_ms = planned([OWN]), reading(clock)

        def prepare(tx: Connection) -> LeaseTimes:
            if DIALECT.is_empty(tx):
                apply(tx, steps, now_ms)
            return verify(tx, steps, DIALECT)

        times = await self.database.write(prepare)
        if self._path != MEMORY:
            self._identity = _identity_of(self._full_path)
        return times

    def _check_present(self) -> None:
        """Raise ``StoresUnusable`` if the file was deleted, or another one has its name.

        The open connections still have the old file, and what they write there is lost with the last of them.
        """
        if self._identity is not None and _identity_of(self._full_path) != self._identity:
            raise StoresUnusable("replaced")

    async def migrated(self, clock: Clock, steps: Sequence[Migration]) -> list[tuple[int, str]]:
        """Apply what is missing."""
        _reach(self._path)
        now_ms, go_on = reading(clock), until_cancelled()
        return await self.database.write(lambda tx: apply(tx, steps, now_ms, go_on=go_on))

    async def close(self) -> None:
        """Close every connection."""
        await self._opened.looks.close()
        await self._opened.engines.write.close()
        if self._opened.engines.read is not self._opened.engines.write:
            await self._opened.engines.read.close()


def _identity_of(path: Path) -> tuple[int, int] | None:
    """The device and the number of a file; None without one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _reach(path: str) -> None:
    """Find out whether there is a database to open, without a connection of the driver's.

    One that fails to connect leaves a thread behind, which outlives the event loop it reports to.
    """
    failure = None
    try:
        with closing(sqlite3.connect(path, timeout=0)) as connection:
            connection.execute("PRAGMA schema_version").fetchall()
    except sqlite3.Error as error:
        failure = DIALECT.explain(error) or Failure("unknown")
    # A file that is busy just now is there.
    if failure is not None and not failure.again:
        raise failure.error()


def _in_memory() -> _Opened:
    engine = create_engine(URL.create("sqlite", database=MEMORY), poolclass=StaticPool, **_options())
    only = ThreadRunner(_ready(engine, "BEGIN IMMEDIATE"), "belay-sqlite")
    turn = asyncio.Lock()
    return _Opened(Engines(only, only), only, MemoryReader(only), turn, turn)


def _in_file(path: str) -> _Opened:
    engine = create_engine(URL.create("sqlite", database=path), pool_size=1, max_overflow=0, **_options())
    writer = ThreadRunner(_ready(engine, "BEGIN IMMEDIATE"), "belay-sqlite")
    _quieten()
    url = URL.create("sqlite+aiosqlite", database=path)
    readers = create_async_engine(url, pool_size=READERS, max_overflow=0, **_options())
    _ready(readers.sync_engine, "BEGIN")
    looks = FileReader(create_async_engine(url, poolclass=NullPool, **_options()))
    return _Opened(Engines(writer, LoopRunner(readers)), writer, looks, asyncio.Lock(), None)


def _options() -> dict[str, Any]:
    return {
        "hide_parameters": True,
        # The driver must not begin transactions by itself: it begins them deferred, and one that reads first and
        # writes later fails at once when another process has written meanwhile.
        "connect_args": {"isolation_level": None, "timeout": BUSY_TIMEOUT},
    }


def _quieten() -> None:
    """Keep payloads out of logs: at DEBUG the driver writes down every statement with its parameters.

    Whoever sets a level on its logger has chosen to see them.
    """
    logger = logging.getLogger("aiosqlite")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def _ready(engine: Engine, begin: str) -> Engine:
    """The engine, its connections prepared, its transactions begun in these words."""
    event.listen(engine, "connect", _prepared)

    def started(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "begin", started)
    return engine


def _prepared(connection: Any, _record: object) -> None:
    try:
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
            cursor.fetchall()
        cursor.close()
    except BaseException:
        # The pool does not know it yet, so nobody else would close it.
        connection.close()
        raise
