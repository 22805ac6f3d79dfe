"""Opening stores by URL: drivers are found by entry point alone (kernel 28)."""

from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import Protocol, cast

from belay_core.errors import DriverNotFound
from belay_core.ids import IdSource
from belay_core.moments import Clock
from belay_core.stores.bundle import Stores

GROUP = "belay.drivers"


class OpensStores(Protocol):
    """What a driver registers under the schemes it opens."""

    def __call__(
        self, url: str, *, clock: Clock | None = None, ids: IdSource | None = None
    ) -> AbstractAsyncContextManager[Stores]:
        """Open the stores behind this URL."""


def open_stores(
    url: str, *, clock: Clock | None = None, ids: IdSource | None = None
) -> AbstractAsyncContextManager[Stores]:
    """Open stores by URL (``sqlite:///belay.db``, ``postgresql://host/db``), with whichever driver is installed.

    Raises ``DriverNotFound`` where the URL has no scheme or no installed driver answers to it.
    """
    scheme = url.partition("://")[0].partition("+")[0] if "://" in url else ""
    found = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in found:
        known = ", ".join(sorted(found)) or "none"
        raise DriverNotFound(f"url: no driver is installed for this scheme; installed: {known}")
    return cast("OpensStores", found[scheme].load())(url, clock=clock, ids=ids)
