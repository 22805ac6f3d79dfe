"""Where a demo keeps things: a database, a ledger, a folder of filed documents; and the commands that name them."""

import os
import shlex
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from belay_core.errors import BelayError, DatabaseError, DriverNotFound, InvalidInput, SchemaMismatch
from belay_core.stores.bundle import Stores
from belay_core.stores.drivers import find_migrations, open_stores

VARIABLE: Final = "BELAY_DATABASE"
"""What belay's commands, and the workers of the demo, read the database's URL from."""


class DatabaseUnavailable(BelayError):
    """The database cannot be opened; the message says what kind of failure it was, and nothing of the URL."""


@dataclass(frozen=True, slots=True)
class Places:
    """A folder of the demo's own, and the database, which is in it unless another one is given."""

    folder: Path
    url: str

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.folder / "ledger.db"

    @property
    def filed(self) -> Path:
        """Where documents are filed."""
        return self.folder / "filed"

    @property
    def workers_log(self) -> Path:
        """What the workers of ``--kill`` write to their standard error."""
        return self.folder / "workers.log"

    @property
    def is_in_memory(self) -> bool:
        """Whether the database is only there for the process that opens it."""
        scheme, _, path = self.url.partition("://")
        return scheme.partition("+")[0] == "sqlite" and path.removeprefix("/").partition("?")[0] in ("", ":memory:")

    @property
    def names_secret(self) -> bool:
        """Whether the URL holds a password, which is then not shown."""
        return urlsplit(self.url).password is not None

    def command(self, *words: str) -> str:
        """A command of belay's over this database, to be pasted into a shell.

        With a password in the URL the database is left to the environment.
        """
        where = () if self.names_secret else ("--database", self.url)
        return shlex.join(("belay", *words, *where))

    def worker_command(self) -> str:
        """The command that goes on with the runs of the demo."""
        return self.command("worker", "--app", "belay_core.demo.workflow:WORKFLOWS")


def make_places(database: str | None) -> Places:
    """A fresh folder, and the database there, or the one that is given. Raises ``InvalidInput`` for what is no URL."""
    if database is not None and "://" not in database:
        raise InvalidInput("database", "must be a URL, such as sqlite:///belay.db or postgresql://host/name")
    folder = Path(tempfile.mkdtemp(prefix="belay-demo-")).absolute()
    return Places(folder, database or f"sqlite:///{folder / 'belay.db'}")


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Stores]:
    """The stores of the database; an empty one is given its schema first.

    Raises ``SchemaMismatch`` for any other schema than this version's, ``InvalidInput`` and ``DatabaseUnavailable``.
    """
    async with AsyncExitStack() as stack:
        try:
            stores = await _entered(stack, url)
        except Exception as error:  # noqa: BLE001  (drivers may raise anything on the way to a connection)
            raise _plain(error) from None
        yield stores


def _plain(error: Exception) -> Exception:
    """The error as one that can be told: nothing of the URL is in it. What only a defect raises is left as it is."""
    match error:
        case DriverNotFound():
            return InvalidInput("database", str(error).removeprefix("url: "))
        case DatabaseError():
            return DatabaseUnavailable(f"the database cannot be opened: {error}")
        case BelayError() | NameError() | AttributeError() | AssertionError():
            return error
        case ModuleNotFoundError():
            return DatabaseUnavailable(f"{error.name} is not installed; pip install 'belay-core[all]'")
        case OSError():
            return DatabaseUnavailable(f"the database cannot be reached: {error.strerror or type(error).__name__}")
        case _:
            return DatabaseUnavailable(f"the database cannot be opened: {type(error).__name__}")


async def _entered(stack: AsyncExitStack, url: str) -> Stores:
    try:
        return await stack.enter_async_context(open_stores(url))
    except SchemaMismatch as mismatch:
        # What is there may be others', and changing it is for those who run it.
        if mismatch.state != "empty":
            raise
    await find_migrations(url).migrate(url)
    return await stack.enter_async_context(open_stores(url))


def environment(url: str) -> dict[str, str]:
    """The environment of a worker: the URL is there and not among its arguments, which every user can list."""
    return os.environ | {VARIABLE: url}
