"""The fixtures' values: stores and workers that a test opens in its own event loop."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, TypeAlias

from belay_core import Worker
from belay_core.stores import Stores
from belay_core.workflows.registry import Registrable

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Stores]]
"""Opens new stores at each call."""


class StoresHandle:
    """Stores over one database, opened by each ``async with``.

    Entered twice at once it gives two ``Stores`` over the same database, as two processes have them;
    the one opened last is closed first. In memory each opening is a database of its own.
    """

    def __init__(self, url: str, opener: Opener) -> None:
        self.url = url
        """Where the database is, in the spelling ``open_stores`` takes."""
        self._opener = opener
        self._open: list[AbstractAsyncContextManager[Stores]] = []

    def open(self) -> AbstractAsyncContextManager[Stores]:
        """One more opening, closed independently of the others."""
        return self._opener()

    async def __aenter__(self) -> Stores:
        """Stores with the schema applied."""
        opening = self.open()
        stores = await opening.__aenter__()
        self._open.append(opening)
        return stores

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """The stores opened last are closed."""
        await self._open.pop().__aexit__(kind, error, where)


class WorkerFactory:
    """Makes workers without background tasks: ``belay_testing.drive.run_ready`` executes their runs."""

    def __init__(self, handle: StoresHandle) -> None:
        self._handle = handle

    @asynccontextmanager
    async def __call__(
        self, definitions: Sequence[Registrable[Any, Any]], stores: Stores | None = None
    ) -> AsyncGenerator[Worker]:
        """A worker over the given stores, or over stores in memory that last as long as the worker."""
        async with AsyncExitStack() as stack:
            if stores is None:
                stores = await stack.enter_async_context(self._handle)
            yield await stack.enter_async_context(Worker(stores, definitions, background=False))
