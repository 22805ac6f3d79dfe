"""A PostgreSQL of one's own that keeps what it has committed, set up to be measured."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from belay_drivers.postgres import migrate_postgres
from belay_testing.postgres_server import URL_VARIABLE, PostgresServer, run_apart
from belay_testing.postgres_watchdog import server_pid

_STATEMENTS = "pg_stat_statements"
# Nothing is planned anew, vacuumed or flushed in the middle of a second that is measured.
_SETTINGS = {"shared_buffers": "512MB", "checkpoint_timeout": "30min", "autovacuum_naptime": "5min"}
_LOG_SIZE = "4GB"
_EMPTY = "bench_empty"


class Server(PostgresServer):
    """A durable server in a folder of its own, with the count of its statements where it has that."""

    def __init__(self) -> None:
        super().__init__(durable=True)
        self.counts_statements = False
        self.pid = 0
        """The first of its processes."""
        self._databases = 0

    def database(self, template: str = _EMPTY) -> str:
        """The URL of a new database with the schema, empty unless a filled template is named, and never analysed."""
        self._databases += 1
        return self.create_database(f"bench_{self._databases}", template)

    def ask(self, statement: str, url: str | None = None) -> list[Any]:
        """The rows a statement gives, asked by a connection of its own."""
        return run_apart(_asked(url or self.url, statement))

    def do(self, script: str, url: str) -> None:
        """Several statements, one after the other."""
        run_apart(_done(url, script))

    def drop(self, url: str) -> None:
        """A database of this server is gone."""
        self.drop_database(url.rpartition("/")[2])

    def _initialise(self, home: Path) -> None:
        super()._initialise(home)
        self.counts_statements = any(self._binaries.parent.glob(f"lib/**/{_STATEMENTS}.*"))
        settings = _SETTINGS | ({"shared_preload_libraries": _STATEMENTS} if self.counts_statements else {})
        with (home / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _launch(self, home: Path, port: int) -> None:
        super()._launch(home, port)
        self.pid = server_pid(home) or 0


@contextmanager
def started() -> Iterator[Server]:
    """A server of one's own, whatever the surroundings name; it is stopped at the end."""
    named = os.environ.pop(URL_VARIABLE, None)
    try:
        with Server() as server:
            server.ask(f"ALTER SYSTEM SET max_wal_size = '{_LOG_SIZE}'")
            server.ask("SELECT pg_reload_conf()")
            if server.counts_statements:
                server.ask(f"CREATE EXTENSION {_STATEMENTS}")
            run_apart(migrate_postgres(server.create_database(_EMPTY)))
            yield server
    finally:
        if named is not None:
            os.environ[URL_VARIABLE] = named


async def _asked(url: str, statement: str) -> list[Any]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()


async def _done(url: str, script: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(script)
    finally:
        await connection.close()
