"""Opening the database a command works on, and saying plainly why it cannot be opened."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from belay_core.cli.error_report import DatabaseUnavailable, ExtraMissing
from belay_core.clock import Millis, reading
from belay_core.errors import BelayError, DatabaseError, DriverNotFound, InvalidInput
from belay_core.stores.bundle import Stores
from belay_core.stores.drivers import open_stores

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
        """The moment by the clock of the database."""
        return reading(self.stores.clock)


def with_client(url: str | None, work: Callable[[CommandSession], Awaitable[int]], *, makes_file: bool = False) -> int:
    """Do some work with a client over the database; the exit code is what the work gives back."""

    async def within() -> int:
        from belay_core.client import Client

        async with opened(url, makes_file=makes_file) as stores:
            return await work(CommandSession(Client(stores), stores))

    return asyncio.run(within())


@asynccontextmanager
async def opened(url: str | None, *, makes_file: bool = False) -> AsyncGenerator[Stores]:
    """The stores of the database. Raises ``InvalidInput``, ``DatabaseUnavailable``, ``SchemaMismatch`` ..

    Only with ``makes_file`` may a file be made: to a command that only looks, a file that is not there is a mistake in
    the URL, and an empty database in its place would answer that there is nothing.
    """
    address = admitted(url)
    if not makes_file:
        require_file(address)
    async with AsyncExitStack() as stack:
        async with plain_errors(address):
            stores = await stack.enter_async_context(open_stores(address))
        yield stores


@asynccontextmanager
async def plain_errors(url: str) -> AsyncGenerator[None]:
    """Errors met inside, on the way to a connection, leave as ones that can be told."""
    before = set(threading.enumerate())
    try:
        yield
    except Exception as error:  # noqa: BLE001  (drivers may raise anything there)
        # A driver's thread that is about to end may have a last word for this loop, and were the loop closed by then,
        # it would complain on the terminal. Nothing else goes on in this loop, so it may be held up meanwhile.
        for thread in set(threading.enumerate()) - before:
            if thread.daemon:
                thread.join(_THREAD_ENDS_WITHIN)
        raise _plain(error, url) from None


def admitted(url: str | None) -> str:
    """The URL, if it looks like one."""
    if url is None:
        raise InvalidInput("database", "must be given, by --database URL or BELAY_DATABASE")
    if "://" not in url:
        raise InvalidInput("database", "must be a URL, such as sqlite:///belay.db or postgresql://host/name")
    return url


def _plain(error: Exception, url: str) -> Exception:
    """An error met while opening, as one that can be told: nothing of the URL, which may hold a password, is in it.

    Errors that only a defect raises are given back as they are.
    """
    match error:
        case DriverNotFound():
            return InvalidInput("database", str(error).removeprefix("url: "))
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
    """Refuse a SQLite file that is not there; the path begins behind the third slash."""
    path = url.partition("://")[2].removeprefix("/").partition("?")[0]
    if _scheme(url) == "sqlite" and path not in ("", ":memory:") and not Path(path).exists():
        raise InvalidInput("database", f"there is no file {path}")
