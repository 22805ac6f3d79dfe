"""Opening stores by URL: drivers are found by entry point alone (kernel 28)."""

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from belay_core.clock import Clock
from belay_core.errors import DriverNotFound
from belay_core.ids import IdSource
from belay_core.stores.bundle import Stores

GROUP = "belay.drivers"
MIGRATIONS_GROUP = "belay.migrations"


class OpensStores(Protocol):
    """What a driver registers under the schemes it opens."""

    def __call__(
        self, url: str, *, clock: Clock | None = None, ids: IdSource | None = None
    ) -> AbstractAsyncContextManager[Stores]:
        """Open the stores behind this URL."""
        ...


class Migrations(Protocol):
    """What a driver registers under the same schemes to keep its schema up to date."""

    @abstractmethod
    async def migrate(self, url: str) -> list[tuple[int, str]]:
        """Apply what is missing, all or nothing; the id and name of each migration this call applied."""

    @abstractmethod
    async def check(self, url: str) -> None:
        """Change nothing, and raise ``SchemaMismatch`` where something is missing."""

    @abstractmethod
    def sql(self, since: int = -1) -> str:
        """The migrations above an id as one script, for those who apply them by other means."""

    @abstractmethod
    def roles(self) -> str:
        """A script that makes the database roles of belay; ``InvalidInput`` where the database has no roles."""


def open_stores(
    url: str, *, clock: Clock | None = None, ids: IdSource | None = None
) -> AbstractAsyncContextManager[Stores]:
    """Open stores by URL (``sqlite:///belay.db``, ``postgresql://host/db``), with whichever driver is installed.

    Raises ``DriverNotFound`` where the URL has no scheme or no installed driver answers to it.
    """
    return cast("OpensStores", _registered(GROUP, url))(url, clock=clock, ids=ids)


def find_migrations(url: str) -> Migrations:
    """The migrations of the driver that opens this URL; raises as ``open_stores`` does."""
    return cast("Migrations", _registered(MIGRATIONS_GROUP, url))


def _registered(group: str, url: str) -> Any:
    scheme = url.partition("://")[0].partition("+")[0] if "://" in url else ""
    found = {point.name: point for point in entry_points(group=group)}
    if scheme not in found:
        known = ", ".join(sorted(found)) or "none"
        raise DriverNotFound(f"url: no driver is installed for this scheme; installed: {known}")
    return found[scheme].load()
