"""Where a demo keeps its database, ledger and filed documents, and the ``belay`` commands that work on them."""

import shlex
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from belay_core import BelayError, DriverNotFound, InvalidInput, SchemaMismatch, Stores, find_migrations, open_stores
from belay_core.errors import DatabaseError, DatabaseUnreachable

VARIABLE: Final = "BELAY_DATABASE"
"""The environment variable from which ``belay`` and the demo's workers read the URL of the database."""


class DemoError(BelayError):
    """The demo cannot go on; the message says why, and holds nothing of the URL, which may contain a password."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A new folder for each demo, and its database, which is in the folder unless another one is given."""

    folder: Path
    url: str

    @property
    def ledger(self) -> Path:
        """The file of the ledger."""
        return self.folder / "ledger.db"

    @property
    def filed(self) -> Path:
        """The folder of filed documents."""
        return self.folder / "filed"

    @property
    def workers_log(self) -> Path:
        """The standard error of the worker processes."""
        return self.folder / "workers.log"

    @property
    def is_in_memory(self) -> bool:
        """Whether only the process that opens the database can see it."""
        scheme, _, path = self.url.partition("://")
        return scheme.partition("+")[0] == "sqlite" and path.removeprefix("/").partition("?")[0] in ("", ":memory:")

    @property
    def has_password(self) -> bool:
        """Whether the URL holds a password; then it is never shown."""
        return urlsplit(self.url).password is not None

    def command(self, *words: str) -> str:
        """A command of ``belay`` on this database, ready for a shell; a URL with a password is left to the variable."""
        where = () if self.has_password else ("--database", self.url)
        return shlex.join(("belay", *words, *where))

    def worker_command(self) -> str:
        """The command that starts a worker for the demo's runs."""
        return self.command("worker", "--app", "belay_invoices.workflow:WORKFLOWS")


def make_workspace(database: str | None) -> Workspace:
    """A new folder, with the given database or a SQLite file in it. Raises ``InvalidInput`` for what is no URL."""
    if database is not None and "://" not in database:
        raise InvalidInput("database", "must be a URL, such as sqlite:///belay.db or postgresql://host/name")
    folder = Path(tempfile.mkdtemp(prefix="belay-demo-")).absolute()
    return Workspace(folder, database or f"sqlite:///{folder / 'belay.db'}")


@asynccontextmanager
async def open_database(url: str) -> AsyncGenerator[Stores]:
    """The stores of the database; an empty one gets its schema first.

    Raises ``InvalidInput`` for a URL that no driver opens, ``SchemaMismatch`` for a schema of another version, and
    ``DemoError`` where the database cannot be opened.
    """
    async with AsyncExitStack() as stack:
        try:
            stores = await _enter(stack, url)
        except Exception as error:  # noqa: BLE001  (a driver may raise anything while it connects)
            raise _without_url(error, url) from None
        yield stores


async def _enter(stack: AsyncExitStack, url: str) -> Stores:
    try:
        return await stack.enter_async_context(open_stores(url))
    except SchemaMismatch as mismatch:
        # A schema that exists may be somebody else's; its owner decides whether to migrate it.
        if mismatch.state != "empty":
            raise
    await find_migrations(url).migrate(url)
    return await stack.enter_async_context(open_stores(url))


def _without_url(error: Exception, url: str) -> Exception:
    """The error in words that repeat nothing of the URL."""
    match error:
        case DriverNotFound():
            return InvalidInput("database", str(error).removeprefix("url: "))
        case DatabaseError() | DatabaseUnreachable():
            return DemoError(f"the database cannot be opened: {error}")
        case BelayError():
            return error
        case ModuleNotFoundError():
            extras = "demo,postgres" if url.startswith("postgres") else "demo"
            return DemoError(f"{error.name} is not installed; pip install 'belay-core[{extras}]'")
        case OSError():
            return DemoError(f"the database cannot be reached: {error.strerror or type(error).__name__}")
        case _:
            return DemoError(f"the database cannot be opened: {type(error).__name__}")
