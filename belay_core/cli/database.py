"""Open the database of a command, and report why it cannot be opened."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from belay_core.cli.error_report import DatabaseUnavailable, ExtraMissing
from belay_core.clock import Millis, reading
from belay_core.errors import BelayError, DatabaseError, DatabaseUnreachable, DriverNotFound, InvalidInput
from belay_core.stores.bundle import Stores
from belay_core.stores.drivers import open_stores
from belay_core.stores.file_url import MEMORY, names_sqlite, path_of

if TYPE_CHECKING:
    from belay_core.client import Client

_THREAD_ENDS_WITHIN: Final = 1.0
_EXTRAS: Final = {"sqlite": "sqlite", "postgresql": "postgres"}


@dataclass(frozen=True, slots=True)
class CommandSession:
    """An open database and a client over it."""

    client: "Client"
    stores: Stores

    @property
    def now_ms(self) -> Millis:
        """The time by the database's clock, in milliseconds."""
        return reading(self.stores.clock)


def with_client(url: str | None, work: Callable[[CommandSession], Awaitable[int]], *, makes_file: bool = False) -> int:
    """Run ``work`` with a client over the database; returns the exit code that the work returns."""

    async def within() -> int:
        from belay_core.client import Client

        async with open_database(url, makes_file=makes_file) as stores:
            return await work(CommandSession(Client(stores), stores))

    return asyncio.run(within())


@asynccontextmanager
async def open_database(url: str | None, *, makes_file: bool = False) -> AsyncGenerator[Stores]:
    """The stores of the database. Raises ``InvalidInput``, ``DatabaseUnavailable``, ``SchemaMismatch`` ..

    A missing file is created only with ``makes_file``: for a command that only reads, it means a mistake in the URL,
    and an empty database in its place would answer that there is nothing.
    """
    address = checked_url(url)
    if not makes_file:
        require_file(address)
    async with AsyncExitStack() as stack:
        async with reportable_errors(address):
            stores = await stack.enter_async_context(open_stores(address))
        yield stores


@asynccontextmanager
async def reportable_errors(url: str) -> AsyncGenerator[None]:
    """Replace errors of the driver inside the block by ones that can be printed (``_reportable``)."""
    before = set(threading.enumerate())
    try:
        yield
    except Exception as error:  # noqa: BLE001  (drivers may raise anything there)
        # A driver's thread that is about to end may still call into this loop; if the loop were closed by then, it
        # would print an error. Nothing else runs in this loop, so it may be blocked meanwhile.
        for thread in set(threading.enumerate()) - before:
            if thread.daemon:
                thread.join(_THREAD_ENDS_WITHIN)
        raise _reportable(error, url) from None


def checked_url(url: str | None) -> str:
    """The URL. Raises ``InvalidInput`` if it is missing, no URL, or of a database that ends with this command."""
    if url is None:
        raise InvalidInput("database", "must be given, by --database URL or BELAY_DATABASE")
    if "://" not in url:
        raise InvalidInput("database", "must be a URL, such as sqlite:///belay.db or postgresql://host/name")
    if names_sqlite(url) and path_of("database", url) == MEMORY:
        raise InvalidInput(
            "database", "must be kept: one in memory ends with this command; name a file, sqlite:///belay.db"
        )
    return url


def _reportable(error: Exception, url: str) -> Exception:
    """An error of opening, as one that can be printed: it holds nothing of the URL, which may contain a password.

    Errors that only a defect raises are returned unchanged.
    """
    match error:
        case DriverNotFound() if isinstance(error.__cause__, ModuleNotFoundError):
            return ExtraMissing(str(error))
        case DriverNotFound():
            return InvalidInput("database", str(error).removeprefix("url: "))
        case DatabaseUnreachable():
            return DatabaseUnavailable(f"the database cannot be opened: {error}")
        case DatabaseError():
            return DatabaseUnavailable(f"the database cannot be opened: {error}")
        case BelayError() | NameError() | AttributeError() | SyntaxError() | AssertionError():
            return error
        case ModuleNotFoundError():
            extra = _EXTRAS.get(_scheme(url), "all")
            return ExtraMissing(f"{error.name} is not installed; pip install 'belay-core[{extra}]'")
        case OSError():
            return DatabaseUnavailable(f"the database cannot be reached: {error.strerror or type(error).__name__}")
        case _:
            return DatabaseUnavailable(f"the database cannot be opened: {type(error).__name__}")


def _scheme(url: str) -> str:
    return url.partition("://")[0].partition("+")[0]


def require_file(url: str) -> None:
    """Raise ``InvalidInput`` for a SQLite file that does not exist."""
    if names_sqlite(url) and not Path(path := path_of("database", url)).exists():
        raise InvalidInput("database", f"there is no file {path}")
