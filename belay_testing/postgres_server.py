"""A real PostgreSQL server for tests, started from whatever binaries the machine has."""

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import socket
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from belay_testing.postgres_binaries import (
    BINARIES_VARIABLE,
    Account,
    PostgresUnavailable,
    account_for,
    find_binaries,
)
from belay_testing.postgres_watchdog import Lifeline, server_pid, wait_until_gone

__all__ = [
    "BINARIES_VARIABLE",
    "URL_VARIABLE",
    "PostgresServer",
    "PostgresUnavailable",
    "find_binaries",
    "run_apart",
]

URL_VARIABLE = "BELAY_TEST_POSTGRES_URL"
"""Names a running server by URL; if it is set, that server is used and none is started."""

_USER = "belay"
_START_TRIES = 3
_START_SECONDS = 30
_RECOVERY_SECONDS = 10
_INITDB_SECONDS = 60
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_WITH_STRATEGY = 15
"""The major version from which a database may be copied file by file."""

_SETTINGS = {
    # Inside the folder, so that a killed server leaves nothing behind elsewhere.
    "dynamic_shared_memory_type": "mmap",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "wal_level": "minimal",
}
_CARELESS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}

T = TypeVar("T")


class PostgresServer:
    """A server that runs inside a ``with`` block, and is stopped when the test process dies.

    ``durable`` keeps every promise about power loss, on a real disk; without it the server is several
    times faster and forgets committed work when the *machine* stops. ``home`` names a folder whose
    lifeline another process holds: the first to enter starts the server, all others join it.
    """

    def __init__(self, *, durable: bool = False, home: Path | None = None) -> None:
        self._durable = durable
        self._home = home
        self._lifeline: Lifeline | None = None
        self._account = Account()
        self._binaries = Path()
        self._url = ""

    @property
    def url(self) -> str:
        """The URL of the database ``postgres`` on this server."""
        return self._url

    def __enter__(self) -> Self:
        """Start or join the server.

        Raises ``PostgresUnavailable`` if none can be started.
        """
        named = os.environ.get(URL_VARIABLE)
        if named:
            self._url = named
            return self
        self._binaries = find_binaries()
        self._account = account_for(self._binaries)
        if self._home is None:
            self._lifeline = Lifeline(in_memory=not self._durable)
            self._home = self._lifeline.folder
        try:
            self._url = self._start_or_join(self._home)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Stop what was started here, and remove its folder."""
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = self._home = None

    def create_database(self, name: str, template: str | None = None) -> str:
        """The URL of a new database, empty or a copy of ``template``.

        Works inside a running event loop too, which it blocks meanwhile.
        """
        copied = f' TEMPLATE "{_checked(template)}"' if template else ""
        run_apart(_run(self._url, f'CREATE DATABASE "{_checked(name)}"{copied}', by_file=bool(template)))
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and every connection to it."""
        run_apart(_run(self._url, f'DROP DATABASE IF EXISTS "{_checked(name)}" WITH (FORCE)'))

    def database_url(self, name: str) -> str:
        """The URL under which this server offers the database of that name."""
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{_checked(name)}"))

    def kill(self) -> None:
        """Kill the server as in a crash (SIGKILL); its files stay for ``restart``."""
        home = self._started_here()
        pid = server_pid(home)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            wait_until_gone(home, pid, _START_SECONDS)

    def restart(self) -> None:
        """Start a killed server again, under the same URL; it recovers first."""
        home, port = self._started_here(), urlsplit(self._url).port or 0
        deadline = time.monotonic() + _RECOVERY_SECONDS
        while time.monotonic() < deadline:
            # Refused while the killed server's backends still end, or until the process is reaped.
            with contextlib.suppress(PostgresUnavailable):
                return self._launch(home, port)
            time.sleep(0.1)
        # If it is never reaped, as in a container without an init process, only the lock is left.
        (home / "data" / "postmaster.pid").unlink(missing_ok=True)
        return self._launch(home, port)

    def _started_here(self) -> Path:
        """The folder of the server that this object started."""
        if self._lifeline is None:
            raise RuntimeError("This server was not started here: it may serve others.")
        return self._lifeline.folder

    def _start_or_join(self, home: Path) -> str:
        """Start the folder's server unless it runs; returns its URL."""
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            note = home / "url"
            if not note.exists():
                self._initialise(home)
                note.write_text(self._start(home))
            return note.read_text()

    def _initialise(self, home: Path) -> None:
        """Create an empty cluster in the folder's ``data``."""
        if self._account.user is not None and self._account.group is not None:
            os.chown(home, self._account.user, self._account.group)
        done = self._account.run(
            [
                *(self._binaries / "initdb", "-D", home / "data", "-U", _USER, "-A", "trust"),
                *("-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"),
            ],
            env=_environment(),
            cwd=home,
            timeout=_INITDB_SECONDS,
        )
        if done.returncode:
            raise PostgresUnavailable(f"initdb of {self._binaries} failed:\n{done.stdout}")

    def _start(self, home: Path) -> str:
        """Start the server on a free port; returns its URL."""
        for _ in range(_START_TRIES - 1):
            # Another process may take the port between the check and the start.
            with contextlib.suppress(PostgresUnavailable):
                return self._start_on(home, _free_port())
        return self._start_on(home, _free_port())

    def _start_on(self, home: Path, port: int) -> str:
        """Start the server on this port; returns its URL."""
        self._launch(home, port)
        return f"postgresql://{_USER}@127.0.0.1:{port}/postgres"

    def _launch(self, home: Path, port: int) -> None:
        """Run the server, and wait until it accepts connections on this port."""
        settings = _SETTINGS | ({} if self._durable else _CARELESS)
        settings |= {"port": str(port), "unix_socket_directories": str(home)}
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        (home / "data" / "postgresql.auto.conf").write_text("".join(lines))
        log = home / "log"
        options = ("-D", home / "data", "-l", log, "-w", "-t", str(_START_SECONDS))
        done = self._account.run(
            [self._binaries / "pg_ctl", *options, "start"],
            env=_environment(),
            cwd=home,
            timeout=2 * _START_SECONDS,
        )
        if done.returncode:
            written = log.read_text(errors="replace") if log.exists() else ""
            raise PostgresUnavailable(f"PostgreSQL did not start:\n{done.stdout}\n{written[-2000:]}")


def _environment() -> dict[str, str]:
    """This process's environment without PostgreSQL's own variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _checked(name: str) -> str:
    """The name, if it needs no escaping between quotation marks."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"name: {name!r} is not lower-case letters, digits and underscores, at most 63")
    return name


async def _run(url: str, statement: str, *, by_file: bool = False) -> None:
    """Run one statement outside a transaction, as CREATE DATABASE and DROP DATABASE need it."""
    import asyncpg

    connection = await asyncpg.connect(url, timeout=10)
    try:
        if by_file and connection.get_server_version().major >= _WITH_STRATEGY:
            statement += " STRATEGY file_copy"
        await connection.execute(statement, timeout=30)
    finally:
        await connection.close()


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, in a thread of its own; returns its result."""
    with ThreadPoolExecutor(max_workers=1) as threads:
        return threads.submit(asyncio.run, work).result()
