"""Open stores by URL: drivers are found only by entry point (kernel 28)."""

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from belay_core.clock import Clock
from belay_core.errors import DriverNotFound, InvalidInput
from belay_core.ids import IdSource
from belay_core.stores.bundle import Stores

GROUP = "belay.drivers"
MIGRATIONS_GROUP = "belay.migrations"
_EXTRAS = {"sqlite": "sqlite", "postgresql": "postgres"}
_EXAMPLES = "sqlite:///belay.db or postgresql://host/name"


class OpensStores(Protocol):
    """The function that a driver registers under its URL schemes."""

    def __call__(
        self, url: str, *, clock: Clock | None = None, ids: IdSource | None = None
    ) -> AbstractAsyncContextManager[Stores]:
        """Open the stores of this URL."""
        ...


class Migrations(Protocol):
    """The migrations that a driver registers under the same schemes."""

    @abstractmethod
    async def migrate(self, url: str) -> list[tuple[int, str]]:
        """Apply missing migrations, all or none; returns id and name of each one that this call applied."""

    @abstractmethod
    async def check(self, url: str) -> None:
        """Change nothing, and raise ``SchemaMismatch`` if a migration is missing."""

    @abstractmethod
    def sql(self, since: int = -1) -> str:
        """The migrations above an id as one script, for those who apply them by other means."""

    @abstractmethod
    def roles(self) -> str:
        """A script that makes the database roles of belay; raises ``InvalidInput`` if the database has no roles."""


def open_stores(
    url: str, *, clock: Clock | None = None, ids: IdSource | None = None
) -> AbstractAsyncContextManager[Stores]:
    """Open stores by URL (``sqlite:///belay.db``, ``postgresql://host/db``), with whichever driver is installed.

    Raises ``InvalidInput`` for what is no URL, ``DriverNotFound`` where no installed driver opens it, or a package of
    the driver is missing, and ``DatabaseUnreachable`` where the database cannot be opened.
    """
    opens, spelled = _registered(GROUP, url)
    return cast("OpensStores", opens)(spelled, clock=clock, ids=ids)


def find_migrations(url: str) -> Migrations:
    """The migrations of the driver that opens this URL; raises as ``open_stores`` does."""
    return cast("Migrations", _registered(MIGRATIONS_GROUP, url)[0])


def _registered(group: str, url: object) -> tuple[Any, str]:
    """What is registered under the URL's scheme, and the URL as its driver spells it."""
    if type(url) is not str or "://" not in url:
        what = "nothing" if url is None else "something else"
        raise InvalidInput("url", f"must be a URL, such as {_EXAMPLES}; {what} was given (is a variable not set?)")
    scheme = url.partition("://")[0].partition("+")[0]
    if scheme == "postgres":
        # As many hosting services write it.
        scheme, url = "postgresql", f"postgresql{url.removeprefix('postgres')}"
    found = {point.name: point for point in entry_points(group=group)}
    if scheme not in found:
        known = ", ".join(sorted(found)) or "none"
        raise DriverNotFound(f"url: no driver is installed for this scheme; installed: {known}")
    try:
        return found[scheme].load(), url
    except ModuleNotFoundError as missing:
        extra = _EXTRAS.get(scheme)
        if extra is None:
            raise
        raise DriverNotFound(f"{missing.name} is not installed; pip install 'belay-core[{extra}]'") from missing
